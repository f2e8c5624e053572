"""Which messages are in flight: popped, not acknowledged, and invisible to their group until a deadline.

Pure: the time is passed in. A message in flight is one number in its delivery; the delivery has the facts
that its messages share. A receipt names the delivery, so that no search is needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

SEPARATOR = "@"
# How many more ended deliveries than live ones the heaps below may hold before they are rebuilt.
SLACK = 64

# RocketMQ stores an acknowledgement when its message is due, and waits this long for it.
FOREIGN_GRACE_MS = 2000

# (offset where the pop began, time of the pop in ms): the contents of a receipt that name its delivery.
Receipt: TypeAlias = tuple[int, int]


def queue_key(topic: str, group: str, queue_id: int) -> str:
    """The key of one group's queue in tables."""
    return f"{topic}{SEPARATOR}{group}{SEPARATOR}{queue_id}"


class PopDelivery:
    """The messages that one pop took from one queue and are still in flight. Times are ms since the epoch.

    Attributes:
        start: the queue offset at which the pop began to read, part of its receipts.
        pop_time_ms, invisible_ms: their sum is when its messages become visible again.
        left: queue offsets of the messages in flight.
        postponed: its messages were not handled in time and now wait for the delay of the group's policy.
        foreign: a RocketMQ broker dealt the messages out, so acknowledgements may arrive a moment later.
        leaving: its messages are being put into another topic: it is too late to acknowledge them.
        dead: its messages were given up and go to the topic of the dead letters.
        why_dead: the reason, and the client that gave them up; kept only in memory.
        owner: the client that keeps the messages invisible while it works on them; empty: the deadline holds.
    """

    __slots__ = (
        "dead",
        "foreign",
        "invisible_ms",
        "key",
        "leaving",
        "left",
        "owner",
        "pop_time_ms",
        "postponed",
        "start",
        "why_dead",
    )

    def __init__(
        self, queue: PopQueue, start: int, pop_time_ms: int, invisible_ms: int, offsets: Iterable[int]
    ) -> None:
        self.start = start
        self.pop_time_ms = pop_time_ms
        self.invisible_ms = invisible_ms
        self.left = set(offsets)
        self.postponed = False
        self.foreign = False
        self.leaving = False
        self.dead = False
        self.why_dead: tuple[str, str] | None = None
        self.owner = ""
        self.key = f"{queue.key}{SEPARATOR}{start}{SEPARATOR}{pop_time_ms}"

    @property
    def due_ms(self) -> int:
        """When the messages become visible again."""
        return self.pop_time_ms + self.invisible_ms + (FOREIGN_GRACE_MS if self.foreign else 0)

    @property
    def receipt(self) -> Receipt:
        return self.start, self.pop_time_ms


