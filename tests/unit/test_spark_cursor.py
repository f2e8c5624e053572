"""The ranges of the next pulls, computed without any broker."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.spark.pulling.cursor import PULL_BYTES, Cursor, Part, PartSize
from orbitmq.spark.pulling.ranges import QueueRange

QUEUE = MessageQueue("t", "broker-a", 0)


def records(low: int, high: int, size: int = 10) -> bytes:
    return b"".join(encode_record(Record("t", bytes(size), queue_offset=n)) for n in range(low, high))


def test_the_first_answer_shows_how_much_a_broker_gives() -> None:
    cursor = Cursor(QueueRange(QUEUE, 0, 5000), PartSize(1024, strict=True), strict=True)
    first = cursor.next_part()
    assert first == Part(0, 1024, 1024)
    assert cursor.next_part() is None
    assert cursor.found(first, records(0, 32), 32) is None
    # The rest of the first part comes in parts that fit, then the remaining range.
    parts = [cursor.next_part() for _ in range(33)]
    assert parts[0] == Part(32, 64, 32)
    assert parts[30] == Part(992, 1024, 32)
    assert parts[31] == Part(1024, 1056, 32)


def test_parts_follow_the_size_of_messages_both_ways() -> None:
    size = PartSize(1024, strict=True)
    size.answered(Part(0, 1024, 1024), 400, 400, PULL_BYTES - 100)
    assert size.step == 350  # a little less than arrived, since sizes vary
    size.answered(Part(400, 750, 350), 401, 1, 4 << 20)
    assert size.step == 1
    for step in (2, 4, 8, 16):
        size.answered(Part(0, size.step, size.step), size.step, size.step, 100 * size.step)
        assert size.step == step
    size.answered(Part(0, 16, 16), 16, 16, PULL_BYTES - 100)
    assert size.step == 16


def test_a_filtered_part_asks_for_as_much_as_the_filter_leaves() -> None:
    size = PartSize(1024, strict=False)
    assert (size.step, size.limit) == (2048, 32)
    part = Part(0, 2048, 32)
    for _ in range(20):
        # One message of 1 KiB in a hundred matches, and the broker searches the whole requested range.
        size.answered(part, part.high, (part.high - part.low) // 100, (part.high - part.low) // 100 * 1024)
        part = Part(0, size.step, size.limit)
    assert 20_000 < size.step < 30_000
    assert size.step // 100 <= size.limit <= size.step // 100 + 20
    size.answered(part, 800, 8, 8192)
    assert size.step == 800  # a Java broker searches no more than 800 entries at a time


def test_a_part_for_which_nothing_came_is_asked_for_again_first() -> None:
    size = PartSize(32, strict=True)
    size.answered(Part(0, 32, 32), 32, 32, PULL_BYTES)
    cursor = Cursor(QueueRange(QUEUE, 0, 96), size, strict=True)
    first, second = cursor.next_part(), cursor.next_part()
    assert first is not None
    assert second is not None
    assert cursor.is_next(first)
    cursor.found(second, records(32, 64), 64)
    assert list(cursor.ready()) == []
    assert cursor.held_bytes > 0
    cursor.retry(first)
    assert cursor.next_part() == first
    cursor.found(first, records(0, 32), 32)
    assert [count for _, count in cursor.ready()] == [32, 32]
    assert cursor.held_bytes == 0
    assert not cursor.is_done
