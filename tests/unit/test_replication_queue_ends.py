"""How the ends of queues without messages are sent, and how a receiver applies them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.test_broker_change_feed import Tables

from orbitmq.broker.change_feed import QUEUE_ENDS, TOPICS, ChangeFeed, FeedEntry
from orbitmq.replication.state.frames import Changes, decode_state
from orbitmq.replication.state.outbox import FRAME_BYTES, MAX_ENTRIES, SendingLink, everything
from orbitmq.replication.state.queue_ends import Ends, QueueEnds
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire.bodies.topic import TopicConfig

pytestmark = [pytest.mark.behaviour("PO-38"), pytest.mark.usefixtures("orbitmq_loop")]


class Ended:
    """The part of a store that knows the ends of its queues."""

    def __init__(self, **ends: Ends) -> None:
        self.ends = ends
        self.moved: list[tuple[str, int, int]] = []

    def quiet_ends(self) -> Iterator[tuple[str, Ends]]:
        yield from self.ends.items()

    def go_on_at(self, topic: str, queue_id: int, offset: int) -> bool:
        self.moved.append((topic, queue_id, offset))
        return True


def frames_of(feed: ChangeFeed) -> list[bytes]:
    return list(SendingLink(sealed=False).frames(1, 1, list(everything(feed)), begins=True, ends=True))


def told(frames: list[bytes]) -> list[FeedEntry]:
    found = []
    for frame in frames:
        changes = decode_state(frame)
        assert isinstance(changes, Changes)
        found += changes.entries
    return found


async def test_they_are_told_behind_the_topics_that_have_them() -> None:
    tables, second = Tables(VirtualClock()), Tables(VirtualClock())
    store = Ended()
    QueueEnds(tables.feed, Ended(quiet=[(0, 10), (7, 3)]))
    QueueEnds(second.feed, store)
    tables.topics.update(TopicConfig("quiet", 8, 8))
    entries = told(frames_of(tables.feed))
    names = [entry.table for entry in entries]
    assert names.index(TOPICS) < names.index(QUEUE_ENDS) == len(names) - 1
    for entry in entries:
        second.feed.apply(entry)
    assert store.moved == [("quiet", 0, 10), ("quiet", 7, 3)]


async def test_what_the_teller_does_not_have_stays() -> None:
    feed, store = ChangeFeed(), Ended()
    QueueEnds(feed, store)
    feed.apply(FeedEntry(1, 0, QUEUE_ENDS, "quiet", None))
    assert store.moved == []


@pytest.mark.parametrize("value", [7, [7], [[1]], [[1, 2, 3]], [["a", 1]], [[1, None]], "text"])
async def test_what_is_not_of_the_form_is_refused(value: object) -> None:
    feed = ChangeFeed()
    store = Ended()
    QueueEnds(feed, store)
    with pytest.raises(ValueError, match=QUEUE_ENDS):
        feed.apply(FeedEntry(1, 0, QUEUE_ENDS, "quiet", value))
    assert store.moved == []


async def test_a_broker_that_serves_takes_them_from_one_that_acted_meanwhile() -> None:
    """They move only empty queues, so they undo no change."""
    feed = ChangeFeed()
    QueueEnds(feed, Ended())
    assert feed.has_rule(QUEUE_ENDS)
    assert feed.is_news(FeedEntry(1, 0, QUEUE_ENDS, "quiet", [[0, 10]]), led=False)


async def test_fifty_thousand_queues_go_in_small_frames() -> None:
    feed = ChangeFeed()
    QueueEnds(feed, Ended(**{f"orders-{n:05d}": [(each, 100_000) for each in range(8)] for n in range(6250)}))
    frames = frames_of(feed)
    assert len(told(frames)) == 6250
    assert len(frames) >= 6250 / MAX_ENTRIES
    assert max(map(len, frames)) < FRAME_BYTES / 10
    assert sum(map(len, frames)) < 1 << 20


async def test_the_largest_topic_fits_into_a_frame() -> None:
    feed = ChangeFeed()
    QueueEnds(feed, Ended(large=[(each, 1 << 40) for each in range(65_536)]))
    (frame,) = frames_of(feed)
    assert len(frame) <= FRAME_BYTES
