"""Finds messages in flight whose redelivery is already in the log: a crash came before that was noted.

The search reads all redeliveries since the oldest overdue one. That may take long, so it is done in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from orbitmq.broker.messaging.stored import record_of
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.in_flight import InFlight, PopDelivery, PopQueue
from orbitmq.message import property_names
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import decode_properties
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

# A redelivery is stored at its deadline or later, by the same clock; a margin for steps of that clock.
CLOCK_MARGIN_MS = 10_000
# How many records are read in one turn of the event loop: about 2 ms.
RECORDS = 128
# How many entries of tables and queues are looked up in one turn of the event loop.
LOOKS = 1000


class Revived:
    """Ends the flight of messages whose redelivery is stored.

    Args:
        targets: returns the topics in which a queue's messages are redelivered.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigs,
        in_flight: InFlight,
        targets: Callable[[PopQueue], Iterable[str]],
    ) -> None:
        self._store = store
        self._topics = topics
        self._in_flight = in_flight
        self._targets = targets

    async def forget(self, now_ms: int) -> None:
        """End the flight of each overdue message that has a redelivery. No message may be redelivered
        meanwhile."""
        for topic, found in (await self._overdue(now_ms)).items():
            since = min(delivery.due_ms for _, delivery in found) - CLOCK_MARGIN_MS
            revived = await self._since(topic, since)
            async for queue, delivery in in_slices(found if revived else (), LOOKS // 10):
                stored = {
                    offset
                    for offset in delivery.left
                    if (entry := self._store.entry(queue.topic, queue.queue_id, offset)) is not None
                    and entry[0] in revived
                }
                if stored:
                    self._in_flight.remove(queue, delivery, stored)

    async def _overdue(self, now_ms: int) -> dict[str, list[tuple[PopQueue, PopDelivery]]]:
        overdue: dict[str, list[tuple[PopQueue, PopDelivery]]] = {}
        async for queue, delivery in in_slices(self._deliveries(), LOOKS):
            if delivery.due_ms <= now_ms:
                for topic in self._targets(queue):
                    overdue.setdefault(topic, []).append((queue, delivery))
        return overdue

    def _deliveries(self) -> Iterator[tuple[PopQueue, PopDelivery]]:
        for queue in self._in_flight:
            for delivery in list(queue.deliveries.values()):
                yield queue, delivery

    async def _since(self, topic: str, time_ms: int) -> set[int]:
        """The places in the log of the messages that were redelivered into a topic since a time."""
        revived: set[int] = set()
        if topic not in self._topics:
            return revived
        offset = self._store.offset_by_time(topic, 0, time_ms)
        async for each in in_slices(range(offset, self._store.max_offset(topic, 0)), RECORDS):
            record = record_of(self._store, topic, 0, each)
            if record is not None:
                text = decode_properties(record.properties).get(property_names.POP_REVIVED_FROM, "")
                place = whole_number(text)
                if place is not None:
                    revived.add(place)
        return revived
