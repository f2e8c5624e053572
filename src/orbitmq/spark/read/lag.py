"""How far a query is behind the queues that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, by_address, max_offset, messages_at
from orbitmq.spark.cluster.times import stored_ms

# One message of each such queue is pulled for its time; the queues with the most rows first.
MOST_TIMES = 64


class QueueLag(NamedTuple):
    """One queue.

    Attributes:
        rows: from where the query is to the end of the queue.
        seconds: since the first of them was stored; 0 without rows, ``None`` when the broker did not tell.
    """

    rows: int
    seconds: float | None


class LagMeter:
    """Asks brokers for the lag of queries. A broker that is away is left out.

    Args:
        group: the consumer group in the requests.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group

    def lag(self, at: Mapping[MessageQueue, int]) -> dict[MessageQueue, QueueLag]:
        """The lag of every queue of ``at`` that can be asked, where ``at`` is where the query stands."""
        owners: dict[MessageQueue, str] = {}
        for topic in {queue.topic for queue in at}:
            try:
                readable = self._brokers.route(topic, refresh=True).readable
            except OrbitError:
                continue
            owners |= {queue: address for queue, address in readable.items() if queue in at}
        ends = self._brokers.offsets_where_possible(owners, max_offset)[0]
        rows = {queue: max(0, end - at[queue]) for queue, end in ends.items()}
        late = sorted((queue for queue, count in rows.items() if count), key=lambda queue: -rows[queue])
        seconds = self._seconds({queue: owners[queue] for queue in late[:MOST_TIMES]}, at)
        return {queue: QueueLag(count, seconds.get(queue) if count else 0.0) for queue, count in rows.items()}

    def _seconds(
        self, owners: dict[MessageQueue, str], at: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, float]:
        now_ms = this_worker().clock.now_ms()
        found: dict[MessageQueue, float] = {}
        for address, owned in by_address(owners).items():
            asked = [messages_at(queue, at[queue], 1, self._group) for queue in owned]
            try:
                answers = self._brokers.ask(address, asked)
            except OrbitError:
                continue
            for queue, answer in zip(owned, answers, strict=True):
                since = stored_ms(answer)
                if since is not None:
                    found[queue] = max(0, now_ms - since) / 1000
        return found
