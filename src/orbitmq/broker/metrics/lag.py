"""The figures of how far groups are behind: five series of each group and topic, two more of each queue.

A scrape of each second meets the same groups and topics: their labels are prepared once, a hundred at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics.label_batches import LabelBatches
from orbitmq.broker.metrics.progress import GroupProgress
from orbitmq.broker.metrics.read_topics import ReadTopic, ReadTopics, Row
from orbitmq.monitoring.exposition import Exposition, MetricFamily
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_batches

# Groups with a topic whose series are written in one turn of the event loop: about a millisecond when all
# have changed, a tenth of it when none has.
PER_TURN: Final = 100
SERIES: Final = 5


class LagMetrics:
    """Writes how far groups are behind in the topics that they read."""

    def __init__(
        self, clock: Clock, config: BrokerConfig, read_topics: ReadTopics, progress: GroupProgress
    ) -> None:
        self._clock = clock
        self._config = config
        self._read_topics = read_topics
        self._progress = progress
        self._labels = LabelBatches(Row._fields)
        self._queue_labels = LabelBatches(("consumer_group", "topic", "queue_id"))

    async def write(self, text: Exposition, serving: Callable[[], bool]) -> None:
        """Add the figures, as long as the broker serves."""
        by_queue = self._config.metrics_queue_lag
        families = _families(text)
        of_queues = _queue_families(text) if by_queue else None
        await self._progress.begin(queues=by_queue)
        self._labels.begin()
        self._queue_labels.begin()
        async for batch in in_batches(self._read_topics.all(), PER_TURN):
            if not serving():
                return
            if not text.room:
                text.cut += SERIES * len(batch)
                continue
            await self._progress.look(batch, serving)
            if not serving():
                return
            now = self._clock.now_ms()
            self._write(families, batch, now)
            if of_queues is not None:
                # The retry topic of pops has one queue: the figures above are those of this queue.
                self._write_queues(of_queues, [each for each in batch if each.row.is_retry == "false"], now)
        self._labels.end()
        self._queue_labels.end()

    def _write(self, families: Sequence[MetricFamily], batch: Sequence[ReadTopic], now: int) -> None:
        labels = self._labels.of([each.row for each in batch])
        lag, latency, in_flight, queueing, ready = families
        lag.add_rows([each.lag for each in batch], labels)
        latency.add_rows(_ages(now, [each.lagging_ms for each in batch]), labels)
        in_flight.add_rows([each.in_flight for each in batch], labels)
        queueing.add_rows(_ages(now, [each.ready_ms for each in batch]), labels)
        ready.add_rows([each.lag - each.in_flight for each in batch], labels)

    def _write_queues(self, families: Sequence[MetricFamily], batch: Sequence[ReadTopic], now: int) -> None:
        rows = [row for each in batch for row in each.queue_rows]
        if rows:
            labels = self._queue_labels.of(rows)
            messages, latency = families
            messages.add_rows([lag for each in batch for lag in each.queue_lag], labels)
            latency.add_rows(_ages(now, [ms for each in batch for ms in each.queue_lagging_ms]), labels)


def _families(text: Exposition) -> Sequence[MetricFamily]:
    return (
        text.family("rocketmq_consumer_lag_messages", "gauge", "Messages that the group has not done"),
        text.family("rocketmq_consumer_lag_latency_milliseconds", "gauge", "Age of the oldest of these"),
        text.family(
            "rocketmq_consumer_inflight_messages", "gauge", "Messages that the group has, and has not done"
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
            "Messages of the queue that the group has not done",
        ),
        text.family("orbitmq_consumer_queue_lag_latency_milliseconds", "gauge", "Age of the oldest of these"),
    )


def _ages(now: int, stored_ms: Iterable[int]) -> list[int]:
    """The age of each message by its time; a time of 0 means that there is no message."""
    return [now - ms if 0 < ms < now else 0 for ms in stored_ms]
