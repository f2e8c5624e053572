"""Where services put the messages that they deliver: delayed messages, timers, half messages.

A master puts messages into its own store. A broker that acts for its master may not write to its store: it
delivers to the master of another group of brokers (RocketMQ's EscapeBridge), if an extension has attached
:class:`Elsewhere`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.role import RoleState
from orbitmq.store import MessageStore, NewMessage, PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# A refusal with one of these codes is temporary and not about the message: try again later.
_NOT_NOW = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})


class PendingDelivery(Protocol):
    """A message that was handed to the sink.

    Attributes:
        end: the place behind its record in this broker's log; 0: the message is not there.
    """

    @property
    def end(self) -> int: ...

    @property
    def stored(self) -> bool:
        """Whether the delivery survives a crash of this broker."""
        ...

    async def settled(self) -> PutStatus:
        """Return when the message is as safe as promised to a sender that waits.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused, or this broker no longer delivers.
            StoreClosedError: whether the message survives is unknown.
        """
        ...


class Elsewhere(Protocol):
    """Sends messages to the masters of other groups of brokers."""

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> PendingDelivery:
        """Begin to send the message to another master; the send is retried until a master has stored it.

        Args:
            on_stored: called when the message is stored there.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, no message can be sent; SYSTEM_BUSY, too many are being
                sent.
        """
        ...

    async def settle(self) -> None:
        """Return when no message is being sent any more; sends that take too long are cancelled."""
        ...


class _InOwnStore:
    """A message in this broker's own store."""

    __slots__ = ("_append", "_result", "_store")

    def __init__(self, append: MessageAppend, store: MessageStore, result: PutResult) -> None:
        self._append = append
        self._store = store
        self._result = result

    @property
    def end(self) -> int:
        return self._result.end_offset

    @property
    def stored(self) -> bool:
        return self._store.flushed_offset >= self._result.end_offset

    async def settled(self) -> PutStatus:
        return await self._append.settled(self._result)


class DeliverySink:
    """Puts messages as they are, without the append hooks, which have run before.

    Attributes:
        elsewhere: where messages go while this broker acts for its master; ``None``: they wait.
    """

    def __init__(self, role: RoleState, append: MessageAppend, store: MessageStore) -> None:
        self._role = role
        self._append = append
        self._store = store
        self._listeners: list[Callable[[], object]] = []
        self.elsewhere: Elsewhere | None = None

    @property
    def own(self) -> bool:
        """Whether messages are put into this broker's own store."""
        return self._role.takes_messages

    @property
    def waits(self) -> bool:
        """Whether a service should wait for some messages before the next: own store with SYNC_FLUSH."""
        return self.own and self._append.must_wait(True)

    @property
    def leads(self) -> bool:
        """Whether this broker has the right to deliver now."""
        return self._role.leads

    def on_stored(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` whenever a message has been stored elsewhere.

        Not called for messages in the own store: use :attr:`PendingDelivery.stored`.
        """
        self._listeners.append(listener)

    def hand(self, message: NewMessage, properties: Mapping[str, str]) -> PendingDelivery:
        """Put a message without waiting for it.

        Args:
            properties: the message's, decoded.

        Raises:
            RemotingError: the message is refused; :func:`is_not_now`: whether a later try can succeed.
        """
        if not self._role.leads:
            # Checked for each message: a process that was frozen may have lost the right meanwhile.
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"a broker that is {self._role.role.value} and has no right to lead delivers nothing",
            )
        if self.own:
            return _InOwnStore(self._append, self._store, self._append.put_many([message]))
        if self.elsewhere is None:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"a broker that is {self._role.role.value} puts nothing into its store",
            )
        return self.elsewhere.hand(message, properties, self._stored_elsewhere)

    async def put(self, message: NewMessage, properties: Mapping[str, str]) -> PutStatus:
        """Put a message and return when it is stored.

        Raises: as :meth:`hand` and :meth:`PendingDelivery.settled`.
        """
        return await self.hand(message, properties).settled()

    async def settle(self) -> None:
        """Return when all messages handed over are stored, or were cancelled because they took too long."""
        if self.elsewhere is not None:
            await self.elsewhere.settle()
        # If the disk refuses, the messages stay unsettled, as PendingDelivery.stored shows.
        with contextlib.suppress(RemotingError):
            self._append.write()
        await self._store.flush()

    def _stored_elsewhere(self) -> None:
        for listener in self._listeners:
            listener()


def is_not_now(error: RemotingError) -> bool:
    """Whether a message refused with this error may be taken later."""
    return error.code in _NOT_NOW
