"""The spans of records in the log contain the same bytes as copies by a read."""

from __future__ import annotations

import random
import struct

import pytest
from tests.queue_slots import add_slot

from orbitmq.store.filter import PASS_ALL
from orbitmq.store.log.append import pack_host
from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout
from orbitmq.store.queues.lookup import Lookup

SEGMENT = 1 << 16
FIRST_FILE = 4
EVERY = 1 << 30


class Log:
    """Log files filled with records without a gap, in runs of one queue each.

    Attributes:
        slots: the slot of each queue in the table.
        records: the records of each queue, in order.
    """

    def __init__(self, seed: int, *, queues: int, longest_run: int, files: int = 3) -> None:
        draw = random.Random(seed)
        appender = Appender(1 << 17, 8, SEGMENT, pack_host(("10.1.2.3", 10911)))
        self.find = Lookup(appender)
        self.slots = [add_slot(appender, 0, 0) for _ in range(queues)]
        self.records: list[list[bytes]] = [[] for _ in self.slots]
        index: list[list[bytes]] = [[] for _ in self.slots]
        log = bytearray()
        queue, left = 0, 0
        while len(log) < files * SEGMENT:
            if left == 0:
                queue, left = draw.randrange(queues), draw.randint(1, longest_run)
            left -= 1
            room = SEGMENT - len(log) % SEGMENT
            size = draw.randint(100, 1500)
            if room - size < 100:
                size = room  # the next record begins the next file
            place = FIRST_FILE * SEGMENT + len(log)
            head = struct.pack(">i16xqq", size, len(self.records[queue]), place)
            record = head + draw.randbytes(size - len(head))
            index[queue].append(struct.pack(">qiq", place, size, draw.randrange(9)))
            self.records[queue].append(record)
            log += record
        self.files = [memoryview(log)[at : at + SEGMENT] for at in range(0, len(log), SEGMENT)]
        self.find.set_log_maps(FIRST_FILE, self.files)
        for slot, entries in zip(self.slots, index, strict=True):
            self.find.set_entry_map(slot, memoryview(b"".join(entries)), 0, len(entries))

    def both(
        self, queue: int, offset: int, last: int, count: int, size_bytes: int
    ) -> list[tuple[object, ...]]:
        """The results of a read and of a search for spans: status, records, next offset."""
        find, slot = self.find, self.slots[queue]
        out = bytearray(4 * SEGMENT)
        copied = find.read_messages(
            slot, offset, last, count, size_bytes, PASS_ALL.codes, PASS_ALL.count, out
        )
        outcomes: list[tuple[object, ...]] = [
            (copied, bytes(out[: find.read_bytes]), find.read_count, find.read_next, find.entry_physical)
        ]
        shown = find.find_spans(slot, offset, last, count, size_bytes)
        body = b"".join(find.spans())
        assert len(body) == find.read_bytes
        return [*outcomes, (shown, body, find.read_count, find.read_next, find.entry_physical)]


@pytest.mark.parametrize("seed", range(5))
def test_spans_hold_what_a_read_copies(seed: int) -> None:
    draw = random.Random(seed)
    log = Log(seed, queues=3, longest_run=draw.choice([1, 5, 40]))
    spans = set()
    for _ in range(100):
        queue = draw.randrange(3)
        last = len(log.records[queue])
        offset = draw.randrange(last)
        count, size_bytes = draw.choice([1, 7, 32, 60]), draw.choice([1, 3000, 60_000, EVERY])
        copied, shown = log.both(queue, offset, draw.randint(offset + 1, last), count, size_bytes)
        assert shown == copied
        spans.add(len(log.find.spans()))
    assert len(spans) > 3


def test_records_side_by_side_are_one_span_in_each_file() -> None:
    log = Log(1, queues=1, longest_run=1)
    copied, shown = log.both(0, 0, len(log.records[0]), EVERY, EVERY)
    assert shown == copied
    assert shown[1] == b"".join(log.records[0])
    assert [len(span) for span in log.find.spans()] == [SEGMENT] * 3


def test_records_in_too_many_places_are_not_shown() -> None:
    log = Log(2, queues=2, longest_run=1, files=6)
    records, find = log.records[0], log.find
    assert find.find_spans(log.slots[0], 0, len(records), EVERY, EVERY) == layout.READ_SCATTERED
    assert len(find.spans()) == layout.MAX_SPANS
    copied, shown = log.both(0, 0, len(records), layout.MAX_SPANS, EVERY)
    assert shown == copied


def test_what_is_no_record_ends_the_spans_before_it() -> None:
    log = Log(3, queues=1, longest_run=1, files=1)
    at = len(b"".join(log.records[0][:9]))
    log.files[0][at : at + 4] = b"\0\0\1\0"
    copied, shown = log.both(0, 0, 20, 20, EVERY)
    assert shown == copied
    assert shown[0] == layout.READ_FOUND
    assert shown[2:4] == (9, 9)
    copied, shown = log.both(0, 9, 20, 20, EVERY)
    assert shown == copied
    assert shown[0] == layout.READ_BROKEN


def test_a_file_that_is_not_mapped_ends_the_spans_before_it() -> None:
    log = Log(4, queues=1, longest_run=1)
    log.find.set_log_maps(FIRST_FILE, log.files[:1])
    copied, shown = log.both(0, 0, len(log.records[0]), EVERY, EVERY)
    assert shown == copied
    assert shown[1] == bytes(log.files[0])
