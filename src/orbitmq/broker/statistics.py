"""Statistics of a broker: counters, rates, times; growth by topic and group.

They correspond to RocketMQ's StoreStatsService and BrokerStatsManager.

Little is counted for each message. Every 10 seconds one sampler takes the growth since its last run; a topic
or group without messages costs nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Protocol

from orbitmq.broker.component import Component
from orbitmq.broker.events import Events, GroupChanged, TopicChanged
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

if TYPE_CHECKING:
    from datetime import date

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

SAMPLE_SECONDS = 10.0
SAMPLES_PER_MINUTE = 6
# Seconds between the samples of a ring, and how many make its span: a minute, an hour, a day.
_RINGS = ((10.0, 7), (600.0, 7), (3600.0, 25))
# The timer may fire this much early without a ring skipping a whole step.
_EARLY_SECONDS = 1.0
_SERIES_PER_STEP = 500
_RATE_SPANS = (1, 6, 60)  # in samples


class FastCounts(Protocol):
    """Counters of the fast path; they only grow."""

    @property
    def messages_in(self) -> int: ...

    @property
    def messages_out(self) -> int: ...

    @property
    def pulls_found(self) -> int: ...

    @property
    def pulls_missed(self) -> int: ...


class Counters:
    """Counters since the start: services count here, the fast path counts for itself.

    Attributes:
        handled_in, handled_out: messages taken and handed out by the services.
        found, missed: reads by the services that found messages, and reads that found none.
        bytes_out: bytes of records handed out, by group and topic; ``None``: they are not counted.
        failed: sends that were refused by the store or the disk.
        longest_get_ms: the longest read.
        put_times: how long sends took.
    """

    def __init__(self, clock: Clock, bytes_out: Counter[tuple[str, str]] | None = None) -> None:
        self.clock = clock
        self.bytes_out = bytes_out
        self._fast: FastCounts | None = None
        self._answered = 0
        self.handled_in = 0
        self.handled_out = 0
        self.found = 0
        self.missed = 0
        self.failed = 0
        self.longest_get_ms = 0
        self.put_times = PutTimes()

    def attach(self, fast: FastCounts) -> None:
        """Include the fast path's counters."""
        self._fast = fast

    @property
    def fast_in(self) -> int:
        """Messages that took the fast path into the store."""
        return self._fast.messages_in if self._fast is not None else 0

    @property
    def fast_out(self) -> int:
        """Messages that took the fast path to consumers."""
        return self._fast.messages_out if self._fast is not None else 0

    @property
    def messages_in(self) -> int:
        return self.handled_in + self.fast_in

    @property
    def messages_out(self) -> int:
        return self.handled_out + self.fast_out

    @property
    def gets_found(self) -> int:
        return self.found + (self._fast.pulls_found if self._fast is not None else 0)

    @property
    def gets_missed(self) -> int:
        return self.missed + (self._fast.pulls_missed if self._fast is not None else 0)

    def note_out(self, group: str, topic: str, size: int) -> None:
        """Count the bytes of a topic's records that a group received."""
        if self.bytes_out is not None and size:
            self.bytes_out[group, topic] += size

    def note_get(self, found: bool, started: float) -> None:
        """Note the end of a service's read that began at ``started`` (monotonic seconds)."""
        if found:
            self.found += 1
        else:
            self.missed += 1
        self.note_get_time(int((self.clock.monotonic() - started) * 1000))

    def note_get_time(self, elapsed_ms: int) -> None:
        """Note how long a read took."""
        if elapsed_ms > self.longest_get_ms:
            self.longest_get_ms = elapsed_ms

    def note_answered(self, elapsed_ms: int) -> None:
        """Note that the messages since the last call were answered, the oldest after ``elapsed_ms``."""
        fast = self._fast
        total = self.handled_in + (fast.messages_in if fast is not None else 0)
        if total > self._answered:
            self.put_times.note(elapsed_ms, total - self._answered)
            self._answered = total


