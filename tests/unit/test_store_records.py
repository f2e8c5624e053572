"""The one rule set for stored records: it accepts the codec's records, and no truncated or changed one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queue_slots import add_slot

from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, blank_record, encode_record
from orbitmq.message.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.tags import tags_code
from orbitmq.store.log.append import pack_host
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout
from orbitmq.store.queues.dispatch import Dispatcher
from orbitmq.store.queues.lookup import Lookup

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
HOSTS = st.sampled_from([("1.2.3.4", 5), ("2001:db8::1", 9)])


class Dispatched:
    """A dispatcher over one queue (T, 3), whose next record is number 7."""

    def __init__(self, topic: bytes = b"T", *, needs_code: bool = False) -> None:
        self.appender = Appender(1 << 16, 16, 1 << 16, pack_host(("127.0.0.1", 1)))
        self.slot = add_slot(self.appender, 7, 0)
        self.dispatcher = Dispatcher(self.appender)
        self.dispatcher.add(topic, 3, self.slot, needs_code=needs_code)
        self.lookup = Lookup(self.appender)

    def scan(
        self,
        log: bytes,
        *,
        stop: int | None = None,
        have: int | None = None,
        ring: bool = True,
        holes: bool = False,
    ) -> int:
        if ring:
            self.appender.prepare_tail(self.slot)
        size = len(log)
        return self.dispatcher.scan(
            log, 0, size if stop is None else stop, size if have is None else have, 0, True, holes
        )

    def entry(self, offset: int) -> tuple[int, int, int]:
        assert self.lookup.find_entry(self.slot, offset) == layout.READ_FOUND
        return self.lookup.entry_physical, self.lookup.entry_size, self.lookup.entry_tags


def record(offset: int = 7, at: int = 0, **values: object) -> bytes:
    fields = {"topic": "T", "body": b"body", "queue_id": 3, "queue_offset": offset, "physical_offset": at}
    return encode_record(Record(**{**fields, **values}))  # type: ignore[arg-type]


@settings(max_examples=200)
@given(topic=TEXT, body=st.binary(max_size=200), tags=TEXT | st.none(), born=HOSTS, store=HOSTS, other=TEXT)
def test_a_record_of_the_codec_gets_its_entry(
    topic: str, body: bytes, tags: str | None, born: tuple[str, int], store: tuple[str, int], other: str
) -> None:
    properties = {"a": other, **({"TAGS": tags} if tags else {}), "TAGSX": "no", "z": "TAGS"}
    raw = record(
        topic=topic, body=body, properties=encode_properties(properties), born_host=born, store_host=store,
        store_timestamp=12345,
    )  # fmt: skip
    made = Dispatched(topic.encode())
    assert made.scan(raw) == layout.SCAN_DONE
    assert made.dispatcher.stored == 12345
    assert made.entry(7) == (0, len(raw), tags_code(tags))


def test_the_last_of_equal_names_counts_and_a_pair_without_a_value_does_not() -> None:
    made = Dispatched()
    made.scan(record(properties=b"TAGS\x01a\x02TAGS\x01b\x02TAGS\x01\x02"))
    assert made.entry(7)[2] == tags_code("b")


def test_a_cut_record_is_cut_and_a_changed_one_is_refused() -> None:
    raw = record(properties=b"TAGS\x01a\x02")
    log = raw + bytes(100)
    for have in range(len(raw)):
        assert Dispatched().scan(log, have=have, stop=1) == layout.CUT
    body = len(raw) - 4 - 1 - 1 - 2 - 7
    for place, status in [(0, layout.BAD_SIZE), (4, layout.BAD_MAGIC), (28, layout.BAD_PLACE)]:
        bad = bytearray(log)
        bad[place] ^= 0x40
        assert Dispatched().scan(bytes(bad)) == status
    for place, status in [(body, layout.BAD_CRC), (body - 1, layout.BAD_LENGTHS), (8, layout.BAD_CRC)]:
        bad = bytearray(log)
        bad[place] ^= 0x01
        assert Dispatched().scan(bytes(bad)) == status
    reader = RecordReader()
    assert reader.read_at(b"", 0, 0, True) == layout.CUT
    assert reader.read_at(log, -1, -1, True) == layout.CUT
    assert reader.read_at(log, 0, 0, True) == layout.RECORD
    assert (reader.size, reader.queue_id, reader.queue_offset, reader.physical) == (len(raw), 3, 7, 0)


# The range of times and addresses at the start of a record, where a hole is not detected (DU-06).
TIMES_AND_HOSTS_AT, TIMES_AND_HOSTS_END = 40, 84


@pytest.mark.behaviour("DU-06")
@settings(max_examples=400)
@given(st.integers(0, 511), st.binary(max_size=700), TEXT, st.integers(0, 1500), st.data())
def test_a_hole_that_ends_with_a_block_of_the_device_is_seen(
    at: int, body: bytes, topic: str, long: int, data: st.DataObject
) -> None:
    before = b"\x7f" * (at % 100 + 1)
    first = record(6, topic=before.decode(), body=b"x" * at, store_timestamp=1 << 41)
    raw = record(
        at=len(first), topic=topic, body=body, properties=b"a\x01" + b"v" * long + b"\x02",
        store_timestamp=1 << 41,
    )  # fmt: skip
    log = first + raw

    def scanned(log: bytes) -> int:
        made = Dispatched(topic.encode())
        made.dispatcher.add(before, 3, -1, needs_code=False)
        return made.scan(log, holes=True)

    assert scanned(log) == layout.SCAN_DONE
    ends = [*range((len(first) // 512 + 1) * 512, len(log), 512), len(log)]
    end = data.draw(st.sampled_from(ends))
    start = data.draw(st.integers(len(first), end - 1))
    damaged = log[:start] + bytes(end - start) + log[end:]
    lost = [place - len(first) for place in range(start, end) if log[place]]
    if lost and not TIMES_AND_HOSTS_AT <= lost[0] <= lost[-1] < TIMES_AND_HOSTS_END:
        assert scanned(damaged) != layout.SCAN_DONE


def test_a_blank_must_reach_to_the_end_of_its_file() -> None:
    assert Dispatched().scan(blank_record(64) + bytes(56)) == layout.BLANK
    assert Dispatched().scan(blank_record(63) + bytes(56)) == layout.BAD_SIZE


@pytest.mark.parametrize(
    ("flag", "entries"),
    [(0, 1), (TRANSACTION_PREPARED, 0), (TRANSACTION_COMMIT, 1), (TRANSACTION_ROLLBACK, 0)],
)
def test_what_is_not_committed_is_in_no_queue(flag: int, entries: int) -> None:
    made = Dispatched()
    assert made.scan(record(sys_flag=flag)) == layout.SCAN_DONE
    assert made.appender.get(made.slot, layout.Q_NEXT) == 7 + entries
    assert made.dispatcher.records == 1


def test_what_the_dispatcher_asks_for() -> None:
    made = Dispatched(needs_code=True)
    assert made.scan(record(), ring=False) == layout.SCAN_TAIL_FULL
    assert made.scan(record()) == layout.SCAN_NEEDS_CODE
    made.dispatcher.give_code(-5)
    assert made.scan(record()) == layout.SCAN_DONE
    assert made.entry(7)[2] == -5
    assert made.scan(record(9)) == layout.SCAN_AHEAD
    assert made.scan(record(7)) == layout.SCAN_BEHIND
    assert made.scan(record(8, queue_id=4)) == layout.SCAN_NEW_QUEUE
    assert made.scan(record(8, topic="other")) == layout.SCAN_NEW_QUEUE
    made.dispatcher.add(b"other", 3, -1, needs_code=False)
    assert made.scan(record(8, topic="other")) == layout.SCAN_DONE


def test_any_number_of_queues_is_told_apart() -> None:
    made = Dispatched()
    slots = {}
    for number in range(3000):
        topic, queue_id = b"t%d" % (number // 8), number % 8
        slots[topic, queue_id] = slot = add_slot(made.appender, 0, 0)
        made.appender.prepare_tail(slot)
        made.dispatcher.add(topic, queue_id, slot, needs_code=False)
    for (topic, queue_id), slot in slots.items():
        raw = record(0, topic=topic.decode(), queue_id=queue_id)
        assert made.scan(raw) == layout.SCAN_DONE
        assert made.appender.get(slot, layout.Q_NEXT) == 1
