"""The last steps before a message is stored: hooks that may rewrite or refuse it, then the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.message import keys
from orbitmq.store import MessageStore, NewMessage, PutResult, PutStatus, StoreClosedError, UnknownQueueError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# Gets the message and its properties; returns the message to store, maybe another one, or raises.
PutHook = Callable[[NewMessage, Mapping[str, str]], NewMessage]

_TIMER_KEYS = (keys.TIMER_DELAY_SEC, keys.TIMER_DELAY_MS, keys.TIMER_DELIVER_MS)


class Putter:
    """Puts single messages through the hooks, in order, and then into the store."""

    def __init__(self, store: MessageStore, *, sync_flush: bool) -> None:
        self._store = store
        self._sync_flush = sync_flush
        self.hooks: list[PutHook] = []

    def put(self, message: NewMessage, properties: Mapping[str, str]) -> PutResult:
        """Append one message.

        Raises:
            RemotingError: a hook or the store refuses it.
        """
        for hook in self.hooks:
            message = hook(message, properties)
        return self.put_many([message])

    def put_many(self, messages: list[NewMessage]) -> PutResult:
        """Append the items of a batch, which hooks do not see: RocketMQ refuses special messages in batches.

        Raises:
            RemotingError: the store refuses them.
        """
        try:
            return self._store.put_many(messages)
        except UnknownQueueError as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        except StoreClosedError as error:
            # A store that goes on taking messages refused just these: as records they are too large.
            code = (
                ResponseCode.MESSAGE_ILLEGAL if self._store.accepting else ResponseCode.SERVICE_NOT_AVAILABLE
            )
            raise RemotingError(code, str(error)) from error

    def must_wait(self, wait_stored: bool) -> bool:
        """Whether the sender's answer waits for the device."""
        return self._sync_flush and wait_stored

    async def stored(self, result: PutResult) -> PutStatus:
        """Return when the message is as safe as the broker promises."""
        return await self._store.stored(result.end_offset)


def refuse_delay(message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
    """Refuse what needs the schedule service, instead of delivering it at once."""
    level = properties.get(keys.DELAY, "0")
    if level.isdigit() and int(level) > 0:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL, f"property DELAY={level}: this broker has no delayed delivery yet"
        )
    for key in _TIMER_KEYS:
        if key in properties:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {key}={properties[key]}: this broker has no timer messages yet",
            )
    return message


def refuse_transaction(message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
    """Refuse half messages, as a RocketMQ broker with rejectTransactionMessage=true does."""
    if properties.get(keys.TRANSACTION_PREPARED, "").lower() == "true":
        raise RemotingError(
            ResponseCode.NO_PERMISSION,
            "property TRAN_MSG=true: this broker takes no transaction messages yet",
        )
    return message
