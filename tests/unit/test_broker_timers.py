"""The parts of timers that work without a broker: wheel, units, timer log, progress, forms of messages."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.feeds import follow

from orbitmq.broker.change_feed import TIMERS, ChangeFeed, FeedEntry
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.delivered import ROLLED, TIMER, LoggedDelivery
from orbitmq.broker.timers import forms, units
from orbitmq.broker.timers.already_delivered import NEVER_MS, AlreadyDelivered
from orbitmq.broker.timers.check_file import CheckFile
from orbitmq.broker.timers.hand_over import take_out
from orbitmq.broker.timers.placing import place_of
from orbitmq.broker.timers.progress import (
    FILE_BYTES,
    Check,
    TimerProgress,
    all_of,
    check_of,
    decode_file,
    due_of,
    encode_file,
    first_slot_left,
    mark,
)
from orbitmq.broker.timers.progress_table import ProgressTable
from orbitmq.broker.timers.timer_log import TimerLog
from orbitmq.broker.timers.units import Unit, roll_ms
from orbitmq.broker.timers.wheel import NONE, Wheel
from orbitmq.message.record import Record
from orbitmq.runtime import system_runtime
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.topic import DataVersion

NOW = 1_700_000_000_123
HOUR_MS = 3_600_000


# -- the wheel -------------------------------------------------------------------------------------------


def test_a_slot_names_its_newest_unit() -> None:
    wheel = Wheel()
    assert wheel.next_slot() is None
    assert wheel.add(7000, 0) == NONE
    assert wheel.add(7000, 52) == 0
    assert wheel.add(65, 104) == NONE
    assert wheel.add(7000, 156, -1) == 52
    assert [*wheel.slots()] == [(65, 104, 1), (7000, 156, 1)]
    assert (wheel.number(7000), wheel.last(7000), wheel.last(7001)) == (1, 156, NONE)
    assert wheel.next_slot() == 65
    assert wheel.take(65) == 104
    assert wheel.take(65) == NONE
    assert wheel.next_slot() == 7000
    assert wheel.take(7000) == 156
    assert wheel.next_slot() is None
    assert [*wheel.slots()] == []


@given(st.lists(st.tuples(st.integers(0, 500), st.booleans())))
def test_slots_come_in_the_order_of_time(steps: list[tuple[int, bool]]) -> None:
    wheel, expected = Wheel(), {}
    for position, (slot, take) in enumerate(steps):
        first = wheel.next_slot()
        assert first == min(expected, default=None)
        if take and first is not None:
            assert wheel.take(first) == expected.pop(first)
        else:
            assert wheel.add(slot, position) == expected.get(slot, NONE)
            expected[slot] = position


# -- units and the timer log -----------------------------------------------------------------------------


def java_unit(
    below: int, magic: int, written: int, delay: int, physical: int, size: int, hashed: int
) -> bytes:
    """A unit as TimerMessageStore.doEnqueue puts it into its buffer."""
    return b"".join(
        (
            struct.pack(">i", 52),
            struct.pack(">q", below),
            struct.pack(">i", magic),
            struct.pack(">q", written),
            struct.pack(">i", delay),
            struct.pack(">q", physical),
            struct.pack(">i", size),
            struct.pack(">i", hashed),
            struct.pack(">q", 0),
        )
    )


def test_a_unit_has_the_bytes_of_apache() -> None:
    out = NOW // 1000 * 1000 + 60_000
    ours = units.unit_bytes(-1, 1, NOW, out, 4711, 215, -99, units.reserved_bytes(377, 0xDEADBEEF))
    assert ours[:44] == java_unit(-1, 1, NOW, out - NOW, 4711, 215, -99)[:44]
    unit = Unit(*units.UNIT.unpack(ours))
    assert (unit.valid, unit.out_ms, unit.physical) == (True, out, 4711)
    assert units.due_ms(unit.out_ms, unit.extra) == out + 377
    assert units.hash_of(unit.extra) == 0xDEADBEEF
    java = Unit(*units.UNIT.unpack(java_unit(52, 4, NOW, 5, 1, 2, 3)))
    # A unit of Apache's has only the slot's time: the message is due before its second is over.
    assert (units.due_ms(java.out_ms, java.extra), units.hash_of(java.extra)) == (
        NOW // 1000 * 1000 + 1000,
        None,
    )
    assert not Unit(*units.UNIT.unpack(bytes(52))).valid
    assert struct.pack(">i", units.BLANK_MAGIC).hex() == "cbd43194"


def fill(log: TimerLog, places: range) -> list[int]:
    positions = []
    for place in places:
        unit = units.unit_bytes(-1, 1, NOW, NOW + place, place, 10, 0, 0)
        positions.append(log.append(unit, NOW + place))
    log.write()
    return positions


def found(log: TimerLog, end: int = 1 << 40) -> list[int]:
    return [Unit(*fields).physical for _, piece in log.scan(end) for fields in piece]


def test_the_timer_log_goes_on_behind_its_last_unit() -> None:
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 170)
    log.open()
    # A file of 170 bytes holds two units and the blank.
    assert fill(log, range(1, 6)) == [0, 52, 170, 222, 340]
    assert files.list_dir("/timerlog") == [f"{start:020d}" for start in (0, 170, 340)]
    blank = files.read_bytes(f"/timerlog/{0:020d}")[104:120]
    assert blank == struct.pack(">iqi", 66, 0, units.BLANK_MAGIC)
    again = TimerLog(files, "/timerlog", 170)
    again.open()
    assert found(again) == [1, 2, 3, 4, 5]
    assert again.end == 392
    assert fill(again, range(6, 8)) == [392, 510]
    again.drop_before(NOW + 4)
    assert files.list_dir("/timerlog")[0] == f"{170:020d}"
    assert again.read(0) is None
    unit = again.read(222)
    assert unit is not None
    assert unit.physical == 4
    log = TimerLog(files, "/timerlog", 170)
    log.open()
    assert found(log) == [3, 4, 5, 6, 7]


def test_units_of_a_log_that_was_cut_are_not_valid() -> None:
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 4096)
    log.open()
    fill(log, range(1, 20))
    log = TimerLog(files, "/timerlog", 4096)
    log.open()
    assert found(log, end=10) == [*range(1, 10)]
    fill(log, range(10, 12))
    log = TimerLog(files, "/timerlog", 4096)
    log.open()
    # Units of the earlier run remain in the file; the new ones mark their own end.
    assert found(log) == [*range(1, 12)]


def test_a_file_of_another_size_and_those_behind_are_dropped() -> None:
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 170)
    log.open()
    fill(log, range(1, 8))
    files.write_atomic(f"/timerlog/{170:020d}", b"torn")
    log = TimerLog(files, "/timerlog", 170)
    log.open()
    assert found(log) == [1, 2]
    assert files.list_dir("/timerlog") == [f"{0:020d}"]


def test_a_timer_log_can_be_cleared_before_it_is_open() -> None:
    """A slave that is starting takes deliveries back, and must not read the rest of the log then."""
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 170)
    log.open()
    fill(log, range(1, 8))
    log.drop_before(NOW + 4)
    log.close()
    TimerLog(files, "/timerlog", 170).clear()
    assert files.list_dir("/timerlog") == []


def test_a_disk_that_refuses_gets_the_units_later() -> None:
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 4096)
    log.open()
    files.fail("pwrite")
    position = log.append(units.unit_bytes(-1, 1, NOW, NOW, 7, 10, 0, 0), NOW)
    with pytest.raises(OSError, match="pwrite"):
        log.write()
    unit = log.read(position)
    assert unit is not None
    assert unit.physical == 7
    files.heal()
    log.write()
    assert found(log) == [7]


def test_delivered_units_leave_their_chain() -> None:
    files = simulated_runtime(1).files
    log = TimerLog(files, "/timerlog", 4096)
    log.open()
    below, chain = -1, []
    for place in range(1, 6):
        unit = units.unit_bytes(below, 1, 4500, 5000, place, 10, 0, 0)
        below = log.append(unit, 5000)
        chain.insert(0, (below, Unit(*units.UNIT.unpack(unit))))
    log.write()
    assert take_out(log, chain, {52, 208}, 4000) == 156
    left, at = [], 156
    while at != -1:
        read = log.read(at)
        assert read is not None
        left.append((read.physical, read.out_ms))
        at = read.below
    assert left == [(4, 5000), (3, 5000), (1, 5000)]
    assert [Unit(*fields).out_ms for _, piece in log.scan(100) for fields in piece] == [
        5000,
        4000,
        5000,
        5000,
        4000,
    ]


# -- progress --------------------------------------------------------------------------------------------


def test_what_is_delivered_is_below_the_mark_and_was_looked_at() -> None:
    progress = TimerProgress().advanced(mark(1000, 50), 3, 100)
    assert progress.delivered(mark(1000, 50))
    assert progress.delivered(mark(999, 99))
    assert not progress.delivered(mark(1000, 51))
    assert not progress.delivered(mark(5, 100))


def test_a_clock_that_goes_back_keeps_the_old_mark_for_old_messages() -> None:
    old = TimerProgress().advanced(all_of(90_000), 5, 500)
    progress = old.set_back(10_000)
    assert progress.delivered(mark(80_000, 499))
    later = progress.advanced(mark(20_000, 600), 7, 700)
    assert not later.delivered(mark(80_000, 600))
    assert later.delivered(mark(80_000, 400))
    assert later.delivered(mark(15_000, 600))
    assert later.advanced(all_of(90_000), 7, 700).ahead == ()


@pytest.mark.behaviour("PO-36")
def test_what_was_due_later_is_taken_back_but_for_what_other_masters_have() -> None:
    progress = (
        TimerProgress().advanced(all_of(90_000), 5, 500).set_back(10_000).advanced(mark(20_000, 600), 7, 700)
    )
    progress = replace(progress, alone=frozenset([mark(95_000, 650)]))
    back = progress.taken_back(15_000)
    assert not back.delivered(mark(15_001, 400))
    assert back.delivered(mark(15_000, 699))
    assert back.delivered(mark(95_000, 650))
    assert progress.taken_back(30_000).delivered(mark(29_000, 499))
    assert not progress.taken_back(30_000).delivered(mark(31_000, 499))
    assert progress.taken_back(90_000) == progress


@pytest.mark.behaviour("PO-36")
def test_timers_are_taken_back_to_the_slot_of_the_first_that_is_lost() -> None:
    feed, told = ChangeFeed(), list[FeedEntry]()
    follow(feed, told.append)
    written = ProgressTable(system_runtime(), BrokerConfig(), None, feed)  # type: ignore[arg-type]
    written.saved = TimerProgress(all_of(90_000), 5, 500)
    assert not written.take_back(
        [LoggedDelivery(3, 0), LoggedDelivery(TIMER, 0), LoggedDelivery(TIMER, 0, 300, out_ms=91_000)]
    )
    assert told == []
    hour, level = 3_600_000, LoggedDelivery(3, 0)
    timers = [LoggedDelivery(TIMER, 0, 300, out_ms=80_000), LoggedDelivery(TIMER, 0, 400, out_ms=70_000)]
    assert written.take_back([level, *timers])
    assert written.saved == TimerProgress(all_of(70_000), 5, 500)
    assert [entry.table for entry in told] == [TIMERS]
    # A broker without that name may have cut the wait at any place.
    for level in (TIMER, ROLLED):
        written.saved = TimerProgress(all_of(90 * hour), 5, 500)
        assert written.take_back([LoggedDelivery(level, 0, out_ms=80 * hour, enqueued_ms=hour)])
        assert written.saved == TimerProgress(all_of(hour), 5, 500)


@pytest.mark.behaviour("PO-31")
def test_progress_is_news_where_it_tells_of_a_delivery_that_is_not_known() -> None:
    old = TimerProgress().advanced(all_of(90_000), 5, 500)
    back = old.set_back(10_000)
    later = back.advanced(mark(20_000, 600), 7, 700)
    for ours, told, covered in [
        (old, old, True),
        (old.advanced(all_of(95_000), 6, 600), old, True),
        (old, old.advanced(all_of(95_000), 5, 500), False),
        (old, old.advanced(all_of(90_000), 6, 600), False),
        (old, back, True),
        (back, old, True),
        (later, old, True),
        (later, back, True),
        (back, later, False),
        (old, TimerProgress(all_of(90_000), 5), True),
        (TimerProgress(), old, False),
    ]:
        assert ours.covers(told) is covered, (ours, told)
    feed = ChangeFeed()
    written = ProgressTable(system_runtime(), BrokerConfig(), None, feed)  # type: ignore[arg-type]
    written.saved = later
    assert not feed.is_news(FeedEntry(1, 0, TIMERS, "progress", back.plain()))
    assert feed.is_news(FeedEntry(1, 0, TIMERS, "progress", later.advanced(all_of(99_000), 8, 800).plain()))


def some_progress(pairs: list[tuple[int, int]]) -> TimerProgress:
    """The progress of these pairs of a log offset and a mark; the last offset is that up to which it has
    searched.
    """
    *ahead, (before, done) = sorted(pairs)
    return TimerProgress(done, 0, before, tuple(ahead), frozenset(mark for _, mark in ahead[:1]))


_marks = st.builds(mark, st.integers(0, 5), st.integers(0, 5))
_progress = st.builds(some_progress, st.lists(st.tuples(st.integers(-1, 6), _marks), min_size=1, max_size=4))


@pytest.mark.behaviour("PO-34")
@given(_progress, _progress, _marks)
def test_what_either_of_two_brokers_has_delivered_is_delivered(
    one: TimerProgress, other: TimerProgress, timer: int
) -> None:
    """Seed 3329: of two brokers that were apart, the slave's progress must not replace its master's."""
    joined = one.joined(other)
    assert joined.delivered(timer) is (one.delivered(timer) or other.delivered(timer))
    assert joined.covers(one)
    assert joined.covers(other)
    assert joined.latest == max(one.latest, other.latest)
    assert joined.joined(one) == joined


def test_the_check_file_is_read_by_both() -> None:
    version = DataVersion(state_version=1, timestamp=NOW, counter=9)
    alone = frozenset({mark(7_600, 13), mark(7_500, 14)})
    progress = TimerProgress(mark(7_500, 12), 3, 100, ((50, mark(9_000, 1)), (60, all_of(8_000))), alone)
    check = check_of(progress, version)
    assert check.read_ms == 7000
    data = encode_file(check, progress) + bytes(100)
    assert struct.unpack(">7q", data[:56]) == (7000, 0, 3, 3, 1, NOW, 9)
    assert decode_file(data) == (check, progress)
    # Apache's broker has written its seven numbers over OrbitMQ's, so they count.
    java = struct.pack(">7q", 9000, 104, 8, 7, 1, NOW, 10) + data[56:]
    found = decode_file(java)
    assert found is not None
    assert found[1] == TimerProgress(all_of(9000), 7)
    assert found[0].version.counter == 10
    assert decode_file(bytes(FILE_BYTES)) is None
    assert decode_file(b"") is None
    assert Check.decode(check.encode()) == check
    assert TimerProgress.from_plain(progress.plain()) == progress


@given(st.integers(0, 10**7), st.integers(0, 1 << 40))
def test_slots_before_the_read_time_are_delivered(due: int, place: int) -> None:
    check = check_of(TimerProgress(mark(due, place)), DataVersion())
    # The slot before it holds messages that are due up to the read time.
    assert all_of(check.read_ms) <= mark(due, place) or check.read_ms == 0
    assert due_of(mark(due, place)) - check.read_ms <= 1000


# -- messages --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("TW-02")
@pytest.mark.parametrize(
    ("deliver", "out"), [(10_500, 10_000), (10_000, 9_000), (10_001, 10_000), (9_999, 9_000)]
)
def test_the_slot_of_a_time(deliver: int, out: int) -> None:
    assert forms.slot_ms(deliver, 1000) == out


@given(st.integers(1, 10**9), st.sampled_from([100, 200, 500, 1000]), st.integers(-(10**6), 10**6))
def test_a_timer_is_never_due_before_its_time(delay: int, precision: int, lag: int) -> None:
    """``lag``: by how much the store's clock is ahead of the broker's, or how much later the record was
    written again.
    """
    out = forms.slot_ms(NOW + delay, precision)
    properties = {"TIMER_DELAY_MS": str(delay), "TIMER_OUT_MS": str(out), "REAL_TOPIC": "T"}
    record = Record("rmq_sys_wheel_timer", b"x", store_timestamp=NOW + max(0, lag))
    timer = forms.timer_of(record, properties)
    assert timer is not None
    assert NOW + delay <= timer.due_ms <= units.latest_ms(out)
    assert out < timer.due_ms
    if lag <= 0:
        assert timer.due_ms == NOW + delay


@pytest.mark.behaviour("TW-19")
@given(
    st.integers(0, 10**6),
    st.integers(0, 10**4),
    st.sampled_from([100, 200, 500, 1000]),
    st.sampled_from([100, 200, 500, 1000]),
)
def test_a_slot_is_over_when_nothing_that_any_precision_put_there_waits(
    due: int, later: int, stored_with: int, precision: int
) -> None:
    slot = forms.slot_ms(due, stored_with) // precision
    assert slot * precision < due <= units.latest_ms(slot * precision)
    assert first_slot_left(mark(due, 7) - 1, precision) <= slot
    if later >= 1000:
        assert first_slot_left(mark(due + later, 7), precision) > slot


def test_a_time_is_passed_when_also_what_came_last_is_delivered() -> None:
    within = TimerProgress(mark(1000, 70), taken=5, before=100)
    assert within.delivered(mark(1000, 50))
    assert not within.passed(1000, 50)  # a message at offset 80 may be due at the same time
    beyond = TimerProgress(mark(1001, 70), taken=5, before=100)
    assert beyond.passed(1000, 50)
    assert not beyond.passed(1000, 100)  # no message from there on has been searched yet
    # The clock was set back, so later messages may be due again.
    assert not beyond.set_back(900).passed(1000, 50)


@pytest.mark.parametrize(
    ("wait_h", "rolled_h"),
    [(48, 24), (60, 24), (63, 24), (64, 48), (72, 48)],
)
def test_a_long_wait_is_cut_as_apache_cuts_it(wait_h: int, rolled_h: int) -> None:
    hour = 3_600_000
    now = NOW // 1000 * 1000
    assert roll_ms(now + wait_h * hour, NOW, 48 * hour, 1000) == now + rolled_h * hour


@pytest.mark.behaviour("TW-17")
@pytest.mark.parametrize(
    ("written", "cut_ms"),
    [
        ("1700000600000", 1_700_000_600_000),
        ("", NOW // 1000 * 1000 + 48 * HOUR_MS),  # written by RocketMQ's broker
        (
            "1600000000000",
            NOW // 1000 * 1000 + 48 * HOUR_MS,
        ),  # a value of the wait before, which RocketMQ's broker leaves there
        ("soon", NOW // 1000 * 1000 + 48 * HOUR_MS),
    ],
)
def test_a_record_says_where_its_wait_is_cut(written: str, cut_ms: int) -> None:
    out_ms = NOW // 1000 * 1000 + 100 * HOUR_MS
    properties = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "TIMER_CUT_MS": written}
    timer = forms.timer_of(Record("rmq_sys_wheel_timer", b"x", store_timestamp=NOW), properties)
    assert timer is not None
    assert timer.cut_ms == cut_ms
    assert place_of(timer) == (units.DEFAULT | units.ROLL, cut_ms, cut_ms + 1)


@pytest.mark.behaviour("TW-17")
def test_a_wait_within_the_window_is_not_cut() -> None:
    out_ms = NOW // 1000 * 1000 + 47 * HOUR_MS
    properties = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T"}
    timer = forms.timer_of(Record("rmq_sys_wheel_timer", b"x", store_timestamp=NOW), properties)
    assert timer is not None
    assert place_of(timer) == (units.DEFAULT, out_ms, timer.due_ms)


def test_the_window_follows_the_retention() -> None:
    assert BrokerConfig().timer_roll_window_ms == 48 * 3_600_000
    assert BrokerConfig(file_reserved_time_hours=3).timer_roll_window_ms == 2 * 3_600_000
    assert BrokerConfig(file_reserved_time_hours=0).timer_roll_window_ms == 60_000
    config, _ = BrokerConfig().updated({"timerPrecisionMs": "999"})
    assert config.timer_precision_ms == 500


async def test_the_file_of_an_earlier_run_counts_though_this_broker_has_begun_to_lead(
    runtime: SimulatedRuntime,
) -> None:
    """Seed 3446: the table on the disk is older, but its version is counted up before the file is read."""
    log_end = SimpleNamespace(end_offset=500)
    store: Any = SimpleNamespace(max_offset=lambda *_: 9, end=900, recovered=log_end, cuts=[])
    early, late = (TimerProgress(mark(due, 40), 3, 100) for due in (1000, 8000))
    before = ProgressTable(runtime, BrokerConfig(), store, ChangeFeed())
    before.write(early)
    table = fastjson.loads("".join(before.file_text()))
    before.write(late)
    await before.close()
    for content in (table, {}):
        again = ProgressTable(runtime, BrokerConfig(), store, ChangeFeed())
        if content:
            again.restore(content)
        again.tables_read()
        again.version = DataVersion(7, again.version.timestamp, again.version.counter)
        assert again.load() == late
    store.recovered = SimpleNamespace(end_offset=60)
    newer = fastjson.loads("".join(before.file_text()))
    for content in (table, newer, {}):
        again = ProgressTable(runtime, BrokerConfig(), store, ChangeFeed())
        if content:
            again.restore(content)
        again.tables_read()
        assert again.load() == replace(late, before=60), "what came into the log since is not delivered"


@pytest.mark.behaviour("PO-36")
async def test_a_journal_says_what_was_taken_back(runtime: SimulatedRuntime) -> None:
    """Joined with the table's file and timercheck, the entry would count the lost delivery as made."""
    store: Any = SimpleNamespace(
        max_offset=lambda *_: 9, end=900, recovered=SimpleNamespace(end_offset=500), cuts=[]
    )
    feed = ChangeFeed()
    before = ProgressTable(runtime, BrokerConfig(), store, feed)
    journal: list[FeedEntry] = []
    follow(feed, journal.append)
    for due in (1000, 8000):
        before.write(TimerProgress(mark(due, 40), 3, 100))
    table = fastjson.loads("".join(before.file_text()))
    lost = LoggedDelivery(TIMER, 300, 40, out_ms=5000)
    assert before.take_back([lost])
    await before.close()
    feed = ChangeFeed()
    again = ProgressTable(runtime, BrokerConfig(), store, feed)
    again.restore(table)
    for entry in journal:
        feed.restore(entry)
    again.tables_read()
    assert again.load() == before.saved == TimerProgress(all_of(5000), 3, 100)


# -- the file of the progress ----------------------------------------------------------------------------


def test_a_file_is_released_when_nothing_is_done_with_it_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def write_and_close() -> None:
        runtime = system_runtime()
        progress = TimerProgress()
        check = check_of(progress, DataVersion())
        for number in range(200):
            file = CheckFile(runtime, str(tmp_path / str(number)))
            file.write(check, progress)
            await file.close()
        runtime.threads.close()

    asyncio.run(write_and_close())
    assert not caplog.records


@pytest.mark.behaviour("TW-10")
@pytest.mark.parametrize(("unread_ms", "over"), [(NEVER_MS, True), (5000, True), (4999, False)])
def test_a_recall_counts_while_a_copy_that_nobody_looked_at_may_be_meant(unread_ms: int, over: bool) -> None:
    """The cut-off master stored such a copy; the acting slave's progress has passed its second."""
    known = AlreadyDelivered(TimerProgress(done=all_of(6000), taken=3, before=100), unread_ms)
    assert known.would_have(units.DELETE, 4000, 4001, 50) == over
    assert known.would_have(units.DEFAULT, 4000, 4001, 50)
