"""How much each topic takes and each group gets, per minute, hour and day (BrokerStatsManager).

Nothing is counted when a message passes: every 10 seconds the offsets are looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore
from orbitmq.wire.bodies import BrokerStatsData, BrokerStatsItem

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

SAMPLE_SECONDS = 10.0
# Seconds between the samples of a ring, and how many make its span: a minute, an hour, a day.
_RINGS = ((10.0, 7), (600.0, 7), (3600.0, 25))
# A timer that is a little early must not cost a ring a whole step.
_EARLY_SECONDS = 1.0
_QUEUES_PER_STEP = 2000


def _none() -> int:
    return 0


@dataclass(slots=True)
class Counters:
    """What a broker has done since its start: the handlers count here, the fast path itself.

    Attributes:
        started_ms: when it began to serve, milliseconds since the epoch.
        started_offset: where the commit log ended then.
    """

    started_ms: int = 0
    started_offset: int = 0
    handled_in: int = 0
    handled_out: int = 0
    fast_in: Callable[[], int] = _none
    fast_out: Callable[[], int] = _none

    @property
    def messages_in(self) -> int:
        return self.handled_in + self.fast_in()

    @property
    def messages_out(self) -> int:
        return self.handled_out + self.fast_out()


class Series:
    """A number that grows, seen from time to time.

    Args:
        now: seconds, of any clock that only goes forward.
        total: the number at the beginning.
    """

    def __init__(self, now: float, total: int) -> None:
        self._now = now
        self.total = total
        self._rings = [deque([(now, total)], maxlen=length) for _, length in _RINGS]

    def note(self, now: float, total: int) -> None:
        """The number is ``total`` now."""
        self._now = now
        self.total = total
        for (step, _), ring in zip(_RINGS, self._rings, strict=True):
            if now - ring[-1][0] >= step - _EARLY_SECONDS:
                ring.append((now, total))

    @property
    def silent(self) -> bool:
        """Whether it did not grow for a day."""
        return self._rings[-1][0][1] == self.total and len(self._rings[-1]) == _RINGS[-1][1]

    def growth(self, span: int) -> tuple[int, float]:
        """By how much it grew in the last minute (0), hour (1) or day (2), and per second."""
        since, before = self._rings[span][0]
        grown = self.total - before
        return grown, grown / (self._now - since) if self._now > since else 0.0


class Stats:
    """The statistics of one broker. :meth:`sample` has to be called every :data:`SAMPLE_SECONDS`.

    A group's number is the distance that its pulls covered, so messages that its filter left out count too.

    Args:
        cluster: the key of the broker's own numbers.
        messages_in, messages_out: counters of the whole broker.
    """

    def __init__(
        self,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        cluster: str,
        messages_in: Callable[[], int],
        messages_out: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._cluster = cluster
        self._in = messages_in
        self._out = messages_out
        self._series: dict[tuple[str, str], Series] = {}
        # Totals of what has not grown yet; a series is made when it does.
        self._still: dict[tuple[str, str], tuple[float, int]] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, int] = {}
        self._sampled_at: float | None = None
        self._day: date | None = None
        # (in, out) at the beginning of the day, and of the day before.
        self.this_morning = (0, 0)
        self.yesterday_morning = (0, 0)

    # -- reading -----------------------------------------------------------------------------------------

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A number by RocketMQ's name and key (``topic``, ``topic@group``); None when it never grew."""
        series = self._series.get((name, key))
        if series is None:
            return None
        items = []
        for span in range(len(_RINGS)):
            grown, per_second = series.growth(span)
            items.append(BrokerStatsItem(sum=grown, tps=round(per_second, 2), avgpt=0.0))
        return BrokerStatsData(*items)

    def per_second(self, name: str, key: str) -> float:
        """The growth of the last minute, 0.0 for an unknown number."""
        series = self._series.get((name, key))
        return 0.0 if series is None else round(series.growth(0)[1], 2)

    # -- sampling ----------------------------------------------------------------------------------------

    async def sample(self) -> None:
        """Look at all offsets, with pauses when there are many."""
        now = self._clock.monotonic()
        self._new_day()
        seen: set[tuple[str, str]] = set()

        def note(name: str, key: str, total: int) -> None:
            seen.add((name, key))
            self._note((name, key), now, total)

        note(BROKER_PUT_NUMS, self._cluster, self._in())
        note(BROKER_GET_NUMS, self._cluster, self._out())
        queues = 0
        for config in self._topics:
            count = max(config.read_queue_nums, config.write_queue_nums)
            topic = config.topic_name
            note(TOPIC_PUT_NUMS, topic, sum(self._store.max_offset(topic, q) for q in range(count)))
            queues += count
            if queues >= _QUEUES_PER_STEP:
                queues = 0
                await asyncio.sleep(0)
        for key, pulls in self._offsets.pulls().items():
            note(GROUP_GET_NUMS, key, self._covered(key, pulls))
        self._forget(seen)
        self._sampled_at = now

    def _note(self, which: tuple[str, str], now: float, total: int) -> None:
        series = self._series.get(which)
        if series is None:
            # What the first sample finds was there before; what is new later began with nothing.
            first = (now, total) if self._sampled_at is None else (self._sampled_at, 0)
            since, before = self._still.setdefault(which, first)
            if total == before:
                return
            series = self._series[which] = Series(since, before)
            del self._still[which]
        elif total < series.total:
            # The topic was deleted and made again, or a group was forgotten.
            series = self._series[which] = Series(now, total)
        series.note(now, total)
        if series.silent:
            del self._series[which]
            self._still[which] = (now, total)

    def _covered(self, key: str, pulls: dict[int, int]) -> int:
        """The distance that a group's pulls have covered in a topic since it was first seen."""
        known = self._pulls.setdefault(key, {})
        starts = self._offsets.pull_starts().get(key, {})
        covered = self._pulled.get(key, 0)
        for queue_id, offset in pulls.items():
            before = known.get(queue_id, starts.get(queue_id, offset))
            covered += max(0, offset - before)
            known[queue_id] = offset
        self._pulled[key] = covered
        return covered

    def _forget(self, seen: set[tuple[str, str]]) -> None:
        for which in [which for which in self._series if which not in seen]:
            del self._series[which]
        for which in [which for which in self._still if which not in seen]:
            del self._still[which]
        for key in [key for key in self._pulls if (GROUP_GET_NUMS, key) not in seen]:
            del self._pulls[key]
            del self._pulled[key]

    def _new_day(self) -> None:
        today = datetime.fromtimestamp(self._clock.now_ms() / 1000).date()
        if self._day is not None and today != self._day:
            self.yesterday_morning = self.this_morning
            self.this_morning = (self._in(), self._out())
        self._day = today
