"""Progress of the delay levels, found in a log."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.feeds import follow

from orbitmq.broker.change_feed import DELAYS, ChangeFeed, Entry
from orbitmq.broker.delay.delivered import (
    ROLLED,
    TIMER,
    WINDOW,
    Identity,
    LevelProgress,
    before_lost,
    deliveries,
    identity_of,
    waiting_identity,
)
from orbitmq.broker.delay.levels import MAX_LEVELS
from orbitmq.broker.delay.progress import MAX_AHEAD, DelayProgress, Place
from orbitmq.broker.delay.search import deliveries_backwards
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, decode_record, encode_record
from orbitmq.store.ports import LogPiece
from orbitmq.testing.machine.simulated import SimulatedRuntime, VirtualClock
from orbitmq.wire import fastjson


def record(topic: str, body: bytes, **properties: str) -> Record:
    return Record(topic, body, encode_properties(properties), born_timestamp=7, born_host=("10.0.0.1", 5))


def waiting(number: int) -> Record:
    key = f"K{number}"
    return record(
        "SCHEDULE_TOPIC_XXXX", b"%d" % number, DELAY="2", REAL_TOPIC="T", REAL_QID="0", UNIQ_KEY=key
    )


def delivered(number: int) -> Record:
    # Java keeps properties in a hash map: they may come in another order.
    return record("T", b"%d" % number, UNIQ_KEY=f"K{number}", REAL_QID="0", REAL_TOPIC="T", DELAY="2")


def log_of(records: list[Record]) -> tuple[LogPiece, list[int]]:
    data, places = bytearray(), []
    for each in records:
        each.physical_offset = 1000 + len(data)
        places.append(each.physical_offset)
        data += encode_record(each)
    return LogPiece(1000, 1000 + len(data), memoryview(bytes(data + b"\0" * 100)), 1000), places


def test_only_delivered_records_are_found() -> None:
    others = [
        record("T", b"plain"),
        record("T", b"says REAL_TOPIC\x01T in its body", DELAY="2"),
        waiting(1),
        record("RMQ_SYS_TRANS_HALF_TOPIC", b"half", DELAY="2", REAL_TOPIC="T", REAL_QID="0"),
        record("T", b"committed", REAL_TOPIC="T", REAL_QID="0"),
        record("T", b"dead", REAL_TOPIC="T", DELAY="0"),
        record("T", b"no level", REAL_TOPIC="T", DELAY="soon"),
    ]
    piece, places = log_of([*others, delivered(1), others[0], delivered(2)])
    found, end = deliveries(piece)
    assert [each.physical_offset for each in found] == [places[7], places[9]]
    assert {each.level for each in found} == {2}
    assert [each.identity for each in found] == [
        waiting_identity(encode_record(waiting(number))) for number in (1, 2)
    ]
    assert end == piece.end


def test_a_delivered_timer_message_is_told_from_one_that_waits() -> None:
    waits = record("rmq_sys_wheel_timer", b"t", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS="7", UNIQ_KEY="U")
    came = record(
        "T", b"t", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS="7", TIMER_DEQUEUE_MS="9", UNIQ_KEY="U"
    )
    piece, places = log_of([waits, came])
    [found], _ = deliveries(piece)
    assert (found.level, found.physical_offset) == (TIMER, places[1])
    assert found.identity == waiting_identity(encode_record(waits))


@pytest.mark.behaviour("PO-36")
def test_of_a_timer_message_is_known_where_it_waited_also_when_it_only_rolled() -> None:
    times = {"TIMER_OUT_MS": "7000", "TIMER_ENQUEUE_MS": "5"}
    came = record("T", b"t", REAL_TOPIC="T", **times)
    rolled = record("rmq_sys_wheel_timer", b"t", REAL_TOPIC="T", TIMER_ROLL_TIMES="1", **times)
    unknown = record("T", b"t", REAL_TOPIC="T", TIMER_OUT_MS="soon")
    found, _ = deliveries(log_of([came, rolled, unknown])[0])
    assert [(each.level, each.out_ms, each.enqueued_ms) for each in found] == [
        (TIMER, 7000, 5),
        (ROLLED, 7000, 5),
        (TIMER, 0, 0),
    ]


def test_a_call_collects_so_many_and_the_next_goes_on_there() -> None:
    piece, places = log_of([delivered(number) for number in range(7)])
    collected, at = [], piece.start
    while at < piece.end:
        found, at = deliveries(LogPiece(at, piece.end, piece.view, piece.base), limit=3)
        collected += [each.physical_offset for each in found]
    assert collected == places


def test_a_damaged_record_is_no_delivery() -> None:
    assert waiting_identity(b"\0" * 100) is None
    piece, _ = log_of([delivered(1)])
    view = memoryview(b"\0" * 200 + b"REAL_TOPIC\x01T\x02")
    assert deliveries(LogPiece(0, len(view), view, 0)) == ([], len(view))
    assert piece.end > piece.start


def identity(number: int | str) -> Identity:
    data = encode_record(record("T", str(number).encode(), UNIQ_KEY=str(number)))
    return identity_of(decode_record(data), "T", str(number))


def test_what_was_left_out_lies_behind_the_progress_when_a_later_one_was_delivered() -> None:
    level = LevelProgress(3, 10, lambda offset: identity(offset) if offset != 4 else None)
    level.saw(identity(number) for number in (1, 2))
    assert level.progress == 3
    level.saw([identity(3), identity("another's"), identity(6)])
    assert level.progress == 7


def test_the_same_message_twice_counts_twice() -> None:
    level = LevelProgress(0, 4, lambda offset: identity("same" if offset < 3 else "last"))
    level.saw([identity("same")])
    assert level.progress == 1
    level.saw([identity("same")])
    assert level.progress == 2
    level.saw([identity("last")])
    assert level.progress == 4


@pytest.mark.behaviour("DL-09")
@pytest.mark.parametrize(("stored_ms", "progress"), [(5000, 1), (8999, 1), (9000, 4)])
def test_what_was_sent_back_twice_is_not_delivered_before_it_is_due(stored_ms: int, progress: int) -> None:
    """The first one was delivered, as another broker's progress says; the second one waits until 9 s."""
    level = LevelProgress(
        1,
        4,
        lambda offset: identity("same" if offset in (0, 3) else offset),
        lambda _, ms, _place: ms >= 9000,
    )
    level.saw([identity("same")], stored_ms)
    assert level.progress == progress


