"""Fences for writers that take over: unread requests of an earlier attempt are not stored any more.

A writer such as the Spark sink checks after a failure which messages are stored, and sends the rest. Requests
of the previous attempt may wait unread, in the socket of a broker that was frozen; if they were stored after
that check, messages would be doubled. So a writer names its attempt with each connection, and fences before
it checks: the connections of lower epochs are closed with everything unread in them, and none is bound again.
RocketMQ has no such fences.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbitmq.broker.change_feed import WRITERS, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted
from orbitmq.broker.role import RoleState
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# The number of fences kept: those raised longest ago are forgotten.
MAX_FENCES = 10_000
MAX_NAME_CHARS = 255
MAX_PARTS = 65_536


class Epoch(NamedTuple):
    """One attempt of a writer; see :class:`orbitmq.wire.headers.BindWriterRequest`."""

    run: int
    part: int
    turn: int

    def is_before(self, other: Epoch) -> bool:
        """Whether ``other`` ends this attempt: a later run, or a later turn of the same part."""
        if self.run != other.run:
            return self.run < other.run
        return self.part == other.part and self.turn < other.turn


@dataclass(slots=True)
class WriterFence:
    """The attempts that may still write under one name: this run from these turns on, and later runs."""

    run: int
    turns: dict[int, int] = field(default_factory=dict)

    def refuses(self, epoch: Epoch) -> bool:
        """Whether an attempt was ended."""
        return epoch.is_before(Epoch(self.run, epoch.part, self.turns.get(epoch.part, epoch.turn)))

    def raised(self, epoch: Epoch) -> WriterFence:
        """The fence raised to refuse everything before ``epoch`` too, but not ``epoch`` itself."""
        turns = dict(self.turns) if epoch.run == self.run else {}
        turns[epoch.part] = epoch.turn
        return WriterFence(epoch.run, turns)

    def plain(self) -> dict[str, Any]:
        """The fence in plain JSON types."""
        return {"run": self.run, "turns": {str(part): turn for part, turn in self.turns.items()}}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> WriterFence:
        """The fence from JSON."""
        return WriterFence(int(plain["run"]), {int(part): int(turn) for part, turn in plain["turns"].items()})


class Writers(Component):
    """The bound connections, and the fences, kept in ``config/writerFences.json``.

    Args:
        written: returns when the changes of a table are on the device.
    """

    name = "writers"

    def __init__(
        self, role: RoleState, feed: ChangeFeed, written: Callable[[str], Awaitable[object]]
    ) -> None:
        self._role = role
        self._feed = feed
        self._written = written
        self._fences: dict[str, WriterFence] = {}
        self._bound: dict[ServerConnection, tuple[str, Epoch]] = {}
        feed.register(
            WRITERS,
            FedTable(
                WriterFence.plain,
                self._apply,
                items=lambda: list(self._fences.items()),
                is_news=self._is_later,
            ),
        )

    def bind(self, connection: ServerConnection, writer: str, epoch: Epoch) -> None:
        """Bind a connection to an attempt until it closes.

        Raises:
            RemotingError: ILLEGAL_OPERATION, the attempt was ended; INVALID_PARAMETER, the name is too long.
        """
        self._check(writer, epoch)
        self._bound[connection] = writer, epoch

    async def fence(self, writer: str, epoch: Epoch) -> None:
        """End the attempts before this one: their messages are stored by now, or never will be.

        Raises:
            RemotingError: as :meth:`bind`; INVALID_PARAMETER, too many parts; SERVICE_NOT_AVAILABLE, this
                broker takes no messages, or the disk refused.
        """
        self._check(writer, epoch)
        self._check_role()
        known = self._fences.get(writer) or WriterFence(epoch.run)
        if len(known.turns) >= MAX_PARTS and epoch.run == known.run and epoch.part not in known.turns:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"writer {writer} has more than {MAX_PARTS} parts"
            )
        self._fences.pop(writer, None)
        self._fences[writer] = known.raised(epoch)
        self._feed.changed(WRITERS, writer, self._fences[writer])
        if len(self._fences) > MAX_FENCES:
            oldest = next(iter(self._fences))
            del self._fences[oldest]
            self._feed.changed(WRITERS, oldest, None)
        for connection, (name, bound) in list(self._bound.items()):
            if name == writer and bound.is_before(epoch):
                connection.abort()
                self.connection_closed(connection)
        await self._written(WRITERS)
        self._check_role()  # after a change of role the present master may lack the fence

    def connection_closed(self, connection: ServerConnection) -> None:
        """End the binding of a connection that has closed."""
        self._bound.pop(connection, None)

    def _check_role(self) -> None:
        if not self._role.takes_messages:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker is a {self._role.role.value}: writers are fenced at the master of its name",
            )

    def _check(self, writer: str, epoch: Epoch) -> None:
        if not 0 < len(writer) <= MAX_NAME_CHARS:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"writer has {len(writer)} characters, expected 1 to {MAX_NAME_CHARS}",
            )
        fence = self._fences.get(writer)
        if fence is not None and fence.refuses(epoch):
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION,
                f"writer {writer}: run {epoch.run}, part {epoch.part}, turn {epoch.turn} was ended by "
                f"run {fence.run}, turn {fence.turns.get(epoch.part, 0)}, which took over",
            )

    # -- the table -------------------------------------------------------------------------------------

    def _apply(self, writer: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._fences.pop(writer, None)
            self._feed.changed(WRITERS, writer, None)
        else:
            self._fences[writer] = WriterFence.from_plain(value)
            self._feed.changed(WRITERS, writer, self._fences[writer])

    def _is_later(self, writer: str, value: Mapping[str, Any] | None) -> bool:
        known = self._fences.get(writer)
        return value is not None and (known is None or WriterFence.from_plain(value).run > known.run)

    def tables(self) -> Sequence[Table]:
        return (Table(WRITERS, self),)

    def file_text(self) -> Iterator[str]:
        """``writerFences.json``, piece by piece, in the order in which the fences were last raised."""
        entries = [
            (quoted(writer), pretty_value(fence.plain(), "\n\t\t")) for writer, fence in self._fences.items()
        ]
        return file_text([("writerFences", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``writerFences.json``."""
        for writer, plain in (content.get("writerFences") or {}).items():
            self._fences[writer] = WriterFence.from_plain(plain)
