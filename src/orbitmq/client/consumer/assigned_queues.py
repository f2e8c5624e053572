"""The queues that a consumer pulls: their start, their pull loops, their hand-over to other members."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace

from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.intake import FetchControl
from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import FlowLimits, QueuePuller
from orbitmq.client.consumer.queue_locks import MemberLocks
from orbitmq.client.consumer.redelivery import RedeliveryPolicy
from orbitmq.client.core.broker_calls import BrokerCalls, PullOptions, QueueOffset
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.tasks import Background
from orbitmq.runtime.waiters import Waiters

log = logging.getLogger("orbitmq.client")

# How long a queue that moves to another member waits for its messages in flight. The time is shorter than the
# pause of the other member before its request for the offset (rebalance.HAND_OVER_S), so that the other
# member does not receive these messages again.
DRAIN_S = 0.15
# A locked queue waits longer: the other member cannot begin before it is unlocked (LK-08).
ORDERED_DRAIN_S = 20.0


class AssignedQueues:
    """Starts queues, pulls them, and hands them over.

    Args:
        background: where the pull loops run.
        delivery: takes the pulled messages.
        intake: the filters and pauses of the topics.
        start: finds the start offset, at the broker that granted the lock if there is a lock.
        locks: for ordered consuming in a group, else None.
        consume_timeout_s: with order: how long a handler that began before a move may delay later messages.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        background: Background,
        offsets: Offsets,
        delivery: Delivery,
        intake: FetchControl,
        options: PullOptions,
        limits: FlowLimits,
        start: Callable[[MessageQueue, str | None], Awaitable[QueueOffset]],
        locks: MemberLocks | None = None,
        consume_timeout_s: float = 900.0,
    ) -> None:
        self._client = client
        self._calls = calls
        self._background = background
        self._offsets = offsets
        self._delivery = delivery
        self._intake = intake
        self._options = options
        self._limits = limits
        self._start = start
        self._locks = locks
        self._consume_timeout_s = consume_timeout_s
        self._pullers: dict[MessageQueue, tuple[QueuePuller, asyncio.Task[None]]] = {}
        # Queues whose offset or lock is being requested, and the offset at which they begin; None: the
        # group's offset.
        self._taking: dict[MessageQueue, int | None] = {}
        # The start offsets that the user set for queues that are not taken yet, in place of the group's
        # offsets.
        self._begins: dict[MessageQueue, int] = {}
        # The queues that the user chose; None while the group's members share the queues.
        self._chosen: frozenset[MessageQueue] | None = None
        # Retries failed messages of the chosen queues in this process.
        self._redelivery: RedeliveryPolicy | None = None
        # Queues under hand-over. They are not taken again before it ends: otherwise two pull loops would run
        # for one queue, and messages in flight would be pulled again.
        self._leaving: set[MessageQueue] = set()

    # -- for the rebalancer ------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._intake.topics()

    def assigned(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._pullers if queue.topic == topic}

    async def take(self, queue: MessageQueue) -> bool:
        """Find the start offset and begin to pull; returns whether the queue is taken.

        False if the offset or the lock is not available now, or while the queue's hand-over is under way.
        """
        if queue in self._pullers or queue in self._taking:
            return True
        if queue in self._leaving:
            return False
        self._taking[queue] = self._begins.get(queue)
        try:
            taken = await self._take(queue)
        finally:
            del self._taking[queue]
        if taken:
            self._begins.pop(queue, None)
        return taken

    async def _take(self, queue: MessageQueue) -> bool:
        begin = leader = None
        try:
            # The offset comes from the broker that granted the lock: the route may change meanwhile, and
            # another broker, such as a slave, may have older offsets.
            if self._locks is not None and (leader := await self._locks.lock(queue)) is None:
                log.info("another member still holds the lock of %s", queue)
                return False
            begin = await self._start(queue, leader)
            own = self._offsets.kept(queue)
            # A queue that ends before that offset is a new one: its broker lost its data, or the topic was
            # created again.
            is_ahead = (
                own.offset > begin.offset
                and own.made_at == begin.made_at
                and own.offset <= (await self._calls.max_offset(queue, leader)).offset
            )
            if is_ahead and self._taking[queue] is None:
                self._taking[queue] = own.offset
        except OrbitError as error:
            begin = None  # a guessed offset would repeat messages
            log.info("cannot begin with %s now: %s", queue, error)
        # Lock and subscription may have changed meanwhile.
        locked = self._locks is None or self._locks.holds(queue)
        if begin is not None and locked and self._is_wanted(queue):
            self._offsets.forget([queue])
            other = self._taking[queue]
            if other is not None:
                self._offsets.update(queue, other, increase_only=False)
            process_queue = self._open(queue, begin.offset if other is None else other)
            process_queue.made_at = begin.made_at
            self._run(process_queue)
            return True
        if self._locks is not None and locked:
            # Renewing this lock with the others would keep the queue from its next member.
            await self._locks.unlock([queue])
        return False

    async def drop(self, queue: MessageQueue) -> None:
        """Hand a queue over to another member: stop pulling at once, commit the offset after the messages in
        flight.
        """
        process_queue = self._stop(queue)
        if process_queue is None:
            return
        if self._locks is not None and process_queue.in_flight:
            self._background.spawn(self._hand_over(process_queue), "hand over")
        else:
            await self._hand_over(process_queue)

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        return None if self._chosen is None else {queue for queue in self._chosen if queue.topic == topic}

    def left_to_others(self, queues: Iterable[MessageQueue]) -> None:
        self._offsets.forget(queues)

    # -- for the consumer --------------------------------------------------------------------------------

    def process_queues(self) -> dict[MessageQueue, ProcessQueue]:
        return {queue: puller.process_queue for queue, (puller, _) in sorted(self._pullers.items())}

    async def drop_unwanted(self) -> None:
        """Give up the queues of topics without a subscription."""
        for queue in list(self._pullers):
            if queue.topic not in self._intake:
                await self.drop(queue)

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets, for the user or an operator (RESET_CONSUMER_CLIENT_OFFSET).

        There is no await while a queue has no pull loop, because the rebalancer would count the queue as
        lost.
        """
        for queue, offset in offsets.items():
            if queue in self._taking:
                self._taking[queue] = offset
            self._go_on(queue, offset)
        await self._offsets.commit_unasked(offsets)

    def pauses_changed(self) -> None:
        """Apply a change of the paused topics."""
        for queue, process_queue in self.process_queues().items():
            self._intake.count([process_queue], queue.topic)

    async def close(self) -> None:
        """Commit and unlock the queues, after the pull loops have stopped."""
        for process_queue in self.process_queues().values():
            process_queue.drop(released=True)
        await self._offsets.commit_unasked()
        if self._locks is not None:
            await self._locks.unlock_all()

    # -- for queues that the user chooses ------------------------------------------------------------------

    def choose(
        self, queues: Iterable[MessageQueue], changed: Collection[str], redelivery: RedeliveryPolicy
    ) -> None:
        """Read these queues and leave all others at once; ``redelivery`` retries failed messages.

        Each pull carries its filter from here on, since other members of the group may have other filters.

        Args:
            changed: topics whose filter has changed. Their queues continue after the last message that the
                user's code got: messages pulled with the former filter are dropped, and messages that it
                rejected are filtered again.
        """
        self._chosen = chosen = frozenset(queues)
        self._redelivery = redelivery
        self._options = replace(self._options, with_filter=True)
        for queue in [queue for queue in self._begins if queue not in chosen]:
            del self._begins[queue]
        for queue, process_queue in self.process_queues().items():
            if queue not in chosen:
                self._stop(queue)
                self._background.spawn(self._hand_over(process_queue), "hand over")
            elif queue.topic in changed:
                self._go_on(queue, min(process_queue.behind, process_queue.position()))

    def begin_of(self, queue: MessageQueue) -> int | None:
        """The start offset that the user set for a queue not taken yet; None: the group's offset."""
        return self._begins.get(queue)

    def begin_at(self, queue: MessageQueue, offset: int) -> None:
        """Set the first offset of a queue that is not taken yet."""
        self._begins[queue] = offset
        if queue in self._taking:
            self._taking[queue] = offset

    # -- one queue ---------------------------------------------------------------------------------------

    def _is_wanted(self, queue: MessageQueue) -> bool:
        return queue.topic in self._intake and (self._chosen is None or queue in self._chosen)

    def _open(self, queue: MessageQueue, offset: int, changes: Waiters | None = None) -> ProcessQueue:
        """Create the queue's process queue; the queue's offset follows its progress."""
        total = self._intake.total_for(queue.topic)
        process_queue = ProcessQueue(queue, offset, total, self._delivery.settled, changes)
        process_queue.redelivery = self._redelivery
        self._offsets.follow(queue, process_queue)
        return process_queue

    def _anew(self, old: ProcessQueue, offset: int) -> ProcessQueue:
        """Continue a queue at another offset: messages held or in flight do not count any more."""
        # Messages that were in flight before the move count as in flight in the new process queue.
        new = self._open(old.queue, offset, old.changes)
        new.made_at = old.made_at
        self._offsets.update(old.queue, offset, increase_only=False)
        if self._delivery.ordered and old.at_work:
            # The offset moves and pulls continue at once, but the next handler waits: at most one handler has
            # a queue (CR-18).
            old.drop()
            new.before, new.busy = old, True
            self._background.spawn(self._when_let_go(old, new), "handlers of before a move")
        else:
            old.drop(released=True)
        return new

    async def _when_let_go(self, old: ProcessQueue, new: ProcessQueue) -> None:
        """Deliver the messages after a move when the handlers that began before it have ended.

        A handler that never ends delays its queue by the consume timeout, the longest time for which a
        handler may have a message.
        """
        await old.changes.until(lambda: not old.at_work or old.released, self._consume_timeout_s)
        old.drop(released=True)
        new.before = None
        self._delivery.release(new)

    def _go_on(self, queue: MessageQueue, offset: int) -> None:
        found = self._pullers.get(queue)
        if found is not None:
            puller, task = found
            task.cancel()
            self._run(self._anew(puller.process_queue, offset))

    def _run(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        puller = QueuePuller(
            self._client,
            self._calls,
            self._options,
            self._limits,
            process_queue,
            self._intake,
            self._delivery.arrived,
            self._offsets,
            self._anew,
        )
        name = f"pull {queue.topic} {queue.broker_name}[{queue.queue_id}]"
        self._pullers[queue] = puller, self._background.spawn(puller.run(), name)

    def _stop(self, queue: MessageQueue) -> ProcessQueue | None:
        found = self._pullers.pop(queue, None)
        if found is None:
            return None
        puller, task = found
        puller.process_queue.drop()
        task.cancel()
        self._leaving.add(queue)
        return puller.process_queue

    async def _hand_over(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        try:
            drain_s = DRAIN_S if self._locks is None else ORDERED_DRAIN_S
            await process_queue.changes.until(lambda: not process_queue.in_flight, drain_s)
            process_queue.drop(released=True)
            await self._offsets.commit_unasked([queue])
            route = self._client.route(queue.topic)
            away = route is not None and queue.broker_name not in route.addresses
            self._offsets.release(queue, away=away, made_at=process_queue.made_at)
            if self._locks is not None:
                await self._locks.unlock([queue])
        finally:
            self._leaving.discard(queue)