class PopQueue:
    """One queue of a topic as popped by one group.

    Attributes:
        next: the offset of the next message to pop.
        deliveries: the deliveries with messages in flight.
        in_flight: how many messages are in flight.
        reported: ``next`` when it was last sent to other brokers and the disk; -1: it was never sent.
    """

    __slots__ = (
        "_lowest",
        "deliveries",
        "group",
        "in_flight",
        "key",
        "next",
        "queue_id",
        "reported",
        "topic",
    )

    def __init__(self, topic: str, group: str, queue_id: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.key = queue_key(topic, group, queue_id)
        self.next = 0
        self.deliveries: dict[Receipt, PopDelivery] = {}
        self.in_flight = 0
        self.reported = -1
        # A heap of (lowest offset, order of entry, delivery); ended deliveries are removed at its top.
        self._lowest: list[tuple[int, int, PopDelivery]] = []

    @property
    def floor(self) -> int:
        """The offset below which every message is done; at most :attr:`next`."""
        lowest = self._lowest
        while lowest:
            offset, number, delivery = lowest[0]
            if offset in delivery.left:
                break
            heapq.heappop(lowest)
            if delivery.left:
                heapq.heappush(lowest, (min(delivery.left), number, delivery))
        return min(lowest[0][0], self.next) if lowest else self.next

    def enter(self, delivery: PopDelivery, number: int) -> None:
        """Add a delivery."""
        self.deliveries[delivery.receipt] = delivery
        self.in_flight += len(delivery.left)
        if len(self._lowest) > 2 * len(self.deliveries) + SLACK:
            self._lowest = [entry for entry in self._lowest if entry[2].left]
            heapq.heapify(self._lowest)
        heapq.heappush(self._lowest, (min(delivery.left), number, delivery))


# Called with a queue and a changed delivery of the queue; a delivery without messages left has ended.
DeliveryChanged: TypeAlias = Callable[[PopQueue, PopDelivery], object]
# Called with each queue whose ``next`` or ``floor`` may have changed.
QueueMoved: TypeAlias = Callable[[PopQueue], object]


class InFlight:
    """All messages in flight of one broker.

    Args:
        changed, moved: called for every change, in this order, so that no position is saved or sent before
            the deliveries below it.
        begin: returns the first offset for a group that never popped a queue; gets topic, group, queue id.
    """

    def __init__(
        self,
        changed: DeliveryChanged,
        moved: QueueMoved,
        begin: Callable[[str, str, int], int] = lambda _topic, _group, _queue_id: 0,
    ) -> None:
        self._begin = begin
        self._changed = changed
        self._moved = moved
        self._queues: dict[tuple[str, str, int], PopQueue] = {}
        # A heap of (due time, order of entry, queue, delivery); ended deliveries are removed at its top.
        self._due: list[tuple[int, int, PopQueue, PopDelivery]] = []
        self._entered = 0
        self._alive = 0

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[tuple[str, str, int], PopQueue]:
        """The queues that groups have popped, by topic, group and queue id; not a copy."""
        return self._queues

    def __iter__(self) -> Iterator[PopQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return sum(queue.in_flight for queue in self._queues.values())

    @property
    def deliveries(self) -> int:
        """How many deliveries have messages in flight."""
        return self._alive

    def find(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """The queue; ``None`` when the group never popped it."""
        return self._queues.get((topic, group, queue_id))

    def queue(self, topic: str, group: str, queue_id: int) -> PopQueue:
        """The queue, which is created if it is missing."""
        key = (topic, group, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PopQueue(topic, group, queue_id)
            queue.next = self._begin(topic, group, queue_id)
        return queue

    # -- a message's way -------------------------------------------------------------------------------

    def take(
        self,
        queue: PopQueue,
        start: int,
        offsets: Sequence[int],
        next_offset: int,
        *,
        now_ms: int,
        invisible_ms: int,
    ) -> PopDelivery:
        """Add the messages taken by a pop that began at ``start``; the next pop begins at ``next_offset``."""
        delivery = PopDelivery(queue, start, now_ms, invisible_ms, offsets)
        self._enter(queue, delivery)
        queue.next = next_offset
        self._changed(queue, delivery)
        self.report(queue)
        return delivery

    def skip(self, queue: PopQueue, next_offset: int) -> None:
        """Move on to ``next_offset``: a pop found no message for this group below it."""
        queue.next = next_offset
        self.report(queue)

    def acknowledge(self, queue: PopQueue, receipt: Receipt, offsets: Iterable[int]) -> set[int]:
        """Acknowledge messages; returns those that were in flight under this receipt."""
        delivery = self.delivery(queue, receipt)
        if delivery is None:
            return set()
        done = delivery.left.intersection(offsets)
        if done:
            self.remove(queue, delivery, done)
        return done

    def delivery(self, queue: PopQueue, receipt: Receipt) -> PopDelivery | None:
        """The delivery of a receipt; ``None`` when it has ended or its messages are leaving."""
        delivery = queue.deliveries.get(receipt)
        return None if delivery is None or delivery.leaving else delivery

    def change(
        self, queue: PopQueue, receipt: Receipt, offset: int, *, now_ms: int, invisible_ms: int
    ) -> PopDelivery | None:
        """Give one message another deadline, and with it another receipt.

        Returns:
            Its new delivery; ``None`` when the message is not in flight under this receipt.
        """
        delivery = self.delivery(queue, receipt)
        if delivery is None or offset not in delivery.left:
            return None
        changed = PopDelivery(queue, offset, _free_time(queue, offset, now_ms), invisible_ms, (offset,))
        self._split(queue, delivery, changed)
        return changed

    def extend(self, queue: PopQueue, receipt: Receipt, *, due_ms: int) -> bool:
        """Give a delivery's remaining messages another deadline under the same receipt.

        Returns whether any message remains.
        """
        delivery = self.delivery(queue, receipt)
        if delivery is None:
            return False
        earlier = due_ms < delivery.due_ms
        delivery.invisible_ms = due_ms - delivery.pop_time_ms
        if earlier:
            self.again(queue, delivery, due_ms)
        self._changed(queue, delivery)
        return True

    def own(self, queue: PopQueue, receipt: Receipt, client_id: str) -> None:
        """Note which client keeps a delivery's remaining messages invisible."""
        delivery = self.delivery(queue, receipt)
        if delivery is not None:
            delivery.owner = client_id
            self._changed(queue, delivery)

    def give_up(
        self, queue: PopQueue, receipt: Receipt, offset: int, *, now_ms: int, why: tuple[str, str]
    ) -> bool:
        """Make one message a dead letter; returns whether it was in flight under this receipt."""
        delivery = self.delivery(queue, receipt)
        if delivery is None or offset not in delivery.left:
            return False
        self._split(queue, delivery, self._dead(queue, offset, now_ms, why))
        return True

    def add_dead(self, queue: PopQueue, offset: int, *, now_ms: int, why: tuple[str, str]) -> None:
        """Make a message that is in no delivery a dead letter."""
        self._add(queue, self._dead(queue, offset, now_ms, why))

    @staticmethod
    def _dead(queue: PopQueue, offset: int, now_ms: int, why: tuple[str, str]) -> PopDelivery:
        dead = PopDelivery(queue, offset, _free_time(queue, offset, now_ms), 0, (offset,))
        dead.dead, dead.why_dead = True, why
        return dead

    def add(self, queue: PopQueue, offset: int, *, now_ms: int, invisible_ms: int) -> PopDelivery:
        """Keep a message invisible that another broker has dealt out."""
        added = PopDelivery(queue, offset, _free_time(queue, offset, now_ms), invisible_ms, (offset,))
        self._add(queue, added)
        return added

    def _add(self, queue: PopQueue, added: PopDelivery) -> None:
        self._enter(queue, added)
        self._changed(queue, added)
        self.report(queue)

    def postpone(self, queue: PopQueue, delivery: PopDelivery, offset: int, delay_ms: int) -> None:
        """Let a message that was not handled in time become visible ``delay_ms`` after its deadline."""
        time_ms = _free_time(queue, offset, delivery.pop_time_ms)
        later = PopDelivery(queue, offset, time_ms, delivery.due_ms + delay_ms - time_ms, (offset,))
        later.postponed = True
        self._split(queue, delivery, later)

    def _split(self, queue: PopQueue, delivery: PopDelivery, changed: PopDelivery) -> None:
        """Move messages to a delivery of their own; at every moment they are in a delivery."""
        self._enter(queue, changed)
        self._changed(queue, changed)
        self.remove(queue, delivery, set(changed.left))

    def remove(self, queue: PopQueue, delivery: PopDelivery, offsets: set[int]) -> None:
        """Remove messages of a delivery: they are no longer in flight."""
        before = len(delivery.left)
        delivery.left -= offsets
        if len(delivery.left) == before:
            return  # this queue may be dropped already, and another queue have its key
        queue.in_flight -= before - len(delivery.left)
        if not delivery.left and queue.deliveries.pop(delivery.receipt, None) is not None:
            self._alive -= 1
        self._changed(queue, delivery)
        if queue.next >= 0:
            self.report(queue)

    # -- deadlines -------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the next delivery may be due; ``None``: no message is in flight."""
        while self._due and not self._due[0][3].left:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def take_due(self, now_ms: int, most: int) -> list[tuple[PopQueue, PopDelivery]]:
        """Up to ``most`` overdue deliveries, marked as leaving: their receipts are no longer valid."""
        found: list[tuple[PopQueue, PopDelivery]] = []
        while len(found) < most and self._due and self._due[0][0] <= now_ms:
            _, _, queue, delivery = heapq.heappop(self._due)
            if not delivery.left:
                continue
            if delivery.due_ms > now_ms:
                self.again(queue, delivery, delivery.due_ms)  # its deadline was extended
                continue
            delivery.leaving = True
            found.append((queue, delivery))
        return found

    def again(self, queue: PopQueue, delivery: PopDelivery, at_ms: int) -> None:
        """Make a delivery that could not leave, or only in part, due again at ``at_ms``."""
        self._entered += 1
        heapq.heappush(self._due, (at_ms, self._entered, queue, delivery))

    # -- changes from outside --------------------------------------------------------------------------

    def move(self, queue: PopQueue, offset: int) -> None:
        """Move the group to ``offset``: it pops from there, and messages from there on are not in flight."""
        before, queue.next = queue.next, offset
        # The position is sent first: a broker that gets only this deals some messages out twice, but loses
        # none.
        self.report(queue)
        for delivery in list(queue.deliveries.values()) if offset < before else ():
            self.remove(queue, delivery, {each for each in delivery.left if each >= offset})

    def drop(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget the queues of a deleted topic or group."""
        for queue in self:
            if queue.topic == topic or queue.group == group:
                self.drop_queue(queue)

    def drop_queue(self, queue: PopQueue) -> None:
        """Forget a queue: its topic or group was deleted, or another broker's newer state replaces it.

        This does not complete messages in flight: listeners get no higher position.
        """
        queue.next = -1
        for delivery in list(queue.deliveries.values()):
            self.remove(queue, delivery, set(delivery.left))
        self._queues.pop((queue.topic, queue.group, queue.queue_id), None)
        self._moved(queue)

    def forget(self, queue: PopQueue) -> None:
        """Forget a queue without calling listeners."""
        for delivery in queue.deliveries.values():
            self._alive -= 1
            delivery.left = set()
        self._queues.pop((queue.topic, queue.group, queue.queue_id), None)

    def clear(self) -> None:
        """Forget everything without calling listeners."""
        self._queues.clear()
        self._due.clear()
        self._alive = 0

    def restore(self, queue: PopQueue, delivery: PopDelivery) -> None:
        """Add a delivery that an earlier run, or another broker, has made."""
        known = queue.deliveries.pop(delivery.receipt, None)
        if known is not None:
            self._alive -= 1
            queue.in_flight -= len(known.left)
            known.left = set()
        if delivery.left:
            self._enter(queue, delivery)

    # -- inside ----------------------------------------------------------------------------------------

    def _enter(self, queue: PopQueue, delivery: PopDelivery) -> None:
        self._entered += 1
        self._alive += 1
        queue.enter(delivery, self._entered)
        if len(self._due) > 2 * self._alive + SLACK:
            self._due = [entry for entry in self._due if entry[3].left]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (delivery.due_ms, self._entered, queue, delivery))

    def report(self, queue: PopQueue) -> None:
        """Report the queue's position to the listener."""
        self._moved(queue)


def _free_time(queue: PopQueue, offset: int, time_ms: int) -> int:
    """The first time from ``time_ms`` on that is unique as a receipt's time at ``offset``."""
    while (offset, time_ms) in queue.deliveries:
        time_ms += 1
    return time_ms


def runs(offsets: Iterable[int], start: int) -> list[int]:
    """Offsets as pairs of numbers, the distance of a run from ``start`` and its length: short as text."""
    found: list[int] = []
    behind = None
    for offset in sorted(offsets):
        if offset == behind:
            found[-1] += 1
        else:
            found += (offset - start, 1)
        behind = offset + 1
    return found


def of_runs(numbers: Sequence[int], start: int) -> Iterator[int]:
    """The offsets that :func:`runs` encoded."""
    for at in range(0, len(numbers) - 1, 2):
        first = start + numbers[at]
        yield from range(first, first + numbers[at + 1])
