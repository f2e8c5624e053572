"""The search for the last record that two logs have in common."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.seeds import seeds

from orbitmq.message.record import Record, blank_record, encode_record
from orbitmq.replication.link.agreement import Agreement, Block, BlockAnswer, Span, doubling
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.hello import BLOCK_BYTES, MAX_MARKS, first_match, mark
from orbitmq.replication.link.record_boundaries import RecordBoundaries
from orbitmq.store.ports import LogPiece

FILE_BYTES = 128 * 1024
BLANK_BYTES = 8


@dataclass
class Log:
    """A log in memory, which begins with a file."""

    file_bytes: int = FILE_BYTES
    begin: int = 0
    data: bytearray = field(default_factory=bytearray)  # from offset 0 on
    spans: list[Span] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.data)

    def copy(self, end: int | None = None, begin: int | None = None) -> Log:
        """A copy of the log up to ``end``, with the files before ``begin`` deleted."""
        end, begin = self.end if end is None else end, self.begin if begin is None else begin
        spans = [span for span in self.spans if begin <= span.begin and span.end <= end]
        return Log(self.file_bytes, begin, self.data[:end], spans)

    def store(self, body: bytes, time_ms: int, *, host: str = "10.0.0.1") -> None:
        def record() -> bytes:
            return encode_record(
                Record(
                    "t",
                    body,
                    physical_offset=self.end,
                    queue_offset=len(self.spans),
                    store_timestamp=time_ms,
                    store_host=(host, 10911),
                )
            )

        left = self.file_bytes - self.end % self.file_bytes
        if len(record()) + BLANK_BYTES > left:
            self.roll()
        self._add(record())

    def roll(self) -> None:
        left = self.file_bytes - self.end % self.file_bytes
        self._add(blank_record(left).ljust(left, b"\0"))

    def _add(self, item: bytes) -> None:
        self.spans.append(Span(self.end, self.end + len(item)))
        self.data += item

    def read(self, at: int, most: int) -> memoryview | None:
        """As ``RawLog.data``."""
        stop = min(at + most, self.end, (at // self.file_bytes + 1) * self.file_bytes)
        return memoryview(self.data)[at:stop] if self.begin <= at < self.end else None

    def piece(self, start: int, end: int) -> LogPiece | None:
        """As ``RawLog.piece``."""
        base, end = start // self.file_bytes * self.file_bytes, min(end, self.end)
        if not self.begin <= start < end:
            return None
        view = memoryview(bytes(self.data[base : base + self.file_bytes]).ljust(self.file_bytes, b"\0"))
        return LogPiece(start, min(end, base + self.file_bytes), view, base)


class Threads:
    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)


class Search:
    """One search.

    Attributes:
        rounds: the number of requests.
        marks: the number of compared blocks.
    """

    def __init__(self, ours: Log, theirs: Log) -> None:
        self.ours, self.theirs = ours, theirs
        self.rounds = self.marks = 0

    async def ask(self, blocks: Sequence[Block]) -> BlockAnswer:
        self.rounds += 1
        self.marks += len(blocks)
        assert len(blocks) <= MAX_MARKS
        assert [*blocks] == sorted(blocks, reverse=True)
        marks = [mark(self.ours.read, *block) for block in blocks]
        theirs = self.theirs
        return BlockAnswer(
            first_match(marks, theirs.read, theirs.begin, theirs.end), theirs.begin, theirs.end
        )

    def find(self) -> int:
        ours = self.ours
        store = SimpleNamespace(raw=ours, config=SimpleNamespace(commit_log_file_bytes=ours.file_bytes))
        borders = RecordBoundaries(cast("Any", SimpleNamespace(threads=Threads())), cast("Any", store))
        return asyncio.run(Agreement(ours.begin, ours.end, ours.file_bytes, borders, self.ask).find())


def common(ours: Log, theirs: Log) -> int:
    """The end of the common part, compared record by record from the first one that both logs have."""
    found = ours.begin
    for span in ours.spans:
        if span.begin < theirs.begin:
            continue
        if span.end > theirs.end or ours.data[span.begin : span.end] != theirs.data[span.begin : span.end]:
            break
        found = span.end
    return found


def find(ours: Log, theirs: Log) -> int:
    search = Search(ours, theirs)
    found = search.find()
    assert found == common(ours, theirs)
    return found


def filled(count: int, size: int, source: random.Random | None = None, file_bytes: int = FILE_BYTES) -> Log:
    """A log of messages of one size, with equal bodies or with random ones."""
    log = Log(file_bytes)
    for number in range(count):
        log.store(source.randbytes(size) if source else bytes(size), number)
    return log


def split(ours: Log, kept: int, added: int, size: int) -> tuple[Log, Log]:
    """A log, and one that has its first records and then others, with bodies of zeros."""
    theirs = ours.copy(ours.spans[kept].begin)
    for number in range(added):
        theirs.store(bytes(size), 10**6 + number)
    return ours, theirs


SIZES = (1, 100, 3000, 5000, 20_000, 60_000)


@pytest.mark.behaviour("HL-15")
@pytest.mark.parametrize("seed", seeds(150))
def test_it_is_that_which_a_search_record_by_record_finds(seed: int) -> None:
    source = random.Random(seed)
    ours = Log()
    # Bodies are equal, also within themselves, or random; sizes stay for a while, so that borders match.
    for number in range(source.choice((1, 3, 30, 300))):
        if number % 20 == 0:
            size = source.choice(SIZES)
        ours.store(bytes(size) if source.random() < 0.7 else source.randbytes(size), number)
    if source.random() < 0.3:
        ours.roll()
    theirs = ours.copy(source.choice([ours.end, *(span.begin for span in ours.spans), *ours_ends(ours)]))
    lost = theirs.end < ours.end
    for number in range(source.choice((0, 1, 30, 300)) if theirs.end or source.random() < 0.5 else 1):
        host = source.choice(("10.0.0.1", "10.0.0.2", "fd00::1"))
        theirs.store(bytes(source.choice((size, size, *SIZES))), 10**6 * lost + number + 1000, host=host)
    for log in (ours, theirs):
        deleted = source.choice((0, 0, 1, 2, 5)) * FILE_BYTES
        if deleted < min(ours.end, theirs.end):
            log.begin = deleted
            log.spans = [span for span in log.spans if span.begin >= deleted]
    search = Search(ours, theirs)
    assert search.find() == common(ours, theirs)
    assert search.rounds <= 7


def ours_ends(log: Log) -> list[int]:
    return [span.end for span in log.spans[-3:]]


@pytest.mark.behaviour("HL-15")
def test_blanks_at_a_border_are_equal_in_other_logs() -> None:
    """Before the border both logs have zeros for longer than a block, and before these different records."""
    ours, theirs = split(filled(13, 20_000, random.Random(1)), 4, 6, 20_000)
    border = FILE_BYTES
    assert ours.data[border - BLOCK_BYTES : border] == theirs.data[border - BLOCK_BYTES : border]
    assert find(ours, theirs) == ours.spans[3].end


@pytest.mark.behaviour("HL-15")
def test_middles_of_equal_bodies_are_equal_in_other_logs() -> None:
    """The search must not set the whole log aside because it finds a common offset inside a record."""
    ours, theirs = split(filled(24, 20_000), 17, 9, 20_000)
    assert find(ours, theirs) == ours.spans[16].end > 2 * FILE_BYTES


def test_the_normal_case_is_one_question_of_one_block() -> None:
    ours = filled(300, 3000)
    for theirs in (ours, split(ours.copy(), 299, 1, 50)[0]):
        search = Search(ours, theirs)
        assert search.find() == ours.end
        assert (search.rounds, search.marks) == (1, 1)


def test_logs_of_one_record() -> None:
    one, other = filled(1, 5000), Log()
    other.store(bytes(5000), 77)
    assert find(one, one.copy()) == one.end
    assert find(one, other) == 0
    other = one.copy()
    other.store(b"more", 5)
    assert find(one, other) == one.end
    assert find(other, one) == one.end


@pytest.mark.parametrize("ahead", [1, 5])
def test_a_record_of_4_mib(ahead: int) -> None:
    size = 4 << 20
    ours = filled(ahead + 3, size, file_bytes=16 << 20)
    ours, theirs = split(ours, ahead + 1, 2, size)
    assert find(ours, theirs) == ours.spans[ahead].end
    assert find(ours, ours.copy()) == ours.end


@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_the_follower_ends_at_a_border(*, rolled: bool, goes_on: bool) -> None:
    """If the master has the blank too, nothing is cut, else the part after the last record."""
    log = filled(6, 20_000)
    ours, theirs = log.copy(), log.copy()
    ours.roll()
    assert ours.end == FILE_BYTES
    if rolled:
        theirs.roll()
    if goes_on:
        theirs.store(bytes(9), 50)
    search = Search(ours, theirs)
    assert search.find() == (FILE_BYTES if rolled else log.end)
    # The last record, and the blank when the master's log is long enough for it.
    assert search.marks == (2 if rolled else 1)


def test_the_master_ends_at_a_border_and_the_follower_goes_on() -> None:
    """The follower's log has all of the master's, with the blank, so it can be copied back."""
    theirs = filled(6, 20_000)
    theirs.roll()
    ours = theirs.copy()
    ours.store(bytes(10), 9)
    assert find(ours, theirs) == theirs.end


def test_the_blank_behind_the_last_common_record_is_larger() -> None:
    """The follower's next record is larger than the rest of the file, the master's is not."""
    log = filled(5, 20_000)
    ours, theirs = log.copy(), log.copy()
    ours.store(bytes(60_000), 20)
    theirs.store(bytes(20), 21)
    assert find(ours, theirs) == log.end


@pytest.mark.parametrize("kept", [6, 90, 100])
def test_the_master_has_deleted_what_the_follower_has(kept: int) -> None:
    """The master lacks the first of many files; the growing distances of the search must not skip the common
    part.
    """
    ours = filled(120, 40_000)
    ours, theirs = split(ours, kept, 60, 40_000)
    begin = ours.spans[kept - 1].begin // FILE_BYTES * FILE_BYTES
    assert find(ours, theirs.copy(begin=begin)) == ours.spans[kept - 1].end
    assert find(ours.copy(begin=begin), theirs) == ours.spans[kept - 1].end


def test_it_deletes_the_beginning_meanwhile() -> None:
    ours, theirs = split(filled(60, 40_000), 30, 9, 10)
    asked = 0

    class Deleting(Search):
        async def ask(self, blocks: Sequence[Block]) -> BlockAnswer:
            nonlocal asked
            asked += 1
            if asked == 2:
                theirs.begin = 5 * FILE_BYTES
            return await super().ask(blocks)

    search = Deleting(ours, theirs)
    with pytest.raises(LinkError, match="its log begins at 655360 by now"):
        search.find()


def test_a_damaged_record_ends_what_is_common() -> None:
    """The records behind it cannot be read; the master has all of them."""
    theirs = filled(30, 20_000)
    ours = theirs.copy()
    ours.store(b"lost", 60)
    ours.data[ours.spans[-3].begin] ^= 1
    assert Search(ours, theirs).find() == ours.spans[-3].begin


def test_the_last_record_has_another_one_s_bytes_in_its_body() -> None:
    """A record in another message's body names another log offset."""
    ours = filled(3, 100)
    ours.store(bytes(ours.data[: ours.spans[1].end]) * 30, 9)
    search = Search(ours, ours.copy())
    assert search.find() == ours.end
    assert search.rounds == 1


