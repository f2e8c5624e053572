"""Transactions: a message becomes visible to consumers only if the local work of its sender has succeeded."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.hooks import EndTransactionContext
from orbitmq.client.keywords import takes
from orbitmq.client.model import SendResult, SendStatus
from orbitmq.client.producer.options import ProducerOptions, SendOptions, in_ms
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.taken import taken
from orbitmq.client.validation import check_is_message
from orbitmq.durations import Duration, instant
from orbitmq.errors import NotStoredSafelyError, ValidationError
from orbitmq.message import property_names, sysflag
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.record import decode_record, to_received
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.tasks import is_async
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import CheckTransactionStateRequest, EndTransactionRequest

log = logging.getLogger("orbitmq.client")

END_TIMEOUT_MS = 3000
# Most checks at a time (TransactionMQProducer.checkRequestHoldMax); brokers repeat the others later.
MAX_CHECKS = 2000


class TransactionState(IntEnum):
    """The outcome of the sender's local work; the value is the flag in END_TRANSACTION."""

    UNKNOWN = sysflag.TRANSACTION_NOT
    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK


# RocketMQ's names of the states, for hooks and trace records.
_JAVA_STATES = {
    TransactionState.UNKNOWN: "UNKNOW",
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
}

# Does the sender's local work after the half message is stored, and returns its outcome.
LocalTransaction = Callable[[Message], TransactionState | Awaitable[TransactionState]]
# Returns the outcome of a half message's transaction, for a broker's check.
TransactionCheck = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
# Called with the checking broker's address, its request, and the half message.
AnswerCheck = Callable[[str, CheckTransactionStateRequest, ReceivedMessage], Awaitable[None]]


class TransactionResult(msgspec.Struct, frozen=True):
    """The result of a transaction.

    Attributes:
        sent: the result of the half message's send.
        state: the state sent in END_TRANSACTION; after UNKNOWN the broker checks back.
    """

    sent: SendResult
    state: TransactionState


class Transaction:
    """An open transaction, inside ``async with producer.transaction(message)``.

    Attributes:
        message: a copy of the message; its ``message_id`` is the id that ``check`` receives.
        sent: the result of the half message's send.
        state: the outcome if the block is left without an exception.
    """

    def __init__(self, message: Message, sent: SendResult) -> None:
        self.message = message
        self.sent = sent
        self.state = TransactionState.COMMIT

    def roll_back(self) -> None:
        """Discard the message: no consumer gets it."""
        self.state = TransactionState.ROLLBACK

    def leave_open(self) -> None:
        """Leave the decision to a later ``check``."""
        self.state = TransactionState.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions(ProducerOptions):
    check: TransactionCheck

    def __post_init__(self) -> None:
        ProducerOptions.__post_init__(self)
        if not callable(self.check):
            raise ValidationError(f"check must be a function of the half message, got {self.check!r}")