class PutTimes:
    """The times from a send to its answer, in ms: the longest, and those of the last full minute.

    Attributes:
        longest_ms: since the start.
    """

    # Upper bounds of the steps of putMessageDistributeTime, and of the steps for percentiles.
    TEXTS = (
        "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
        "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
    )  # fmt: skip
    _TEXT_ENDS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
    _BOUNDS = tuple(
        accumulate(
            chain(
                repeat(1, 20), repeat(2, 15), repeat(5, 10), repeat(10, 10), repeat(50, 6), repeat(100, 5),
                repeat(1000, 9),
            )
        )
    )  # fmt: skip

    def __init__(self) -> None:
        self.longest_ms = 0
        # Sends of less than a millisecond, nearly all; added when the minute is over.
        self._at_once = 0
        self._counts = [0] * len(self.TEXTS)
        self._buckets = [0] * (len(self._BOUNDS) + 1)
        self._minute = ([0] * len(self._counts), [0] * len(self._buckets))

    def note(self, elapsed_ms: int, messages: int) -> None:
        """Note that ``messages`` were answered after ``elapsed_ms``."""
        if elapsed_ms == 0:
            self._at_once += messages
            return
        self._counts[bisect_right(self._TEXT_ENDS, elapsed_ms)] += messages
        self._buckets[bisect_left(self._BOUNDS, elapsed_ms)] += messages
        if elapsed_ms > self.longest_ms:
            self.longest_ms = elapsed_ms

    def roll(self) -> None:
        """Begin the next minute."""
        self._counts[0] += self._at_once
        self._buckets[0] += self._at_once
        self._at_once = 0
        self._minute = (self._counts, self._buckets)
        self._counts = [0] * len(self._counts)
        self._buckets = [0] * len(self._buckets)

    def text(self) -> str:
        """The last minute's distribution."""
        return "".join(f"{name}:{count} " for name, count in zip(self.TEXTS, self._minute[0], strict=True))

    def percentile(self, share: float) -> float:
        """The time in ms that ``share`` of the last minute's sends did not exceed; 0.0 without any sends."""
        buckets = self._minute[1]
        wanted = int(sum(buckets) * share)
        passed = 0
        lower = 0
        for count, upper in zip(buckets, (*self._BOUNDS, self.longest_ms), strict=True):
            if count and wanted <= passed + count:
                return lower + (max(upper, lower) - lower) * (wanted - passed) / count
            passed += count
            lower = upper
        return 0.0


class Rates:
    """Messages and reads per second over the last 10 seconds, minute and ten minutes."""

    PUT = 0
    TRANSFERRED = 1
    FOUND = 2
    MISSED = 3

    def __init__(self) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=_RATE_SPANS[-1] + 1)

    def sample(self, now: float, *totals: int) -> None:
        """Note the totals at ``now`` (monotonic seconds), in the order of :attr:`PUT` to :attr:`MISSED`."""
        self._samples.append((now, totals))

    def per_second(self, which: int, span: int) -> float:
        """The rate over the last ``span`` samples, or since the first one."""
        if len(self._samples) < 2:
            return 0.0
        newest, totals = self._samples[-1]
        oldest, before = self._samples[max(0, len(self._samples) - 1 - span)]
        return (totals[which] - before[which]) / (newest - oldest) if newest > oldest else 0.0

    def text(self, *which: int) -> str:
        """The sum of these rates in the three spans, as mqadmin's clusterList reads them."""
        return " ".join(f"{sum(self.per_second(rate, span) for rate in which):.1f}" for span in _RATE_SPANS)


