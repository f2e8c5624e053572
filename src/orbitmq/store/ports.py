"""The interfaces of the store for the code that builds on it, and the types that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orbitmq.message.record import Record, decode_record, is_blank

if TYPE_CHECKING:
    from orbitmq.runtime import Segment
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.log.appender import Appender
    from orbitmq.store.log.raw import RawLog
    from orbitmq.store.queues.lookup import Lookup
    from orbitmq.store.queues.queues import StoredTopic
    from orbitmq.store.writable import WriteGate


class FilePart(NamedTuple):
    """Bytes of a log file from ``start`` to ``end``, counted from its beginning.

    ``memory`` has the same bytes if they were just written; it is valid until more is put into the log.
    """

    segment: Segment
    start: int
    end: int
    memory: memoryview | None = None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of one file of the commit log. A record (or the blank that ends the file) begins at ``start``.

    Attributes:
        start, end: log offsets. The last record that begins before ``end`` may end behind it; it is written
            in full.
        view: the whole file.
        base: the log offset of its first byte.
    """

    start: int
    end: int
    view: memoryview
    base: int

    @property
    def file_end(self) -> int:
        """The log offset behind the file."""
        return self.base + len(self.view)

    def data(self) -> memoryview:
        """The bytes from ``start`` to ``end``."""
        return self.view[self.start - self.base : self.end - self.base]

    def records(self) -> Iterator[Record]:
        """The records that begin in the piece.

        Raises:
            RecordError: some bytes are not a record.
        """
        at = self.start - self.base
        while at < self.end - self.base and not is_blank(self.view, at):
            record = decode_record(self.view, at)
            yield record
            at += record.total_size

    def behind(self, record: Record) -> int:
        """The log offset behind one of its records."""
        return record.physical_offset + record.total_size


class HotStore(Protocol):
    """The store as the compiled fast path uses it: its inner loops, and the methods that they call.

    Attributes:
        appender, lookup: the inner loops; one event loop owns both.
        write_gate: whether messages are taken.
    """

    appender: Appender
    lookup: Lookup
    write_gate: WriteGate

    @property
    def schedule(self) -> Callable[[], None]:
        """Write the batch when the current iteration of the event loop ends."""
        ...

    @property
    def map_entries(self) -> Callable[[int, int], bool]:
        """Let reads of a slot use the file with the entry of an offset; ``False``: there is no such file."""
        ...

    @property
    def config(self) -> StoreConfig: ...

    def update_clock(self) -> int:
        """Set the store time of messages appended next; returns it, ms."""
        ...

    def make_room(self, reason: int, slot: int) -> None:
        """Make the room that the appender lacks: its answer was NO_ROOM, ROLL or TAIL_FULL.

        Raises:
            StoreClosedError: the disk refused.
        """
        ...

    def find_topic(self, topic: str) -> StoredTopic | None:
        """The slots of a topic's queues; ``None``: the topic was not set."""
        ...


class CopiedLog(Protocol):
    """The log as replication uses it: sent to followers, and written as it arrives from a master.

    The members are those of ``MessageStore``.

    Attributes:
        raw: reads the log's bytes.
    """

    raw: RawLog

    @property
    def config(self) -> StoreConfig: ...

    @property
    def min_commit_log_offset(self) -> int: ...

    @property
    def max_commit_log_offset(self) -> int: ...

    @property
    def received_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    @property
    def flush_error(self) -> BaseException | None: ...

    def in_memory(self, offset: int) -> memoryview | None: ...

    def record_at(self, commit_log_offset: int, *, damaged: bool = False) -> bytes | None: ...

    def on_written(self, waker: Callable[[], None], *, first: bool = False) -> None: ...

    def off_written(self, waker: Callable[[], None]) -> None: ...

    def on_flushed(self, watcher: Callable[[], None]) -> None: ...

    def off_flushed(self, watcher: Callable[[], None]) -> None: ...

    def flush_soon(self, offset: int) -> None: ...

    async def flush(self) -> None: ...

    def check_flush(self) -> None: ...

    def append_raw(self, offset: int, data: bytes | memoryview) -> None: ...

    def refuse_raw(self) -> None: ...

    def drop_partial(self) -> None: ...

    async def truncate(self, to: int) -> None: ...
