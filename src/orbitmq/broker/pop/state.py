"""The messages in flight as a table of the broker: on disk, in the change feed, and in the groups' offsets.

A group's committed offset is where its next pop begins, as in RocketMQ. On disk, and for other brokers, it is
the first message that is not done: a broker that takes the offset without this table, such as a Java broker
after a crash, deals some messages out again and loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from orbitmq.broker.change_feed import POP_DELIVERIES, POPS, ChangeFeed, FedTable
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.pretty import file_text, quoted
from orbitmq.broker.pop.in_flight import SEPARATOR, InFlight, PopDelivery, PopQueue, of_runs, runs

NEVER_MS = 1 << 62
# The key of the table's only entry that is no queue: the marks (:func:`hand_over.marks`).
MARKS = "marks"
_POSTPONED, _FOREIGN, _DEAD = 1, 2, 4

# The plain form of a delivery: times, bits and runs of offsets, and then its owner if it has one.
Plain: TypeAlias = list[int | str]


class PopState:
    """The table of the messages in flight, with its :class:`InFlight`.

    Args:
        marks: returns numbers that show whether another broker has written since (``hand_over.marks``).

    Attributes:
        looks_at_ms: when the reviver checks deadlines next.
        wake: set when there is an earlier deadline; the reviver clears it.
        known_marks: the marks up to which this table has every check point; ``None``: there was no file.
    """

    def __init__(
        self, feed: ChangeFeed, offsets: ConsumerOffsets, marks: Callable[[], list[int]] = list
    ) -> None:
        self._feed = feed
        self._offsets = offsets
        self.in_flight = InFlight(self._delivery_changed, self._queue_moved, self._begin)
        self.looks_at_ms = 0
        self.wake = asyncio.Event()
        self.marks = marks
        self.known_marks: list[int] | None = None
        # Deliveries are registered before positions: a broker that gets only the first changes then has no
        # position without its deliveries.
        feed.register(
            POP_DELIVERIES,
            FedTable(
                _plain,
                self._apply_delivery,
                items=self._deliveries,
                is_news=self._is_unknown,
                whole=lambda key: (POPS, key.rsplit(SEPARATOR, 2)[0]),
            ),
        )
        feed.register(
            POPS,
            FedTable(
                _plain_position,
                self._apply_queue,
                items=self._positions,
                is_news=self._is_ahead,
                restore=self._restore_queue,
            ),
        )

    def _begin(self, topic: str, group: str, queue_id: int) -> int:
        return max(0, self._offsets.query(group, topic, queue_id) or 0)

    def _delivery_changed(self, queue: PopQueue, delivery: PopDelivery) -> None:
        left = delivery.left
        self._feed.changed(POP_DELIVERIES, delivery.key, delivery if left else None)
        if left and delivery.due_ms < self.looks_at_ms:
            self.looks_at_ms = 0
            self.wake.set()

    def _queue_moved(self, queue: PopQueue) -> None:
        if queue.next < 0:
            self._feed.changed(POPS, queue.key, None)
            return
        if queue.next != queue.reported:
            queue.reported = queue.next
            self._feed.changed(POPS, queue.key, queue.next)
        self._offsets.keep(queue.group, queue.topic, queue.queue_id, queue.floor)

    def note_marks(self) -> None:
        """Note in the table that it has all check points that are in the log now."""
        self.known_marks = self.marks()
        self._feed.changed(POPS, MARKS, self.known_marks)

    def _positions(self) -> list[tuple[str, int]]:
        return [(queue.key, queue.next) for queue in self.in_flight if queue.next >= 0]

    def _deliveries(self) -> list[tuple[str, PopDelivery]]:
        return [
            (delivery.key, delivery) for queue in self.in_flight for delivery in queue.deliveries.values()
        ]

    def adopt(self, queue: PopQueue, delivery: PopDelivery) -> None:
        """Add a delivery of another broker."""
        self.in_flight.restore(queue, delivery)
        self._delivery_changed(queue, delivery)
        self.in_flight.report(queue)

    # -- changes of another broker, or of an earlier run -------------------------------------------------

    def _queue_of(self, key: str) -> PopQueue:
        topic, group, queue_id = key.rsplit(SEPARATOR, 2)
        return self.in_flight.queue(topic, group, int(queue_id))

    def _popped_to(self, key: str) -> int | None:
        """Where the next pop of a queue begins, also if its group never popped it.

        ``None``: a reset is pending, which discards messages popped before it.
        """
        topic, group, number = key.rsplit(SEPARATOR, 2)
        queue_id = int(number)
        if self._offsets.has_reset(group, topic, queue_id):
            return None
        queue = self.in_flight.find(topic, group, queue_id)
        return self._begin(topic, group, queue_id) if queue is None else queue.next

    def _is_ahead(self, key: str, position: int | None) -> bool:
        if key == MARKS or position is None:
            return False
        known = self._popped_to(key)
        return known is not None and position > known

    def _is_unknown(self, key: str, plain: Plain | None) -> bool:
        """Whether a delivery holds messages that this broker has not dealt out yet."""
        name, start, _ = key.rsplit(SEPARATOR, 2)
        known = self._popped_to(name)
        if plain is None or known is None:
            return False
        return any(offset >= known for offset in _offsets_of(plain, int(start)))

    def _restore_queue(self, key: str, value: Any) -> None:
        if key == MARKS:
            self.known_marks = list(value)
        else:
            self._apply_queue(key, value)

    def _apply_queue(self, key: str, position: int | None) -> None:
        if key == MARKS:
            return  # these marks are another broker's; this broker has its own
        queue = self._queue_of(key)
        if position is None:
            self.in_flight.forget(queue)
        else:
            queue.next = queue.reported = int(position)
        self._feed.changed(POPS, key, position)

    def _apply_delivery(self, key: str, plain: Plain | None) -> None:
        name, start, pop_time = key.rsplit(SEPARATOR, 2)
        queue = self._queue_of(name)
        delivery = _delivery(queue, int(start), int(pop_time), plain)
        self.in_flight.restore(queue, delivery)
        self._feed.changed(POP_DELIVERIES, key, delivery if delivery.left else None)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``popInFlight.json``, piece by piece. A queue is one piece, so that its position and its deliveries
        are of one moment."""
        marks = msgspec.json.encode(self.marks()).decode()
        return file_text([("marks", marks), ("queues", self._entries())])

    def _entries(self) -> Iterator[tuple[str, str]]:
        for queue in self.in_flight:
            deliveries = [
                [delivery.start, delivery.pop_time_ms, *_plain(delivery)]
                for delivery in queue.deliveries.values()
            ]
            content = msgspec.json.encode({"next": queue.next, "deliveries": deliveries})
            yield quoted(queue.key), content.decode()

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``popInFlight.json``."""
        self.known_marks = list(content.get("marks") or ())
        for key, plain in (content.get("queues") or {}).items():
            queue = self._queue_of(key)
            queue.next = queue.reported = int(plain["next"])
            for start, pop_time, *rest in plain["deliveries"]:
                self.in_flight.restore(queue, _delivery(queue, int(start), int(pop_time), rest))


def _plain_position(value: int | list[int]) -> int | list[int]:
    return value


def _plain(delivery: PopDelivery) -> Plain:
    bits = _POSTPONED * delivery.postponed + _FOREIGN * delivery.foreign + _DEAD * delivery.dead
    owner = (delivery.owner,) if delivery.owner else ()
    return [delivery.invisible_ms, bits, *runs(delivery.left, delivery.start), *owner]


def _offsets_of(plain: Plain, start: int) -> Iterator[int]:
    return of_runs([number for number in plain[2:] if isinstance(number, int)], start)


def _delivery(queue: PopQueue, start: int, pop_time_ms: int, plain: Plain | None) -> PopDelivery:
    if plain is None:
        return PopDelivery(queue, start, pop_time_ms, 0, ())
    delivery = PopDelivery(queue, start, pop_time_ms, int(plain[0]), _offsets_of(plain, start))
    bits = int(plain[1])
    delivery.postponed = bool(bits & _POSTPONED)
    delivery.foreign = bool(bits & _FOREIGN)
    delivery.dead = bool(bits & _DEAD)
    if isinstance(plain[-1], str):
        delivery.owner = plain[-1]
    return delivery
