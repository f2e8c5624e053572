"""The last steps before a message is stored: hooks that may rewrite or refuse it, then the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from orbitmq.broker.durability import Durability
from orbitmq.broker.messaging.too_large import PropertiesTooLongError
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.store import (
    MessageStore,
    NewMessage,
    PutResult,
    PutStatus,
    RecordTooLongError,
    StoreClosedError,
    UnknownQueueError,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

T = TypeVar("T")

# Gets the message and its properties; returns the message to store, perhaps another one, or raises.
AppendHook = Callable[[NewMessage, Mapping[str, str]], NewMessage]


class MessageAppend:
    """Takes single messages through the append hooks, in order, and then into the store.

    The role is checked when the message is put: if a broker that lost its role while a request waited stored
    the message, its log would differ from that of the next master.
    """

    def __init__(
        self, role: RoleState, store: MessageStore, durability: Durability, counters: Counters
    ) -> None:
        self._role = role
        self._store = store
        self._durability = durability
        self._counters = counters
        self.hooks: list[AppendHook] = []

    def put(self, message: NewMessage, properties: Mapping[str, str]) -> PutResult:
        """Append one message.

        Raises:
            RemotingError: a hook or the store refuses it.
        """
        return self.put_many([self.hooked(message, properties)])

    def hooked(self, message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
        """The message that :meth:`put` would store.

        Raises:
            RemotingError: a hook refuses it.
        """
        for hook in self.hooks:
            message = hook(message, properties)
        return message

    def put_many(self, messages: list[NewMessage]) -> PutResult:
        """Append the items of a batch without hooks: RocketMQ refuses special messages in batches.

        Raises:
            RemotingError: the store refuses them, or this broker takes no messages.
        """
        self._check_role()
        try:
            return self._store.put_many(messages)
        except UnknownQueueError as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        except RecordTooLongError as error:
            self._counters.failed += len(messages)
            raise PropertiesTooLongError(str(error)) from error
        except StoreClosedError as error:
            self._counters.failed += len(messages)
            # The store works, but refused just these messages: their records are too large.
            code = (
                ResponseCode.MESSAGE_ILLEGAL if self._store.accepting else ResponseCode.SERVICE_NOT_AVAILABLE
            )
            raise RemotingError(code, str(error)) from error

    def check_open(self) -> None:
        """Refuse a request while this broker stores no messages, before anything else is checked.

        For requests that change something before their message is put; :meth:`put_many` checks once more.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, with the reason.
        """
        if not self._store.accepting:
            self._counters.failed += 1
            raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, str(self._store.refusal))
        self._check_role()

    def _check_role(self) -> None:
        if not self._role.takes_messages:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker is a {self._role.role.value}: messages are stored by the master of its name",
            )

    def must_wait(self, wait_stored: bool) -> bool:
        """Whether the sender's answer waits for more than the write: for the device, for replicas."""
        return self._durability.holds and wait_stored

    def admit(self) -> None:
        """Refuse a message whose sender would wait in vain; called before the message is put.

        Raises:
            RemotingError: SYSTEM_ERROR, too few replicas are in sync (row QW-07).
        """
        if self._durability.refusal is not None:
            self._counters.failed += 1
            raise RemotingError(ResponseCode.SYSTEM_ERROR, self._durability.refusal)

    def write(self) -> None:
        """Hand messages put so far to the operating system, so that they survive a kill of this process.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused; the write is tried again later.
        """
        try:
            self._store.write()
        except StoreClosedError as error:
            raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error

    async def stored(self, result: PutResult) -> PutStatus:
        """Return when the message is as safe as the broker promises.

        Raises:
            StoreClosedError: a gate failed; whether the message survives is unknown.
        """
        return await self._durability.stored(result.end_offset)

    def when_stored(
        self,
        result: PutResult,
        then: Callable[[T], object],
        argument: T,
        late: Callable[[T, PutStatus], T],
        lost: Callable[[], object],
    ) -> None:
        """Call ``then(argument)`` when the message is as safe as the broker promises.

        Raises:
            StoreClosedError: as :meth:`stored`.
        """
        self._durability.release_or_queue(result.end_offset, then, argument, late, lost)

    async def settled(self, result: PutResult) -> PutStatus:
        """Return when the message is as safe as promised to a sender that waits.

        While too few replicas are in sync, only wait for the device: a service of this broker would wait for
        replicas in vain and delay the messages due next.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
            StoreClosedError: as :meth:`stored`.
        """
        if self.must_wait(True) and self._durability.refusal is None:
            return await self.stored(result)
        self.write()
        if self._durability.refusal is not None:
            await self._store.flush()
        return result.status