def test_small_records_before_a_large_one_are_found_as_fast() -> None:
    """At equal distances most of them would lie between two requested ones, round after round."""
    ours = filled(900, 10)
    ours.store(bytes(30_000), 5)
    for kept in range(0, 900, 89):
        log, theirs = split(ours, kept, 9, 10)
        search = Search(log, theirs)
        assert search.find() == log.spans[kept].begin
        assert search.rounds <= 4
        assert search.marks < 300


@pytest.mark.parametrize(
    ("count", "places"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        (9, [0, 1, 3, 7, 8]),
        (1024, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023]),
    ],
)
def test_files_are_asked_for_at_doubling_distances(count: int, places: list[int]) -> None:
    assert doubling(range(count)) == places


def test_a_terabyte_takes_few_questions() -> None:
    """The log has 1024 files with ten million records each."""
    file_bytes, files = 1 << 30, 1024

    class Huge:
        asked = 0
        walked = 0
        equal = 700 * file_bytes + 123_456_700

        def first(self, file_start: int) -> Span:
            return Span(file_start, file_start + 100)

        def blank(self, at: int) -> None:
            return None

        async def last(self, end: int) -> Span:
            return Span(end - 100, end)

        async def between(self, start: int, end: int, most: int) -> list[Span]:
            self.walked += end - start
            step = -(-(end - start) // (most * 100)) * 100
            return [Span(at, at + 100) for at in range(start + step, end, step)]

        async def ask(self, blocks: Sequence[Block]) -> BlockAnswer:
            self.asked += 1
            assert len(blocks) <= 128
            matched = next((n for n, (start, _) in enumerate(blocks) if start < self.equal), -1)
            return BlockAnswer(matched, 0, files * file_bytes)

    huge = Huge()
    end = files * file_bytes - 24
    assert asyncio.run(Agreement(0, end, file_bytes, huge, huge.ask).find()) == huge.equal
    assert huge.asked <= 9
    assert huge.walked < 1.1 * file_bytes