@pytest.mark.behaviour("DL-09")
def test_a_delivery_that_is_counted_already_is_none_of_a_later_copy() -> None:
    """Two were sent back twice; the file says that the first copies were delivered, not where."""
    level = LevelProgress(
        2,
        6,
        lambda offset: identity("same" if offset in (1, 4) else "twin" if offset in (0, 5) else offset),
        first=0,
    )
    level.saw([identity("same")])
    assert level.progress == 2
    level.saw([identity(2)])
    assert level.progress == 3
    # Behind what was not counted a level is in order: this is the second copy's.
    level.saw([identity("twin")])
    assert level.progress == 6


@pytest.mark.parametrize("seed", range(10))
def test_every_run_of_deliveries_is_followed(seed: int) -> None:
    dice = random.Random(seed)
    end = 5 * WINDOW
    left_out = {offset for offset in range(end) if dice.random() < 0.2}
    known = dice.randrange(end)
    until = dice.randrange(known, end)
    level = LevelProgress(known, end, identity)
    level.saw(identity(offset) for offset in range(max(0, known - 50), until) if offset not in left_out)
    last = max((offset for offset in range(known, until) if offset not in left_out), default=known - 1)
    assert level.progress == last + 1


@pytest.mark.behaviour("PO-36")
def test_progress_before_lost_deliveries_names_what_others_have_among_them() -> None:
    def lost(*numbers: int, progress: int = 9) -> tuple[int, list[int]]:
        return before_lost(progress, map(identity, numbers), lambda at: None if at == 6 else identity(at))

    assert lost() == (9, [])
    assert lost(8) == (8, [])
    # 6 cannot be read, 7 went to another master.
    assert lost(4, 5, 8) == (4, [7, 6])
    # What is not of this queue, or not counted as delivered, moves nothing.
    assert lost(11, 12) == (9, [])
    assert lost(1, 0, progress=2) == (0, [])
    # The search goes so far back behind the last one that it found.
    assert lost(9, WINDOW + 8, progress=WINDOW + 10) == (
        9,
        [*range(WINDOW + 9, WINDOW + 8, -1), *range(WINDOW + 7, 9, -1)],
    )
    assert lost(9, progress=WINDOW + 11) == (WINDOW + 11, [])


