"""The figures of how far groups are behind: five series of each group and topic, two more of each queue.

Groups and topics are mostly the same at each scrape: their labels are prepared once, a hundred at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import sub
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics.progress import GroupProgress
from orbitmq.broker.metrics.read_topics import ReadBatch, ReadTopics
from orbitmq.monitoring.exposition import Exposition, MetricFamily
from orbitmq.runtime.seam import Clock

SERIES: Final = 5
# Batches without a change that are written in one turn of the event loop: a quarter of a millisecond. Each
# turn in between displaces what sends keep in the processor's cache, so turns are not to be shorter.
UNCHANGED_PER_TURN: Final = 4


class LagMetrics:
    """Writes how far groups are behind in the topics that they read."""

    def __init__(
        self, clock: Clock, config: BrokerConfig, read_topics: ReadTopics, progress: GroupProgress
    ) -> None:
        self._clock = clock
        self._config = config
        self._read_topics = read_topics
        self._progress = progress

    async def write(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add the figures, as long as the broker serves."""
        by_queue = self._config.metrics_queue_lag
        families = _families(text)
        of_queues = _queue_families(text) if by_queue else None
        await self._progress.begin(queues=by_queue)
        written = 0
        for batch in await self._read_topics.batches():
            if written >= UNCHANGED_PER_TURN:
                written = 0
                await asyncio.sleep(0)
            if not serving():
                return
            if not text.room:
                self._progress.left_out(batch)
                text.cut += SERIES * len(batch.topics)
                written += 1
                continue
            changed = await self._progress.look(batch, serving)
            written += UNCHANGED_PER_TURN if changed or by_queue else 1
            if not serving():
                return
            now = self._clock.now_ms()
            _write(families, batch, now)
            if of_queues is not None:
                _write_queues(of_queues, batch, now)
        self._progress.end()


def _write(families: Sequence[MetricFamily], batch: ReadBatch, now: int) -> None:
    lag, latency, in_flight, queueing, ready = families
    labels = batch.labels
    lag.add_rows(batch.lag, labels)
    ages = _ages(now, batch.lagging_ms)
    latency.add_rows(ages, labels)
    in_flight.add_rows(batch.in_flight, labels)
    # Mostly nothing was read that is not consumed.
    queueing.add_rows(ages if batch.ready_ms == batch.lagging_ms else _ages(now, batch.ready_ms), labels)
    ready.add_rows(list(map(sub, batch.lag, batch.in_flight)), labels)


def _write_queues(families: Sequence[MetricFamily], batch: ReadBatch, now: int) -> None:
    messages, latency = families
    lags = list(chain.from_iterable(batch.queue_lag))
    if lags:
        labels = batch.queue_labels()
        messages.add_rows(lags, labels)
        latency.add_rows(_ages(now, chain.from_iterable(batch.queue_lagging_ms)), labels)


def _families(text: Exposition) -> Sequence[MetricFamily]:
    return (
        text.family("rocketmq_consumer_lag_messages", "gauge", "Messages that the group has not consumed"),
        text.family(
            "rocketmq_consumer_lag_latency_milliseconds",
            "gauge",
            "Age of the oldest message that the group has not consumed",
        ),
        text.family(
            "rocketmq_consumer_inflight_messages",
            "gauge",
            "Messages that the group has read and not consumed yet",
        ),
        text.family(
            "rocketmq_consumer_queueing_latency_milliseconds",
            "gauge",
            "Age of the oldest message that the group has not read",
        ),
        text.family("rocketmq_consumer_ready_messages", "gauge", "Messages that the group can read now"),
    )


def _queue_families(text: Exposition) -> Sequence[MetricFamily]:
    return (
        text.family(
            "orbitmq_consumer_queue_lag_messages",
            "gauge",
            "Messages of the queue that the group has not consumed",
        ),
        text.family(
            "orbitmq_consumer_queue_lag_latency_milliseconds",
            "gauge",
            "Age of the oldest message of the queue that the group has not consumed",
        ),
    )


def _ages(now: int, stored_ms: Iterable[int]) -> list[int]:
    """The age of each message by its time; a time of 0 means that there is no message."""
    return [now - ms if 0 < ms < now else 0 for ms in stored_ms]
