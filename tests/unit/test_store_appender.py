"""The appender's records are those of the record codec; its rings; lookups that find bad indexes."""

from __future__ import annotations

import random
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queue_slots import add_slot

from orbitmq.message import record_layout
from orbitmq.message.octets import crc32_of
from orbitmq.message.record import Record, encode_record
from orbitmq.store.filter import PASS_ALL, MessageFilter
from orbitmq.store.log.append import pack_host
from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout
from orbitmq.store.queues.lookup import Lookup

STORE_HOST = ("10.1.2.3", 10911)
SEGMENT = 1 << 16
HOSTS = st.sampled_from([("1.2.3.4", 5), ("255.255.255.255", 65535), ("2001:db8::1", 9), ("::", 0)])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

QUEUE_ID = 3


def appender(host: tuple[str, int] = STORE_HOST, *, batch: int = 1 << 17, tail: int = 8) -> Appender:
    made = Appender(batch, tail, SEGMENT, pack_host(host))
    made.now_ms = 1_700_000_000_123
    made.start_batch(4 * SEGMENT + 100, 5 * SEGMENT)
    return made


def row_of(made: Appender, next_offset: int = 0) -> int:
    slot = add_slot(made, next_offset, 0)
    made.set(slot, layout.Q_ID, QUEUE_ID)
    made.prepare_tail(slot)
    return slot


def append(made: Appender, slot: int, body: bytes = b"body", tags_code: int = 0) -> int:
    return made.append_message(
        slot, QUEUE_ID, 0, 0, 1, pack_host(("1.2.3.4", 5)), 0, 0, body, b"T", b"", tags_code
    )


@settings(max_examples=150)
@given(
    topic=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=90)
    | st.sampled_from(["t" * 126, "t" * 127, "t" * 128, "t" * 255, "t" * 300]),
    body=st.binary(max_size=400),
    properties=st.binary(max_size=300),
    numbers=st.tuples(INT32, INT32, INT32, INT64, INT32, INT64),
    hosts=st.tuples(HOSTS, HOSTS),
)
def test_a_record_is_that_of_the_codec(
    topic: str,
    body: bytes,
    properties: bytes,
    numbers: tuple[int, int, int, int, int, int],
    hosts: tuple[tuple[str, int], tuple[str, int]],
) -> None:
    queue_id, flag, sys_flag, born, reconsumed, prepared = numbers
    made = appender(hosts[1])
    slot = row_of(made, 41)
    name = topic.encode()
    physical = made.append_message(
        slot,
        queue_id,
        flag,
        sys_flag,
        born,
        pack_host(hosts[0]),
        reconsumed,
        prepared,
        body,
        name,
        properties,
        0,
    )
    assert physical == 4 * SEGMENT + 100
    # Two bits give the length of the hosts; they follow the hosts, whatever flags the client sent.
    wanted = encode_record(
        Record(
            topic, body, properties, queue_id, flag, 41, physical, sys_flag & ~0x30, born, hosts[0],
            made.now_ms, hosts[1], reconsumed, prepared,
        )
    )  # fmt: skip
    assert bytes(made.batch[: made.batch_used]) == wanted
    assert made.record_bytes(len(body), len(name), len(properties), len(pack_host(hosts[0]))) == len(wanted)