@pytest.mark.behaviour("PO-36")
def test_the_same_message_twice_is_lost_as_often_as_it_was_delivered() -> None:
    assert before_lost(5, [identity("same")], lambda _at: identity("same")) == (4, [])
    assert before_lost(5, [identity("same")] * 2, lambda _at: identity("same")) == (3, [])


@pytest.mark.behaviour("PO-36")
def test_progress_is_taken_back_with_the_version_that_it_has() -> None:
    first, _, _ = pair_of_tables()
    first.move(2, Place(5, 1234, (8,)))
    version = first.version
    first.take_back(2, first.place(2).back_at(3, [4]))
    assert first.place(2) == Place(3, 1234, (4, 8))
    assert first.version == version


@pytest.mark.behaviour("PO-36")
async def test_deliveries_of_a_tail_come_part_by_part_the_newest_first(runtime: SimulatedRuntime) -> None:
    piece, places = log_of([delivered(number) for number in range(6)])
    borders = [piece.start, places[2], places[3], piece.end]
    files = [replace(piece, start=start, end=end) for start, end in pairwise(borders)]

    def piece_of(at: int, end: int) -> LogPiece | None:
        of_file = [each for each in files if each.start <= at < min(end, each.end)]
        return replace(of_file[0], start=at, end=min(end, of_file[0].end)) if of_file else None

    store: Any = SimpleNamespace(raw=SimpleNamespace(piece=piece_of))
    parts = deliveries_backwards(runtime.threads, store, places[1], places[5])
    found = [[each.physical_offset for each in part] async for part in parts]
    assert found == [places[3:5], places[2:3], places[1:2]]


def test_progress_goes_over_with_its_place_in_the_log_and_older_journals_are_read() -> None:
    clock = VirtualClock()
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (DelayProgress(clock, 3, feed) for feed in feeds)
    follow(feeds[0], lambda entry: feeds[1].apply(Entry.decode(entry.encode())))
    first.move(2, Place(5, 1234))
    assert second.place(2) == Place(5, 1234)
    assert second.version == first.version
    feeds[1].apply(Entry(9, 0, DELAYS, "3", 8))
    assert second.table() == {1: 0, 2: 5, 3: 8}


def pair_of_tables() -> tuple[DelayProgress, DelayProgress, ChangeFeed]:
    """Two brokers' tables; what changes in the first is applied by the feed of the second."""
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (DelayProgress(VirtualClock(), 3, feed) for feed in feeds)
    follow(feeds[0], lambda entry: feeds[1].apply(Entry.decode(entry.encode())))
    return first, second, feeds[1]


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_goes_over_and_ends_when_progress_has_passed_it() -> None:
    first, second, _ = pair_of_tables()
    first.move(2, Place(5, 1234).with_ahead([9, 7, 3]))
    assert second.place(2) == Place(5, 1234, (7, 9))
    first.move(2, second.place(2).at(8, 2000))
    assert second.place(2) == Place(8, 2000, (9,))
    first.cut(2, 9, 1500)
    assert second.place(2) == Place(8, 1500)


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_is_news_also_for_who_is_further() -> None:
    _, table, feed = pair_of_tables()
    table.move(1, Place(6, 900))

    def told(*plain: object) -> Entry:
        return Entry(1, 0, DELAYS, "1", list(plain))

    assert not feed.is_news(told(5, 800))
    assert not feed.is_news(told(5, 800, [5]))
    assert feed.is_news(told(5, 800, [5, 8]))
    feed.apply(told(5, 800, [5, 8]))
    assert table.place(1) == Place(6, 900, (8,))
    assert not feed.is_news(told(6, 900, [8]))
    # RocketMQ's table knows offsets alone.
    feed.apply(Entry(2, 0, DELAYS, "1", 7))
    assert table.place(1) == Place(7, 0, (8,))