@refuses_unknown
class TransactionProducer(Producer):
    """A producer of transactions.

    ::

        async def check(message: ReceivedMessage) -> TransactionState:
            paid = await database.is_paid(message.message_id)
            return TransactionState.COMMIT if paid else TransactionState.ROLLBACK

        async with TransactionProducer("shop", check=check) as producer:
            async with producer.transaction(Message("orders", b"4711")) as transaction:
                await database.pay(transaction.message.message_id)

    Args:
        group: the producer group. For a check of an open transaction a broker asks any member of the group.
        check: returns the outcome of a transaction, when a broker has not received it. It gets the half
            message, with the property ``TRANSACTION_CHECK_TIMES``. An exception counts as UNKNOWN, and the
            broker repeats its check, by default after 30 s and 15 times in all. A plain function runs in a
            thread.
        options: as for :class:`~orbitmq.client.producer.producer.Producer`.
    """

    @takes(TransactionOptions)
    def __init__(self, settings: TransactionOptions) -> None:
        self._set_up(settings)
        self._check_transaction = settings.check

    async def start(self) -> None:
        await super().start()
        self._client.shared(TransactionChecks).add(self.group, self._answer_check)

    async def close(self) -> None:
        if self._life.running:
            self._client.shared(TransactionChecks).remove(self.group, self._answer_check)
        await super().close()

    async def send_in_transaction(
        self, message: Message, execute: LocalTransaction, *, timeout: Duration | None = None
    ) -> TransactionResult:
        """Store ``message`` as a half message, which no consumer sees; run ``execute(message)``; commit or
        roll back.

        Args:
            execute: the sender's local work, such as a database transaction. It gets a copy of the message
                whose ``message_id`` is the id that ``check`` receives. A plain function runs in a thread.
            timeout: for sending the half message.

        Returns:
            The outcome of the transaction. If the half message is stored but not safe (its status is not
                SEND_OK), it is rolled back, and ``execute`` is not called.

        Raises:
            ValidationError: as ``send``, or the message has a delay, which RocketMQ's clients would drop.
            SendError: the half message was not stored; ``execute`` was not called.
            Exception: the exception that ``execute`` raised; the broker then calls ``check`` for the outcome.
        """
        shown, sent = await self._begin(message, timeout)
        if sent.status is not SendStatus.SEND_OK:
            return TransactionResult(sent, TransactionState.ROLLBACK)
        try:
            state = await self._call(execute, shown)
        except (Exception, asyncio.CancelledError) as error:
            await self._leave_open(shown, sent, error)
            raise
        await self._end(shown.topic, sent, state)
        return TransactionResult(sent, state)

    @asynccontextmanager
    async def transaction(
        self, message: Message, *, timeout: Duration | None = None
    ) -> AsyncIterator[Transaction]:
        """A transaction as a block: consumers see ``message`` if the block is left without an exception.

        After an exception the outcome is uncertain, so the broker calls ``check``.

        Raises:
            NotStoredSafelyError: the half message is stored, but not as safely as the broker promises; it is
                rolled back, and the block is not entered.
            ValidationError, SendError: as :meth:`send_in_transaction`.
        """
        shown, sent = await self._begin(message, timeout)
        if sent.status is not SendStatus.SEND_OK:
            raise NotStoredSafelyError(f"the half message {sent.message_id} ended with {sent.status.name}")
        under_way = Transaction(shown, sent)
        try:
            yield under_way
        except (Exception, asyncio.CancelledError) as error:
            await self._leave_open(shown, sent, error)
            raise
        await self._end(shown.topic, sent, under_way.state)

    async def _begin(self, message: Message, timeout: Duration | None) -> tuple[Message, SendResult]:
        """Store the half message. If it is stored unsafely, it is rolled back, as in RocketMQ."""
        check_is_message(message)
        message = taken(message)
        if message.delay_level > 0 or message.properties.keys() & property_names.TIMER_PROPERTIES:
            raise ValidationError("a transaction message cannot be delayed")
        half = _copy(
            message, {property_names.TRANSACTION_PREPARED: "true", property_names.PRODUCER_GROUP: self.group}
        )
        # A send with its own timeout is never part of a batch.
        options = SendOptions(timeout_ms=in_ms(timeout) or self._timeout_ms)
        sent = await self._send_taken(half, options)
        if sent.status is not SendStatus.SEND_OK:
            await self._end(half.topic, sent, TransactionState.ROLLBACK)
        added = {property_names.UNIQ_KEY: sent.message_id, property_names.TRANSACTION_ID: sent.transaction_id}
        return _copy(half, added), sent

    async def _leave_open(self, message: Message, sent: SendResult, error: BaseException) -> None:
        text = f"executeLocalTransactionBranch exception: {error!r}"
        await self._end(message.topic, sent, TransactionState.UNKNOWN, text)

    async def _call(self, function: Callable[[Any], Any], message: Message) -> TransactionState:
        if is_async(function):
            result = await function(message)
        else:
            result = await self._client.runtime.threads.run(function, message)
            if inspect.isawaitable(result):
                result = await result
        return TransactionState.UNKNOWN if result is None else TransactionState(result)

    async def _end(
        self, topic: str, sent: SendResult, state: TransactionState, remark: str | None = None
    ) -> None:
        broker, full = sent.queue.broker_name, self._namespace.full(topic)
        host, port, place = parse_offset_message_id(sent.offset_message_id.partition(",")[0])
        request = EndTransactionRequest(
            topic=full,
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=place,
            commit_or_rollback=state,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id or None,
            bname=broker,
        )
        stored_at = f"{host}:{port}"
        # The route may by now name an acting master, which cannot end the transaction: prefer the broker that
        # stored the message.
        known = self._client.remoting.connected(stored_at)
        address = stored_at if known else self._client.master_of(broker, full)
        if address is None:
            log.warning(
                "transaction %s: broker %s is gone, its successor will check the transaction",
                sent.message_id,
                broker,
            )
            return
        await self._tell(address, request, remark)

    async def _tell(self, address: str, request: EndTransactionRequest, remark: str | None = None) -> None:
        """Send END_TRANSACTION one-way, like RocketMQ's clients: if it is lost, the broker checks."""
        command = request.command()
        command.remark = remark
        if self._hooks is not None:
            self._hooks.end_transaction(
                EndTransactionContext(
                    self.group,
                    request.topic or "",
                    request.msg_id or "",
                    request.transaction_id or "",
                    _JAVA_STATES[TransactionState(request.commit_or_rollback)],
                    address,
                    bool(request.from_transaction_check),
                    instant(self._client.runtime.clock.now_ms()),
                )
            )
        try:
            await self._client.remoting.oneway(address, command, END_TIMEOUT_MS)
        except TransportError as error:
            log.warning("transaction %s: %s did not get its outcome: %s", request.msg_id, address, error)

    async def _answer_check(
        self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage
    ) -> None:
        """Send a checking broker the outcome of a transaction."""
        remark, own_topic = None, message.topic
        message.topic = self._namespace.short(message.topic)
        try:
            state = await self._call(self._check_transaction, message)
        except Exception as error:
            log.exception("the check of transaction %s failed", message.message_id)
            state = TransactionState.UNKNOWN
            remark = f"checkLocalTransactionState Exception: {error!r}"
        request = EndTransactionRequest(
            # The header of the check has another topic: Apache's brokers fill in the topic of half messages,
            # while a user has the right to publish to its own topic only.
            topic=own_topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        await self._tell(address, request, remark)


class TransactionChecks:
    """Passes a client's CHECK_TRANSACTION_STATE requests to a producer of the right group."""

    def __init__(self, client: ClientInstance) -> None:
        # Several producers of a group may share the client: any of them answers.
        self._answers: dict[str, list[AnswerCheck]] = {}
        self._client = client
        self._under_way = 0
        client.on_server_request(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    def add(self, group: str, answer: AnswerCheck) -> None:
        """Let this producer answer checks of its group from here on."""
        self._answers.setdefault(group, []).append(answer)

    def remove(self, group: str, answer: AnswerCheck) -> None:
        """Remove this producer. If its start failed, it may never have been added."""
        answers = self._answers.get(group, [])
        if answer in answers:
            answers.remove(answer)

    async def _asked(self, connection: Any, command: Command) -> None:
        header = CheckTransactionStateRequest.from_ext(command.ext)
        try:
            message = to_received(decode_record(command.body), header.bname or "")
        except MessageFormatError as error:
            log.warning(
                "%s checks a transaction whose message cannot be read: %s", connection.remote_address, error
            )
            return
        group = message.properties.get(property_names.PRODUCER_GROUP, "")
        answers = self._answers.get(group)
        if not answers or self._under_way >= MAX_CHECKS:
            reason = "too many are" if answers else f"no producer of group {group} is here"
            log.warning("transaction %s is not checked now: %s", message.message_id, reason)
            return
        self._under_way += 1
        try:
            await answers[-1](connection.remote_address, header, message)
        finally:
            self._under_way -= 1


def _copy(message: Message, more: dict[str, str]) -> Message:
    added = {name: value for name, value in more.items() if value}
    return Message(message.topic, message.body, flag=message.flag, properties={**message.properties, **added})
