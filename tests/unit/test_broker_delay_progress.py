"""Progress of the delay levels, found in a log."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.feeds import follow

from orbitmq.broker.change_feed import DELAYS, ChangeFeed, FeedEntry
from orbitmq.broker.delay.delivered import (
    ROLLED,
    TIMER,
    LoggedDelivery,
    deliveries,
    deliveries_between,
    delivery_of,
    place_in,
)
from orbitmq.broker.delay.levels import MAX_LEVELS
from orbitmq.broker.delay.progress import MAX_AHEAD, DelayProgress, LevelProgress
from orbitmq.broker.delay.search import DeliverySearch
from orbitmq.broker.messaging.room import with_property
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, encode_properties
from orbitmq.message.record import Record, encode_record
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


def delivered(number: int, **more: str) -> Record:
    # Java keeps properties in a hash map, so their order may differ.
    return record("T", b"%d" % number, **more, UNIQ_KEY=f"K{number}", REAL_QID="0", REAL_TOPIC="T", DELAY="2")


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
    piece, places = log_of([*others, delivered(1, __DELIVERY_OF="5 b"), others[0], delivered(2)])
    found, end = deliveries(piece, "b")
    assert found == [LoggedDelivery(2, places[7], 5, born_ms=7), LoggedDelivery(2, places[9], born_ms=7)]
    assert end == piece.end


@pytest.mark.behaviour("DL-09")
@pytest.mark.parametrize("value", ["", "5", "5 ", "5 other", "x b", "5 b b", " b"])
def test_what_names_no_place_of_this_log_is_no_place(value: str) -> None:
    assert place_in({"__DELIVERY_OF": value}, "b") is None
    assert place_in({}, "b") is None
    assert place_in({"__DELIVERY_OF": delivery_of(5, "b b")}, "b b") == 5


def test_a_property_is_added_where_there_is_room_for_it() -> None:
    assert with_property(b"a\x011\x02", "b", "2") == b"a\x011\x02b\x012\x02"
    assert with_property(b"a\x01\xff", "b", "2") == b"a\x01\xff\x02b\x012\x02"
    assert with_property(b"", "b", "2") == b"b\x012\x02"
    full = b"a\x01" + bytes(MAX_PROPERTIES_BYTES - 5) + b"\x02"
    assert with_property(full, "b", "2") == full


def test_a_delivered_timer_message_is_told_from_one_that_waits() -> None:
    waits = record("rmq_sys_wheel_timer", b"t", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS="7", UNIQ_KEY="U")
    came = record(
        "T", b"t", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS="7", TIMER_DEQUEUE_MS="9", UNIQ_KEY="U"
    )
    piece, places = log_of([waits, came])
    [found], _ = deliveries(piece, "b")
    assert (found.level, found.physical_offset) == (TIMER, places[1])


@pytest.mark.behaviour("PO-36")
def test_of_a_timer_message_is_known_where_it_waited_also_when_it_only_rolled() -> None:
    times = {"TIMER_OUT_MS": "7000", "TIMER_ENQUEUE_MS": "5"}
    came = record("T", b"t", REAL_TOPIC="T", **times)
    rolled = record("rmq_sys_wheel_timer", b"t", REAL_TOPIC="T", TIMER_ROLL_TIMES="1", **times)
    unknown = record("T", b"t", REAL_TOPIC="T", TIMER_OUT_MS="soon")
    java = record("T", b"t", REAL_TOPIC="T", TIMER_CUT_MS="3", **times)
    found, _ = deliveries(log_of([came, rolled, unknown, java])[0], "b")
    assert [(each.level, each.out_ms, each.enqueued_ms) for each in found] == [
        (TIMER, 7000, 5),
        (ROLLED, 7000, 5),
        (TIMER, 0, 0),
        (TIMER, 3, 3),
    ]


def test_a_call_collects_so_many_and_the_next_goes_on_there() -> None:
    piece, places = log_of([delivered(number) for number in range(7)])
    collected, at = [], piece.start
    while at < piece.end:
        found, at = deliveries(LogPiece(at, piece.end, piece.view, piece.base), "b", limit=3)
        collected += [each.physical_offset for each in found]
    assert collected == places


def test_a_damaged_record_is_no_delivery() -> None:
    piece, _ = log_of([delivered(1)])
    view = memoryview(b"\0" * 200 + b"REAL_TOPIC\x01T\x02")
    assert deliveries(LogPiece(0, len(view), view, 0), "b") == ([], len(view))
    assert piece.end > piece.start


def search_in(progress: DelayProgress, level: int) -> DeliverySearch:
    """A search in a log where the message at log offset 100 * n waits at offset n of a level."""

    def record_at(place: int) -> bytes | None:
        number = place // 100
        if number in (0, 6):
            return None
        waits = replace(waiting(number), queue_id=level - 1, queue_offset=number)
        return encode_record(waits)

    store: Any = SimpleNamespace(record_at=record_at)
    return DeliverySearch(VirtualClock(), None, store, "b", None, progress)  # type: ignore[arg-type]


def of(place: int | None, level: int = 2, times: int = 0) -> LoggedDelivery:
    return LoggedDelivery(level, 0, place, born_ms=7, reconsume_times=times)


@pytest.mark.behaviour("PO-36")
def test_a_level_goes_back_to_the_first_of_its_messages_that_a_lost_delivery_names() -> None:
    first, _, _ = pair_of_tables()
    first.move(2, LevelProgress(9, 1234))
    search = search_in(first, 2)
    assert search.without([]) == {}
    assert search.without([of(500), of(800)]) == {2: LevelProgress(5, 1234, (6, 7))}
    assert search.without([of(500, TIMER), of(None, ROLLED)]) == {}
    # A level may have another number since messageDelayLevel was shortened, so the offset counts.
    assert search_in(first, 2).without([of(500, 3)]) == {2: LevelProgress(5, 1234, (6, 7, 8))}


@pytest.mark.behaviour("PO-36")
@pytest.mark.parametrize(
    "unnamed",
    [of(None), of(600), of(500, times=1), replace(of(500), born_ms=8)],
    ids=["no place", "nothing is there", "sent back by a Java broker", "another message"],
)
def test_a_level_begins_anew_behind_a_lost_delivery_that_names_none_of_its_messages(
    unnamed: LoggedDelivery,
) -> None:
    """How many of the messages before it went to another broker group is unknown, so none counts as
    delivered.
    """
    first, _, _ = pair_of_tables()
    first.move(2, LevelProgress(9, 1234, (11,)))
    search = search_in(first, 2)
    assert search.without([unnamed]) == {2: LevelProgress()}
    assert search.without([of(500), unnamed, of(800)]) == {2: LevelProgress()}
    assert search.without([of(None, 17)]) == {}


@pytest.mark.behaviour("PO-36")
def test_progress_before_lost_deliveries_names_what_others_have_among_them() -> None:
    place = LevelProgress(9, 1234, (11, 12))
    assert place.without(set()) == place
    assert place.without({8}) == LevelProgress(8, 1234, (11, 12))
    # 6 cannot be read, and 7 went to another master.
    assert place.without({4, 5, 8}) == LevelProgress(4, 1234, (6, 7, 11, 12))
    # A message that does not count as delivered moves nothing.
    assert place.without({11, 13}) == LevelProgress(9, 1234, (12,))
    # A long tail is read part by part.
    assert place.without({4, 5}).without({8}) == place.without({4, 5, 8})
    assert LevelProgress(90_000).without({0}) == LevelProgress(0, 0, tuple(range(1, MAX_AHEAD + 1)))


@pytest.mark.behaviour("PO-36")
def test_progress_is_taken_back_with_the_version_that_it_has() -> None:
    first, _, _ = pair_of_tables()
    first.move(2, LevelProgress(5, 1234, (8,)))
    version = first.version
    first.take_back(2, first.place(2).without({3}))
    assert first.place(2) == LevelProgress(3, 1234, (4, 8))
    assert first.version == version


@pytest.mark.behaviour("PO-36")
async def test_deliveries_of_a_tail_come_part_by_part(runtime: SimulatedRuntime) -> None:
    piece, places = log_of([delivered(number) for number in range(6)])
    borders = [piece.start, places[2], places[3], piece.end]
    files = [replace(piece, start=start, end=end) for start, end in pairwise(borders)]

    def piece_of(at: int, end: int) -> LogPiece | None:
        of_file = [each for each in files if each.start <= at < min(end, each.end)]
        return replace(of_file[0], start=at, end=min(end, of_file[0].end)) if of_file else None

    store: Any = SimpleNamespace(raw=SimpleNamespace(piece=piece_of))
    parts = deliveries_between(runtime.threads, store, "b", places[1], places[5])
    found = [[each.physical_offset for each in part] async for part in parts]
    assert found == [places[1:2], places[2:3], places[3:5]]


def test_progress_goes_over_with_its_place_in_the_log_and_older_journals_are_read() -> None:
    clock = VirtualClock()
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (DelayProgress(clock, 3, feed) for feed in feeds)
    follow(feeds[0], lambda entry: feeds[1].apply(FeedEntry.decode(entry.encode())))
    first.move(2, LevelProgress(5, 1234))
    assert second.place(2) == LevelProgress(5, 1234)
    assert second.version == first.version
    feeds[1].apply(FeedEntry(9, 0, DELAYS, "3", 8))
    assert second.table() == {1: 0, 2: 5, 3: 8}


def pair_of_tables() -> tuple[DelayProgress, DelayProgress, ChangeFeed]:
    """The tables of two brokers; the second one's feed applies the changes of the first."""
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (DelayProgress(VirtualClock(), 3, feed) for feed in feeds)
    follow(feeds[0], lambda entry: feeds[1].apply(FeedEntry.decode(entry.encode())))
    return first, second, feeds[1]


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_goes_over_and_ends_when_progress_has_passed_it() -> None:
    first, second, _ = pair_of_tables()
    first.move(2, LevelProgress(5, 1234).with_ahead([9, 7, 3]))
    assert second.place(2) == LevelProgress(5, 1234, (7, 9))
    first.move(2, second.place(2).at(8, 2000))
    assert second.place(2) == LevelProgress(8, 2000, (9,))
    first.cut(2, 9, 1500)
    assert second.place(2) == LevelProgress(8, 1500)


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_is_news_also_for_who_is_further() -> None:
    _, table, feed = pair_of_tables()
    table.move(1, LevelProgress(6, 900))

    def told(*plain: object) -> FeedEntry:
        return FeedEntry(1, 0, DELAYS, "1", list(plain))

    assert not feed.is_news(told(5, 800))
    assert not feed.is_news(told(5, 800, [5]))
    assert feed.is_news(told(5, 800, [5, 8]))
    feed.apply(told(5, 800, [5, 8]))
    assert table.place(1) == LevelProgress(6, 900, (8,))
    assert not feed.is_news(told(6, 900, [8]))
    # RocketMQ's table has only offsets.
    feed.apply(FeedEntry(2, 0, DELAYS, "1", 7))
    assert table.place(1) == LevelProgress(7, 0, (8,))