@pytest.mark.behaviour("DL-12")
def test_levels_that_a_broker_does_not_have_keep_their_progress() -> None:
    """Two of one name, of which one has fewer levels for a while, or a folder whose levels come back."""
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (
        DelayProgress(VirtualClock(), levels, feed) for levels, feed in zip((18, 2), feeds, strict=True)
    )
    follow(feeds[0], lambda entry: feeds[1].apply(Entry.decode(entry.encode())))
    first.move(17, Place(5, 1234).with_ahead([9]))
    assert second.place(17) == Place(5, 1234, (9,))
    assert second.levels == [1, 2, 17]
    again, back = (
        DelayProgress(VirtualClock(), 2, ChangeFeed()),
        DelayProgress(VirtualClock(), 18, ChangeFeed()),
    )
    again.restore(fastjson.loads("".join(second.file_text())))
    back.restore(fastjson.loads("".join(again.file_text())))
    assert back.place(17) == Place(5, 0, (9,))
    assert not feeds[1].is_news(Entry(9, 0, DELAYS, "17", [4, 1000]))
    assert feeds[1].is_news(Entry(9, 0, DELAYS, "17", [6, 2000]))


@pytest.mark.behaviour("DL-12")
@pytest.mark.parametrize("level", [-1, 0, MAX_LEVELS + 1, 1 << 62])
def test_what_is_no_level_is_refused_and_left_out_of_a_file(level: int) -> None:
    feed = ChangeFeed()
    table = DelayProgress(VirtualClock(), 3, feed)
    with pytest.raises(ValueError, match=f"delay level {level}"):
        feed.apply(Entry(10, 0, DELAYS, str(level), 8))
    table.restore({"offsetTable": {level: 8, 2: 7}})
    assert table.table() == {1: 0, 2: 7, 3: 0}


@pytest.mark.behaviour("PO-36")
def test_a_journal_says_what_was_taken_back() -> None:
    """With what others have among it, it was joined with the place before, and so lost."""
    first, journal = ChangeFeed(), list[Entry]()
    follow(first, journal.append)
    table = DelayProgress(VirtualClock(), 3, first)
    table.move(1, Place(9, 900))
    table.take_back(1, Place(9, 900).back_at(5, [7]))
    feed = ChangeFeed()
    again = DelayProgress(VirtualClock(), 3, feed)
    for entry in journal:
        feed.restore(Entry.decode(entry.encode()))
    assert again.place(1) == table.place(1)
    assert again.place(1).offset == 5
    assert again.version == table.version


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_is_in_the_file_and_without_it_the_file_is_rocketmqs() -> None:
    first, second, _ = pair_of_tables()
    assert set(fastjson.loads("".join(first.file_text()))) == {"dataVersion", "offsetTable"}
    first.move(3, Place(2, 50, (4, 6)))
    second.restore(fastjson.loads("".join(first.file_text())))
    assert second.place(3) == Place(2, 0, (4, 6))


@pytest.mark.behaviour("ES-14")
def test_so_many_are_remembered() -> None:
    assert Place(5).with_ahead(range(3, 3000)).ahead == tuple(range(5, 5 + MAX_AHEAD))