class Series:
    """A growing number, sampled from time to time; samples while it stands still can be left out.

    Args:
        now: seconds, of any clock that only goes forward.
        total: the number at the beginning.
    """

    # Kept small (short lists that share their points): a broker may have a series for each of its topics.
    __slots__ = ("_now", "_rings", "total")

    def __init__(self, now: float, total: int) -> None:
        self._now = now
        self.total = total
        point = (now, total)
        self._rings = [[point] for _ in _RINGS]

    def note(self, now: float, total: int) -> None:
        """Add a sample: at ``now`` the number is ``total``."""
        self._stand_still(now - SAMPLE_SECONDS)
        self.total = total
        self._step(now)

    def _step(self, now: float) -> None:
        self._now = now
        point = (now, self.total)
        for (step, length), ring in zip(_RINGS, self._rings, strict=True):
            if now - ring[-1][0] >= step - _EARLY_SECONDS:
                ring.append(point)
                del ring[:-length]

    def _stand_still(self, until: float) -> None:
        """Add the samples that were left out while nothing changed."""
        if until <= self._now + _EARLY_SECONDS:
            return
        for (step, length), ring in zip(_RINGS, self._rings, strict=True):
            last = ring[-1][0]
            missed = int((until - last + _EARLY_SECONDS) // step)
            for number in range(max(1, missed - length + 1), missed + 1):
                ring.append((last + number * step, self.total))
            del ring[:-length]
        self._now = until

    def growth(self, span: int, now: float | None = None) -> tuple[int, float]:
        """By how much the number grew in the last minute (0), hour (1) or day (2), in all and per second.

        Args:
            now: when the number was last at its total; ``None``: at the last :meth:`note`.
        """
        if now is not None:
            self._stand_still(now)
        since, before = self._rings[span][0]
        grown = self.total - before
        return grown, grown / (self._now - since) if self._now > since else 0.0

    def silent(self, now: float) -> bool:
        """Whether the number has not grown for a day."""
        self._stand_still(now)
        return self._rings[-1][0][1] == self.total and len(self._rings[-1]) == _RINGS[-1][1]


class Stats(Component):
    """The statistics of one broker.

    A group's number counts the offsets that its pulls covered, so messages that its filter skips count too.

    Args:
        cluster: the key of the broker's own numbers.

    Attributes:
        started_ms: when the broker began to serve, milliseconds since the epoch.
        started_offset: where the commit log ended then.
        this_morning, yesterday_morning: (in, out) at the beginning of the day, and of the day before.
    """

    name = "statistics"

    def __init__(
        self,
        clock: Clock,
        events: Events,
        store: MessageStore,
        offsets: ConsumerOffsets,
        cluster: str,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._store = store
        self._offsets = offsets
        self._cluster = cluster
        self.counters = counters
        self.rates = Rates()
        self._series: dict[tuple[str, str], Series] = {}
        self._totals: dict[str, int] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._sampled_at: float | None = None
        self._samples = 0
        self._day: date | None = None
        self.started_ms = 0
        self.started_offset = 0
        self.this_morning = (0, 0)
        self.yesterday_morning = (0, 0)
        events.subscribe(TopicChanged, self._topic_changed)
        events.subscribe(GroupChanged, self._group_changed)

    async def start(self) -> None:
        self.started_ms = self._clock.now_ms()
        self.started_offset = self._store.max_commit_log_offset
        self._every(self._clock, SAMPLE_SECONDS, self.sample, first_s=0.0)

    # -- reading -----------------------------------------------------------------------------------------

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A number by RocketMQ's name and key (``topic``, ``topic@group``); None: no growth on any day."""
        series = self._found(name, key)
        if series is None:
            return None
        items = []
        for span in range(len(_RINGS)):
            grown, per_second = series.growth(span, self._sampled_at)
            items.append(BrokerStatsItem(sum=grown, tps=round(per_second, 2), avgpt=0.0))
        return BrokerStatsData(*items)

    def per_second(self, name: str, key: str) -> float:
        """The growth in the last minute; 0.0 for an unknown number."""
        series = self._found(name, key)
        return 0.0 if series is None else round(series.growth(0, self._sampled_at)[1], 2)

    def totals(self, name: str) -> list[tuple[str, int]]:
        """The growth of each number of this name since the start, by key."""
        return [(key, series.total) for (each, key), series in self._series.items() if each == name]

    def _found(self, name: str, key: str) -> Series | None:
        series = self._series.get((name, key))
        if series is not None and self._sampled_at is not None and series.silent(self._sampled_at):
            del self._series[name, key]
            return None
        return series

    # -- sampling ----------------------------------------------------------------------------------------

    async def sample(self) -> None:
        """Take the growth since the last call, with pauses when many numbers have grown."""
        now = self._clock.monotonic()
        counters = self.counters
        self._new_day()
        put, got = counters.messages_in, counters.messages_out
        self.rates.sample(now, put, got, counters.gets_found, counters.gets_missed)
        await self.look()
        counters.note_answered(0)  # these messages have no waiting senders
        self._samples += 1
        if self._samples % SAMPLES_PER_MINUTE == 0:
            counters.put_times.roll()
        self._sampled_at = now

    async def look(self) -> None:
        """Bring the numbers of :meth:`view` up to now, so that the very first message is counted too."""
        now = self._clock.monotonic()
        self._total(now, BROKER_PUT_NUMS, self.counters.messages_in)
        self._total(now, BROKER_GET_NUMS, self.counters.messages_out)
        topics = ((TOPIC_PUT_NUMS, topic, messages) for topic, messages in self._store.growth().items())
        groups = ((GROUP_GET_NUMS, key, messages) for key, messages in self._pulled())
        for number, (name, key, messages) in enumerate(chain(topics, groups), 1):
            self._grow(now, (name, key), messages)
            if number % _SERIES_PER_STEP == 0:
                await asyncio.sleep(0)

    def _total(self, now: float, name: str, total: int) -> None:
        self._grow(now, (name, self._cluster), total - self._totals.get(name, 0))
        self._totals[name] = total

    def _grow(self, now: float, which: tuple[str, str], messages: int) -> None:
        if messages <= 0:
            return
        series = self._series.get(which)
        if series is None:
            since = self._sampled_at if self._sampled_at is not None else now
            series = self._series[which] = Series(since, 0)
        series.note(now, series.total + messages)

    def _pulled(self) -> Iterator[tuple[str, int]]:
        """How far the pulls of each ``topic@group`` went since the last call."""
        for key in self._offsets.take_pulled():
            ends = self._offsets.pulls().get(key)
            if ends is None:  # the group or the topic was deleted
                self._series.pop((GROUP_GET_NUMS, key), None)
                self._pulls.pop(key, None)
                continue
            known = self._pulls.setdefault(key, {})
            starts = self._offsets.pull_starts().get(key, {})
            covered = 0
            for queue_id, offset in ends.items():
                covered += max(0, offset - known.get(queue_id, starts.get(queue_id, offset)))
                known[queue_id] = offset
            yield key, covered

    def _topic_changed(self, event: TopicChanged) -> None:
        if event.config is None:
            self._series.pop((TOPIC_PUT_NUMS, event.topic), None)

    def _group_changed(self, event: GroupChanged) -> None:
        # The offsets of a deleted group may stay, and with them the record of its pulls.
        if event.config is None:
            end = f"{SEPARATOR}{event.group}"
            for which in [which for which in self._series if which[1].endswith(end)]:
                del self._series[which]

    def _new_day(self) -> None:
        today = self._clock.local_time(self._clock.now_ms()).date()
        if self._day is not None and today != self._day:
            self.yesterday_morning = self.this_morning
            self.this_morning = (self.counters.messages_in, self.counters.messages_out)
        self._day = today