@pytest.mark.behaviour("DL-12")
def test_levels_that_a_broker_does_not_have_keep_their_progress() -> None:
    """Two brokers of one name may differ in their levels for a while, or a folder's levels come back."""
    feeds = [ChangeFeed(), ChangeFeed()]
    first, second = (
        DelayProgress(VirtualClock(), levels, feed) for levels, feed in zip((18, 2), feeds, strict=True)
    )
    follow(feeds[0], lambda entry: feeds[1].apply(FeedEntry.decode(entry.encode())))
    first.move(17, LevelProgress(5, 1234).with_ahead([9]))
    assert second.place(17) == LevelProgress(5, 1234, (9,))
    assert second.levels == [1, 2, 17]
    again, back = (
        DelayProgress(VirtualClock(), 2, ChangeFeed()),
        DelayProgress(VirtualClock(), 18, ChangeFeed()),
    )
    again.restore(fastjson.loads("".join(second.file_text())))
    back.restore(fastjson.loads("".join(again.file_text())))
    assert back.place(17) == LevelProgress(5, 0, (9,))
    assert not feeds[1].is_news(FeedEntry(9, 0, DELAYS, "17", [4, 1000]))
    assert feeds[1].is_news(FeedEntry(9, 0, DELAYS, "17", [6, 2000]))


