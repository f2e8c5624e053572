"""The sizes of stored messages, from a sample: for limits in bytes before anything is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record_scan import scan_range
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, by_address, messages_at
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.spark")

# This many messages of the largest size have at most 256 MiB, so no sample is needed.
FEW_ROWS = 64
SAMPLE_MESSAGES = 32
KEEP_SECONDS = 60.0
# The assumed size of a message if no broker answered.
UNKNOWN_BYTES = 1024.0


@dataclass(slots=True)
class _Known:
    mean_bytes: float
    until: float


class Sizes:
    """Mean sizes of stored messages, requested once a minute at most.

    Args:
        group: the consumer group named in the requests.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._known: dict[MessageQueue, _Known] = {}
        self._clock = this_worker().clock

    def bytes_of(self, ranges: Iterable[QueueRange], queues: Mapping[MessageQueue, str]) -> int:
        """The approximate number of bytes stored in ``ranges``; for queues without an answer the mean of the
        other queues counts.

        Args:
            queues: for each queue, the address of its broker.
        """
        wanted = [item for item in ranges if item.rows > 0]
        now = self._clock.monotonic()
        stale = [item for item in wanted if item.queue in queues and not self._is_known(item.queue, now)]
        self._sample(stale, queues, now)
        means = {
            item.queue: self._known[item.queue].mean_bytes for item in wanted if item.queue in self._known
        }
        other = sum(means.values()) / len(means) if means else UNKNOWN_BYTES
        return round(sum(item.rows * means.get(item.queue, other) for item in wanted))

    def _is_known(self, queue: MessageQueue, now: float) -> bool:
        known = self._known.get(queue)
        return known is not None and now < known.until

    def _sample(self, ranges: list[QueueRange], queues: Mapping[MessageQueue, str], now: float) -> None:
        places = {item.queue: item for item in ranges}
        for address, owned in by_address({queue: queues[queue] for queue in places}).items():
            # The sample is from the middle, since the first messages of a topic are often tests.
            middles = ((queue, (places[queue].low + places[queue].high) // 2) for queue in owned)
            asked = [messages_at(queue, at, SAMPLE_MESSAGES, self._group) for queue, at in middles]
            try:
                answers = self._brokers.ask(address, asked)
            except OrbitError as error:
                log.info("message sizes are guessed, %s does not answer: %s", address, error)
                continue
            for queue, answer in zip(owned, answers, strict=True):
                mean = _mean_bytes(answer)
                if mean is not None:
                    self._known[queue] = _Known(mean, now + KEEP_SECONDS)


def _mean_bytes(answer: Command) -> float | None:
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    try:
        records = scan_range(answer.body, 0, 1 << 62, False).records
    except OrbitError:
        return None
    return len(answer.body) / records if records else None
