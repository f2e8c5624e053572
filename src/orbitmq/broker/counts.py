"""Counters of rare events: ends of transactions, timers, dead letters. Plain messages are not counted here.

The counts of a deleted topic or group are removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from orbitmq.broker.events import Events, GroupChanged, TopicChanged
from orbitmq.runtime.histogram import Histogram

# RocketMQ's histogram bounds: seconds from a half message's birth to its commit.
FINISH_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
# Seconds from the birth of a timer message to its due time.
WAIT_BOUNDS_S = (60, 600, 3600, 43_200, 86_400, 259_200)
# RocketMQ's histogram bounds: how long the creation of a topic or a group takes.
CREATE_BOUNDS_MS = (10, 100, 1000, 3000, 5000)


class Counts:
    """Counts since the start of the broker.

    Attributes:
        committed, rolled_back: transactions that their producers ended, by topic.
        finish_s: how long committed transactions were open, by topic.
        timers_in, timers_out: timer messages that began to wait, and that were delivered, by topic. A message
            that waits for longer than the log is kept counts several times.
        timer_wait_s: how long after their birth timer messages are due, by topic; counted like ``timers_in``.
        revived: popped messages that were not acknowledged in time and became messages of a retry topic, by
            group and topic.
        bytes_out: bytes of records that pulls and pops returned, by group and topic.
        dead: messages that became dead letters, by group and topic.
        topic_ms: how long creations of topics took, by success and whether the topic is a system topic.
        group_ms: how long creations of groups took, by success.
    """

    def __init__(self, events: Events) -> None:
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.finish_s: defaultdict[str, Histogram] = defaultdict(partial(Histogram, FINISH_BOUNDS_S))
        self.timers_in: Counter[str] = Counter()
        self.timers_out: Counter[str] = Counter()
        self.timer_wait_s: defaultdict[str, Histogram] = defaultdict(partial(Histogram, WAIT_BOUNDS_S))
        self.revived: Counter[tuple[str, str]] = Counter()
        self.bytes_out: Counter[tuple[str, str]] = Counter()
        self.dead: Counter[tuple[str, str]] = Counter()
        creations = partial(Histogram, CREATE_BOUNDS_MS)
        self.topic_ms: defaultdict[tuple[bool, bool], Histogram] = defaultdict(creations)
        self.group_ms: defaultdict[bool, Histogram] = defaultdict(creations)
        events.subscribe(TopicChanged, self._topic_changed)
        events.subscribe(GroupChanged, self._group_changed)

    def ended(self, topic: str, age_ms: int, *, committed: bool) -> None:
        """Note that a producer ended a transaction; ``age_ms`` is the age of its half message."""
        if committed:
            self.committed[topic] += 1
            self.finish_s[topic].note(max(0, age_ms) // 1000)
        else:
            self.rolled_back[topic] += 1

    def timer_waits(self, topic: str, wait_ms: int) -> None:
        """Note that a timer message begins to wait; ``wait_ms`` is the time from its birth till it is due."""
        self.timers_in[topic] += 1
        self.timer_wait_s[topic].note(max(0, wait_ms) // 1000)

    def _topic_changed(self, event: TopicChanged) -> None:
        if event.config is not None:
            return
        for counter in (self.committed, self.rolled_back, self.timers_in, self.timers_out):
            counter.pop(event.topic, None)
        self.finish_s.pop(event.topic, None)
        self.timer_wait_s.pop(event.topic, None)
        for pairs in (self.dead, self.revived, self.bytes_out):
            for key in [key for key in pairs if key[1] == event.topic]:
                del pairs[key]

    def _group_changed(self, event: GroupChanged) -> None:
        if event.config is None:
            for pairs in (self.dead, self.revived, self.bytes_out):
                for key in [key for key in pairs if key[0] == event.group]:
                    del pairs[key]
