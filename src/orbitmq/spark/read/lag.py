"""How far a query is behind the queues that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from orbitmq.errors import OrbitError, TopicNotFoundError
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


class Lag(NamedTuple):
    """One query.

    Attributes:
        queues: how far each queue is behind; those of a silent broker as far as is known.
        silent: the names of brokers that do not answer, or that the name servers do not show any more.
    """

    queues: dict[MessageQueue, QueueLag]
    silent: tuple[str, ...]


class _Seen(NamedTuple):
    """What a broker told of a queue when it answered last.

    Attributes:
        end: of the queue.
        since_ms: when the first message that the query has not read was stored. Without one, when that was
            so: anything may have come a moment later.
    """

    end: int
    since_ms: float


class LagMeter:
    """Asks brokers for the lag of queries. While one is silent, what it told last counts.

    Args:
        group: the consumer group in the requests.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._seen: dict[str, dict[MessageQueue, _Seen]] = {}

    def lag(self, query_id: str, at: Mapping[MessageQueue, int]) -> Lag:
        """The lag of every queue of ``at`` of which something is known.

        Args:
            at: where the query stands.

        Raises:
            OrbitError: a broker refuses to tell.
        """
        owners = self._owners({queue.topic for queue in at})
        asked = {queue: owners[queue] for queue in at if queue in owners}
        ends = self._brokers.offsets_where_possible(asked, max_offset)[0]
        queues = self._lags(ends, asked, at)
        seen = {queue: known for queue, known in self._seen.get(query_id, {}).items() if queue in at}
        # Name servers take a silent broker from the routes. One that was never there, as far as is known
        # here, may have been taken out for good: old checkpoints name such brokers too.
        shown = {(queue.topic, queue.broker_name) for queue in owners}
        gone = {queue for queue in seen if (queue.topic, queue.broker_name) not in shown}
        missing = gone | (asked.keys() - ends.keys())
        now_ms = this_worker().clock.now_ms()
        for queue in missing & seen.keys():
            known = seen[queue]
            queues[queue] = QueueLag(max(0, known.end - at[queue]), max(0, now_ms - known.since_ms) / 1000)
        for queue, end in ends.items():
            seconds = queues[queue].seconds
            if seconds is not None:
                seen[queue] = _Seen(end, now_ms - seconds * 1000)
            else:
                seen[queue] = _Seen(end, seen[queue].since_ms if queue in seen else now_ms)
        self._seen[query_id] = seen
        return Lag(queues, tuple(sorted({queue.broker_name for queue in missing})))

    def forget(self, query_id: str) -> None:
        """The query has ended."""
        self._seen.pop(query_id, None)

    def _owners(self, topics: Iterable[str]) -> dict[MessageQueue, str]:
        """Whom to ask, by the newest routes that can be had."""
        owners: dict[MessageQueue, str] = {}
        for topic in topics:
            try:
                owners |= self._brokers.route(topic, refresh=True).readable
            except TopicNotFoundError:
                continue
            except OrbitError:
                with suppress(OrbitError):
                    owners |= self._brokers.route(topic).readable
        return owners

    def _lags(
        self,
        ends: Mapping[MessageQueue, int],
        owners: Mapping[MessageQueue, str],
        at: Mapping[MessageQueue, int],
    ) -> dict[MessageQueue, QueueLag]:
        """The lag of queues whose ends are known."""
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
