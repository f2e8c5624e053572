"""Finds the last record that two logs have in common, with few requests. No I/O: the caller sends the
requests and reads the log.

A log is only appended to, or cut at its end. Two logs that have the same record at the same place have it
from one broker, which stored it behind all earlier records: up to that record the logs are the same. So the
last common record is found by bisection, with many places in each request. Equal bytes are no strict proof. A
record holds its place in the log, its queue offset, its store time in ms, the address of its broker and the
checksum of its body. To be in two logs that differ before it, it would have to be stored twice, by two
brokers or by one before and after it lost its last records, at the same byte, queue offset and millisecond.

Only whole records count. Blanks at the end of files and the middles of equal bodies are also the same in logs
that differ before them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from orbitmq.message.record_layout import BLANK_BYTES
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.hello import BLOCK_BYTES

PLACES = 128


class Span(NamedTuple):
    """The log offsets of one record, or of the blank at the end of a log file."""

    begin: int
    end: int


Block: TypeAlias = tuple[int, int]


class BlockAnswer(NamedTuple):
    """The other broker's answer.

    Attributes:
        matched: the number of the first block that its log has too; -1: it has none of them.
        begin, end: the bounds of its log.
    """

    matched: int
    begin: int
    end: int


class Records(Protocol):
    """The log of the broker that searches."""

    def first(self, file_start: int) -> Span | None:
        """The record that begins a log file; ``None``: none can be read there."""
        ...

    def blank(self, at: int) -> Span | None:
        """The blank that begins at a place; ``None``: no blank begins there."""
        ...

    async def last(self, end: int) -> Span | None:
        """The last record of a log that ends at ``end``; ``None``: a short search does not find it."""
        ...

    async def between(self, start: int, end: int, most: int) -> list[Span]:
        """Records of one file that begin behind the record at ``start`` and below ``end``, ascending.

        Up to ``most`` of them, spread evenly by their number; all when there are no more. At least one, if
        there is one.
        """
        ...


Ask: TypeAlias = Callable[[Sequence[Block]], Awaitable[BlockAnswer]]


class Agreement:
    """One follower's search: first its last record, then the beginnings of its files, then inside one file.

    Args:
        begin, end: the bounds of the follower's log, bytes; ``end`` is behind a whole record or blank.
        file_bytes: the size of the files of both logs.
        records: reads records of the follower's log.
        ask: sends blocks of the follower's log, the highest first, and returns which of them is the first
            that the other log has too.
    """

    def __init__(self, begin: int, end: int, file_bytes: int, records: Records, ask: Ask) -> None:
        self._begin = begin
        self._end = end
        self._file_bytes = file_bytes
        self._records = records
        self._ask = ask
        # The highest record known to be in both logs.
        self._same: Span | None = None
        # The lowest place at which the logs are known to differ.
        self._other = end
        self._there: BlockAnswer | None = None
        # The later of the two beginnings: below it one of the logs has nothing.
        self._floor = -1

    async def find(self) -> int:
        """Where the log has to end so that all of it is common: behind a record or blank, or at its
        beginning.

        Raises:
            LinkError: the other broker has deleted its oldest log files meanwhile, perhaps those just
                compared.
        """
        last = await self._records.last(self._end)
        await self._compare([last] if last is not None else [])
        if self._same is None:
            await self._search_files()
            await self._search_one_file()
        return await self._behind_same()

    async def _compare(self, spans: Sequence[Span]) -> None:
        """Ask which of these records the other log has, the highest first."""
        self._there = there = await self._ask([block(span) for span in spans])
        if self._floor < 0:
            self._floor = self._border(max(self._begin, there.begin))
        elif there.begin > self._floor:
            raise LinkError(f"its log begins at {there.begin} by now: it has deleted what was to be compared")
        if 0 <= there.matched < len(spans):
            self._same = spans[there.matched]
            spans = spans[: there.matched]
        if spans:
            self._other = spans[-1].begin

    def _border(self, offset: int) -> int:
        """The first border of log files that is not below an offset."""
        return -(-offset // self._file_bytes) * self._file_bytes

    async def _search_files(self) -> None:
        """Find the last file whose first record is common, and the first file whose first record differs."""
        near_end = True
        while files := self._files_between():
            # Records that a master lost are mostly near the end.
            wanted = doubling(files) if near_end else files[:: -(-len(files) // PLACES)]
            near_end = False
            spans = [span for start in wanted if (span := self._records.first(start)) is not None]
            if not spans:
                break
            await self._compare(spans)

    def _files_between(self) -> range:
        """The starts of files whose first records are not compared yet, the last one first."""
        low = self._floor if self._same is None else self._same.begin + self._file_bytes
        return range(self._border(self._other) - self._file_bytes, low - 1, -self._file_bytes)

    async def _search_one_file(self) -> None:
        while self._same is not None:
            spans = await self._records.between(self._same.begin, self._other, PLACES)
            if not spans:
                break
            await self._compare(spans[::-1])

    async def _behind_same(self) -> int:
        """The end of the last common record, or of the blank after it if both logs have that blank."""
        same, there = self._same, self._there
        if same is None or there is None:
            return self._begin
        blank = self._records.blank(same.end)
        if blank is None or blank.end > min(self._end, there.end):
            return same.end
        # A blank alone proves nothing; behind a common record, equal size and mark make it the same.
        answer = await self._ask([(blank.begin, blank.begin + BLANK_BYTES)])
        return blank.end if answer.matched == 0 else same.end


def block(span: Span) -> Block:
    """The bytes of a record that are compared: its head, whatever the record's size."""
    return span.begin, min(span.end, span.begin + BLOCK_BYTES)


def doubling(files: range) -> list[int]:
    """The first of many offsets, then each at twice the distance, and the last one."""
    count = len(files)
    wanted = [files[(1 << power) - 1] for power in range(count.bit_length()) if 1 << power < count]
    return [*wanted, files[-1]]