def test_checksums_are_those_of_zlib() -> None:
    draw = random.Random(1)
    for length in [*range(301), 4096, 99_999]:
        data = draw.randbytes(length)
        assert crc32_of(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_room_answers() -> None:
    made = appender(batch=2000, tail=3)
    slot = add_slot(made, 0, 0)
    assert append(made, slot) == layout.TAIL_FULL
    made.prepare_tail(slot)
    for offset in range(3):
        assert append(made, slot) > 0
        assert made.get(slot, layout.Q_NEXT) == offset + 1
    assert append(made, slot) == layout.TAIL_FULL
    made.set(slot, layout.Q_SAVED, 2)
    assert append(made, slot, b"x" * 5000) == layout.NO_ROOM
    used = made.batch_used
    made.file_end = made.batch_base + used + made.record_bytes(4, 1, 0, 8) + layout.END_OF_FILE_RESERVE - 1
    assert append(made, slot) == layout.ROLL
    made.file_end += 1
    assert append(made, slot) == made.batch_base + used


def test_the_ring_keeps_the_newest_entries_of_each_queue() -> None:
    made = appender(tail=4)
    find = Lookup(made)
    slots = [row_of(made, 0), row_of(made, 1000)]
    placed: dict[tuple[int, int], int] = {}
    for step in range(20):
        for slot, first in zip(slots, (0, 1000), strict=True):
            made.set(slot, layout.Q_SAVED, made.get(slot, layout.Q_NEXT))
            placed[slot, first + step] = append(made, slot, b"b" * step, tags_code=-step)
    for slot, first in zip(slots, (0, 1000), strict=True):
        for step in range(20):
            found = find.find_entry(slot, first + step)
            if step < 16:
                assert (found, find.need) == (layout.READ_NEED_ENTRIES, first + step)
            else:
                assert found == layout.READ_FOUND
                assert (find.entry_physical, find.entry_tags) == (placed[slot, first + step], -step)
        entries = made.export_entries(slot, first + 16, first + 20)
        assert [entry[0] for entry in struct.iter_unpack(">qiq", entries)] == [
            placed[slot, first + step] for step in range(16, 20)
        ]
    assert made.export_entries(slots[0], 5, 5) == b""
    assert made.publish() == []


def test_only_watched_queues_are_told_and_each_once() -> None:
    made = appender(tail=600)
    slots = [row_of(made) for _ in range(100)]
    for slot in slots[::2]:
        made.set(slot, layout.Q_WATCHED, 1)
    for slot in [*slots, *slots]:
        append(made, slot)
    assert made.publish() == slots[::2]
    assert made.publish() == []
    assert made.get(slots[7], layout.Q_VISIBLE) == 2


@settings(max_examples=60)
@given(st.binary(min_size=20, max_size=20), st.integers(0, 3))
def test_an_index_entry_of_garbage_is_no_record(entry: bytes, seed: int) -> None:
    log = random.Random(seed).randbytes(SEGMENT) if seed else bytes(SEGMENT)
    made = appender()
    find = Lookup(made)
    slot = add_slot(made, 1, 0)
    find.set_log_maps(4, [memoryview(log)])
    find.set_entry_map(slot, memoryview(entry), 0, 1)
    status = find.read_messages(slot, 0, 1, 32, 1000, PASS_ALL.codes, PASS_ALL.count, bytearray(1 << 16))
    physical, size, _ = struct.unpack(">qiq", entry)
    if status == layout.READ_FOUND:
        at = physical - 4 * SEGMENT
        assert struct.unpack_from(">i", log, at)[0] == size
    else:
        assert status in (layout.READ_BROKEN, layout.READ_NEED_LOG, layout.READ_NO_SPACE)


@pytest.mark.parametrize("size", [-1, 0, 74, 75, SEGMENT, SEGMENT + 1, 2**31 - 1])
@pytest.mark.parametrize("physical", [-1, 0, 4 * SEGMENT, 5 * SEGMENT - 4, 5 * SEGMENT, 2**63 - 1, -(2**63)])
def test_an_index_entry_that_points_anywhere(physical: int, size: int) -> None:
    made = appender()
    find = Lookup(made)
    slot = add_slot(made, 1, 0)
    log = bytearray(SEGMENT)
    if physical == 4 * SEGMENT and size > 0:
        struct.pack_into(">i", log, 0, size)
        struct.pack_into(">q", log, record_layout.PHYSICAL_OFFSET_AT, physical)
    find.set_log_maps(4, [memoryview(log)])
    find.set_entry_map(slot, memoryview(struct.pack(">qiq", physical, size, 0)), 0, 1)
    out = bytearray(1000)
    status = find.read_messages(slot, 0, 1, 32, 1000, PASS_ALL.codes, PASS_ALL.count, out)
    good = physical == 4 * SEGMENT and size == 75
    assert (status == layout.READ_FOUND) == good
    assert len(out) == 1000


def test_maps_that_are_too_short_are_refused() -> None:
    find = Lookup(appender())
    with pytest.raises(ValueError, match="log file"):
        find.set_log_maps(4, [memoryview(bytes(SEGMENT - 1))])
    with pytest.raises(ValueError, match="slot 0"):
        find.set_entry_map(0, memoryview(bytes(20)), 0, 1)
    made = appender()
    find = Lookup(made)
    slot = add_slot(made, 0, 0)
    with pytest.raises(ValueError, match="entries"):
        find.set_entry_map(slot, memoryview(bytes(39)), 0, 2)


@pytest.mark.parametrize("count", [0, 1, 1024, 5000])
def test_tags_are_found_among_any_number(count: int) -> None:
    made = appender(tail=64)
    find = Lookup(made)
    slot = row_of(made)
    for code in (-5, 0, 3, 2**31 - 1, -(2**31), 2 * count):
        append(made, slot, tags_code=code)
    log = bytearray(SEGMENT)
    log[100 : 100 + made.batch_used] = made.batch[: made.batch_used]
    find.set_log_maps(4, [memoryview(log)])
    made.publish()
    wanted = MessageFilter([-5, *range(1, 2 * count, 2)])
    status = find.read_messages(slot, 0, 6, 32, 1000, wanted.codes, wanted.count, bytearray(2000))
    assert status == layout.READ_FOUND
    assert find.read_count == (2 if 3 in wanted.codes[:-1] else 1)


@pytest.mark.parametrize("wanted", [PASS_ALL, MessageFilter([0])])
def test_a_read_goes_from_the_map_on_to_the_ring(wanted: MessageFilter) -> None:
    made = appender(tail=64)
    find = Lookup(made)
    slot = row_of(made)
    places = []
    for number in range(100):
        made.set(slot, layout.Q_SAVED, number)
        places.append(append(made, slot, b"%d" % number, tags_code=number % 3))
    saved = 100 - made.get(slot, layout.Q_RING) + 1
    assert 32 < saved < 98
    sizes = [b - a for a, b in pairwise([*places, made.batch_base + made.batch_used])]
    log = bytearray(SEGMENT)
    log[100 : 100 + made.batch_used] = made.batch[: made.batch_used]
    find.set_log_maps(4, [memoryview(log)])
    entries = zip(places[:saved], sizes[:saved], range(saved), strict=True)
    mapped = b"".join(struct.pack(">qiq", place, size, number % 3) for place, size, number in entries)
    find.set_entry_map(slot, memoryview(mapped), 0, saved)
    out = bytearray(SEGMENT)
    status = find.read_messages(slot, 5, 98, 1000, SEGMENT, wanted.codes, wanted.count, out)
    assert (status, find.read_next) == (layout.READ_FOUND, 98)
    offsets = [number for number in range(5, 98) if wanted.passes_all or number % 3 == 0]
    records = [bytes(log[places[n] - 4 * SEGMENT :][: sizes[n]]) for n in offsets]
    assert bytes(out[: find.read_bytes]) == b"".join(records)
    few = find.read_messages(slot, 5, 98, 7, SEGMENT, wanted.codes, wanted.count, out)
    assert (few, find.read_count, find.read_next) == (layout.READ_FOUND, 7, offsets[6] + 1)


def test_a_log_that_was_entered_is_left_when_the_maps_change() -> None:
    made = appender()
    find = Lookup(made)
    slot = row_of(made)
    append(made, slot)
    made.publish()
    log = bytearray(SEGMENT)
    log[100 : 100 + made.batch_used] = made.batch[: made.batch_used]
    find.set_log_maps(4, [memoryview(log)])
    out = bytearray(1000)
    read = (slot, 0, 1, 32, 1000, PASS_ALL.codes, PASS_ALL.count, out)
    assert find.read_messages(*read) == layout.READ_FOUND
    find.set_log_maps(5, [memoryview(log)])
    assert find.read_messages(*read) == layout.READ_NEED_LOG


def test_only_queues_that_got_messages_are_counted() -> None:
    made = appender()
    slots = [row_of(made, next_offset) for next_offset in (7, 0, 3)]
    assert made.take_grown() == []
    for slot in (slots[0], slots[0], slots[2]):
        append(made, slot)
    assert made.take_grown() == []  # no record is visible yet
    made.publish()
    append(made, slots[2])
    made.publish()
    assert made.take_grown() == [(slots[0], 2), (slots[2], 2)]
    assert made.take_grown() == []
    append(made, slots[1])
    made.publish()
    made.reset_slot(slots[1], 0, 0)
    made.prepare_tail(slots[1])
    append(made, slots[1])
    made.publish()
    assert made.take_grown() == [(slots[1], 1)]
