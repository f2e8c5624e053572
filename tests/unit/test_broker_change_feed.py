"""The change feed: each change in order, in a form that can be applied to a second set of tables."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.feeds import follow

from orbitmq.broker.change_feed import (
    DELAYS,
    FORBIDDEN,
    LOCKS,
    OFFSETS,
    RESETS,
    TOPICS,
    ChangeFeed,
    FeedEntry,
)
from orbitmq.broker.clients.queue_locks import LOCK_LIVES_MS, QueueLocks
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.model import MessageQueue
from orbitmq.testing.machine.simulated import VirtualClock
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig


class Tables:
    """All tables of one broker that no service stands behind."""

    def __init__(self, clock: VirtualClock) -> None:
        self.log_end = 0
        config = BrokerConfig()
        self.events = Events()
        self.feed = ChangeFeed(lambda: self.log_end)
        self.topics = TopicConfigs(clock, config, self.feed, self.events)
        self.groups = SubscriptionGroups(clock, config, self.feed, self.events)
        self.offsets = ConsumerOffsets(clock, self.feed, self.events, version_step=3)
        self.locks = QueueLocks(clock, self.feed)

    def content(self) -> dict[str, Any]:
        resets = {
            (group, topic, queue): self.offsets.query(group, topic, queue)
            for group in GROUP_NAMES
            for topic in TOPIC_NAMES
            for queue in range(3)
            if self.offsets.has_reset(group, topic, queue)
        }
        held = {
            (group, client): self.locks.lock(group, client, []) for group in GROUP_NAMES for client in CLIENTS
        }
        return {
            "topics": fastjson.loads("".join(self.topics.file_text())),
            "groups": fastjson.loads("".join(self.groups.file_text())),
            "offsets": fastjson.loads("".join(self.offsets.file_text())),
            "resets": resets,
            "locks": held,
            "ordered": {group: self.locks.any_held(group) for group in GROUP_NAMES},
        }


GROUP_NAMES = ("g1", "g2")
TOPIC_NAMES = ("orders", "%RETRY%g1")
CLIENTS = ("one", "two@x")


def change_something(tables: Tables, choice: random.Random) -> None:
    group, topic = choice.choice(GROUP_NAMES), choice.choice(TOPIC_NAMES)
    queue, number = choice.randrange(3), choice.randrange(1000)
    queues = [MessageQueue(topic, "b@1", queue)]
    match choice.randrange(12):
        case 0 | 1:
            tables.topics.update(TopicConfig(topic, 1 + number % 8, 1 + number % 8))
        case 2:
            tables.topics.mark_order_topics([topic])
        case 3:
            tables.topics.delete(topic)
        case 4:
            tables.groups.update(SubscriptionGroupConfig(group_name=group, retry_max_times=number))
        case 5:
            tables.groups.set_readable(group, topic, bool(number % 2))
        case 6:
            tables.groups.delete(group)
        case 7:
            tables.offsets.reset(group, topic, queue, number)
        case 8:
            tables.offsets.take_reset(group, topic, queue)
        case 9 if number < 100:
            tables.offsets.drop_topic(topic)
        case 10:
            tables.locks.lock(group, choice.choice(CLIENTS), queues)
        case 11:
            tables.locks.unlock(group, choice.choice(CLIENTS), queues)
        case _:
            tables.offsets.commit(group, topic, queue, number)


@pytest.mark.parametrize("seed", range(20))
def test_a_second_set_of_tables_that_is_fed_is_equal(seed: int) -> None:
    clock = VirtualClock()
    first, second = Tables(clock), Tables(clock)
    follow(first.feed, lambda entry: second.feed.apply(FeedEntry.decode(entry.encode())))
    # An entry must not change when its config changes later.
    kept: list[FeedEntry] = []
    follow(first.feed, kept.append)
    choice = random.Random(seed)
    for _ in range(300):
        clock.advance(0.05)
        change_something(first, choice)
        assert second.content() == first.content()
    third = Tables(clock)
    for entry in kept:
        third.feed.apply(entry)
    assert third.content()["topics"] == first.content()["topics"]
    assert third.content()["offsets"] == first.content()["offsets"]
    assert len(kept) == first.feed.sequence


def test_locks_go_over_with_the_time_they_were_renewed() -> None:
    clock = VirtualClock()
    first, second = Tables(clock), Tables(clock)
    follow(first.feed, second.feed.apply)
    queue = MessageQueue("T", "a", 0)
    first.locks.lock("g", "one", [queue])
    clock.advance(LOCK_LIVES_MS / 1000 - 1)
    assert second.locks.lock("g", "two", [queue]) == []
    clock.advance(2)
    assert second.locks.lock("g", "two", [queue]) == [queue]


def test_entries_carry_their_number_and_the_end_of_the_log() -> None:
    tables = Tables(VirtualClock())
    entries: list[FeedEntry] = []
    tables.offsets.commit("g", "T", 0, 1)
    end = follow(tables.feed, entries.append)
    tables.log_end = 700
    tables.offsets.commit("g", "T", 0, 2)
    tables.log_end = 900
    tables.groups.set_readable("g", "T", False)
    end()
    tables.offsets.commit("g", "T", 0, 3)
    assert [(e.sequence, e.log_offset, e.table, e.key, e.value) for e in entries] == [
        (2, 700, OFFSETS, "T@g@0", 2),
        (3, 900, FORBIDDEN, "g@T", 4),
    ]


def test_what_is_applied_is_told_as_an_event_and_passes_the_own_feed() -> None:
    first, second = Tables(VirtualClock()), Tables(VirtualClock())
    follow(first.feed, second.feed.apply)
    heard: list[str] = []
    marked: list[str] = []
    second.events.subscribe(TopicChanged, lambda event: heard.append(event.topic))
    second.feed.subscribe(lambda table, key, _value: marked.append(f"{table} {key}"))
    first.topics.create_if_absent("orders", 4)
    assert heard == ["orders"]
    assert marked == [f"{TOPICS} orders"]


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("nothing", "a", 1),
        (DELAYS, "1", 1),
        (OFFSETS, "no-queue", 1),
        (OFFSETS, "T@g@0", "many"),
        (RESETS, "T@g@x", 1),
        (TOPICS, "T", 7),
        (LOCKS, "[]", ["one", 1]),
        (LOCKS, '["g","T","a",0]', ["one"]),
    ],
)
def test_an_entry_that_does_not_fit_is_a_value_error(table: str, key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="change 9"):
        Tables(VirtualClock()).feed.apply(FeedEntry(9, 0, table, key, value))


def test_bytes_that_are_no_entry_are_a_value_error() -> None:
    for data in (b"", b"{}", b'{"sequence":"x"}', b"\xff"):
        with pytest.raises(ValueError):
            FeedEntry.decode(data)
