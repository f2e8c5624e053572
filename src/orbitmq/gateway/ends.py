"""The work of AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Final, TypeAlias

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.pop.acknowledging import Acknowledging
from orbitmq.gateway import receipts, schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.messages import milliseconds, new
from orbitmq.gateway.names import group_name, topic_name
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError, of_many, refusal
from orbitmq.gateway.unary import ok, refused, status
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

MOST_INVISIBLE_MS: Final = 12 * 3600 * 1000
# The broker's codes for a bad receipt, which gRPC clients get as INVALID_RECEIPT_HANDLE.
_OF_A_RECEIPT: Final = frozenset(
    {ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}
)

Ended: TypeAlias = Awaitable[None] | RefusalError | None


class Ends:
    """Acknowledges received messages, changes their invisible time, makes them dead letters."""

    def __init__(self, config: BrokerConfig, acknowledging: Acknowledging) -> None:
        self._config = config
        self._acknowledging = acknowledging

    async def acknowledge(
        self, _caller: Caller, request: schema.AckMessageRequest
    ) -> schema.AckMessageResponse:
        """AckMessage: each receipt handle gets its own result."""
        topic, group = topic_name(request.topic), group_name(request.group)
        if not request.entries:
            raise RefusalError(Code.BAD_REQUEST, "the request has no entry")
        ended = [self.begin(topic, group, entry.receipt_handle) for entry in request.entries]
        entries = []
        for entry, each in zip(request.entries, ended, strict=True):
            entries.append(
                new(
                    schema.AckMessageResultEntry,
                    message_id=entry.message_id,
                    receipt_handle=entry.receipt_handle,
                    status=await self._result(each),
                )
            )
        code = of_many(entry.status.code for entry in entries)
        text = entries[0].status.message if code != Code.MULTIPLE_RESULTS else ""
        return new(schema.AckMessageResponse, status=status(code, text), entries=entries)

    def begin(self, topic: str, group: str, text: str) -> Ended:
        """Acknowledge by a receipt handle. A result that waits for the disk is awaitable."""
        try:
            handle = receipts.decode(text, self._config.broker_name)
            return self._acknowledging.acknowledge(handle.settled(topic, group))
        except RefusalError as error:
            return error
        except PORT_ERRORS as error:
            return unsettled(error)

    async def _result(self, ended: Ended) -> schema.Status:
        """The status of an acknowledgement that :meth:`begin` started."""
        try:
            if isinstance(ended, RefusalError):
                return refused(ended)
            if isawaitable(ended):
                await ended
        except PORT_ERRORS as error:
            return refused(unsettled(error))
        return ok()

    async def change(
        self, _caller: Caller, request: schema.ChangeInvisibleDurationRequest
    ) -> schema.ChangeInvisibleDurationResponse:
        """ChangeInvisibleDuration: the message gets another deadline and a new handle."""
        topic, group = topic_name(request.topic), group_name(request.group)
        asked_ms = milliseconds(request.invisible_duration)
        if not 0 <= asked_ms <= MOST_INVISIBLE_MS:
            raise RefusalError(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration {asked_ms} ms, limits 0 to {MOST_INVISIBLE_MS} ms",
            )
        if request.suspend:
            raise RefusalError(Code.UNSUPPORTED, "suspend is of lite topics, which are not served")
        handle = receipts.decode(request.receipt_handle, self._config.broker_name)
        try:
            outcome = self._acknowledging.change(handle.settled(topic, group), max(1, asked_ms))
            changed = await outcome if isawaitable(outcome) else outcome
        except PORT_ERRORS as error:
            raise unsettled(error) from error
        return new(
            schema.ChangeInvisibleDurationResponse,
            status=ok(),
            receipt_handle=handle.changed(changed).encode(),
        )

    async def give_up(
        self, caller: Caller, request: schema.ForwardMessageToDeadLetterQueueRequest
    ) -> schema.ForwardMessageToDeadLetterQueueResponse:
        """ForwardMessageToDeadLetterQueue.

        A handle whose delivery is over is answered OK: the message is acknowledged, a dead letter, or will be
        redelivered. Clients repeat this call until it ends with OK, and get nothing from the queue meanwhile.
        """
        topic, group = topic_name(request.topic), group_name(request.group)
        handle = receipts.decode(request.receipt_handle, self._config.broker_name)
        reason = f"given up after {request.delivery_attempt} of {request.max_delivery_attempts} deliveries"
        end = ok()
        try:
            outcome = self._acknowledging.give_up(handle.settled(topic, group), reason, caller.client_id)
            if isawaitable(outcome):
                await outcome
        except PORT_ERRORS as error:
            if not (isinstance(error, RemotingError) and error.code == ResponseCode.NO_MESSAGE):
                raise unsettled(error) from error
            end = status(Code.OK, error.remark)
        return new(schema.ForwardMessageToDeadLetterQueueResponse, status=end)


def unsettled(error: Exception) -> RefusalError:
    assert isinstance(error, PORT_ERRORS)
    if isinstance(error, RemotingError) and error.code in _OF_A_RECEIPT:
        # The text begins with the code's name, which is Apache's whole text. Java's client prints the code's
        # number only.
        code = Code.INVALID_RECEIPT_HANDLE
        return RefusalError(code, f"{code.name}: {error.remark}")
    return refusal(error)