@pytest.mark.behaviour("DL-12")
@pytest.mark.parametrize("level", [-1, 0, MAX_LEVELS + 1, 1 << 62])
def test_what_is_no_level_is_refused_and_left_out_of_a_file(level: int) -> None:
    feed = ChangeFeed()
    table = DelayProgress(VirtualClock(), 3, feed)
    with pytest.raises(ValueError, match=f"delay level {level}"):
        feed.apply(FeedEntry(10, 0, DELAYS, str(level), 8))
    table.restore({"offsetTable": {level: 8, 2: 7}})
    assert table.table() == {1: 0, 2: 7, 3: 0}


@pytest.mark.behaviour("PO-36")
def test_a_journal_says_what_was_taken_back() -> None:
    """The journal says that progress was moved back; joining the entry with the earlier offset would lose
    that.
    """
    first, journal = ChangeFeed(), list[FeedEntry]()
    follow(first, journal.append)
    table = DelayProgress(VirtualClock(), 3, first)
    table.move(1, LevelProgress(9, 900))
    table.take_back(1, LevelProgress(9, 900).without({5, 6, 8}))
    feed = ChangeFeed()
    again = DelayProgress(VirtualClock(), 3, feed)
    for entry in journal:
        feed.restore(FeedEntry.decode(entry.encode()))
    assert again.place(1) == table.place(1)
    assert again.place(1).offset == 5
    assert again.version == table.version


@pytest.mark.behaviour("ES-14")
def test_what_was_delivered_ahead_is_in_the_file_and_without_it_the_file_is_rocketmqs() -> None:
    first, second, _ = pair_of_tables()
    assert set(fastjson.loads("".join(first.file_text()))) == {"dataVersion", "offsetTable"}
    first.move(3, LevelProgress(2, 50, (4, 6)))
    second.restore(fastjson.loads("".join(first.file_text())))
    assert second.place(3) == LevelProgress(2, 0, (4, 6))


@pytest.mark.behaviour("ES-14")
def test_so_many_are_remembered() -> None:
    assert LevelProgress(5).with_ahead(range(3, 3000)).ahead == tuple(range(5, 5 + MAX_AHEAD))
