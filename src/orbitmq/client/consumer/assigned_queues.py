"""The queues that a consumer works on now: begun with, pulled, handed over to others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from orbitmq.client.consumer.delivery import Dispatch
from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import FlowLimits, QueueReader
from orbitmq.client.consumer.queue_locks import QueueLocks
from orbitmq.client.core.broker_calls import BrokerCalls, Filter, PullOptions
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.tasks import Background

log = logging.getLogger("orbitmq.client")

# How long a queue that goes to another member waits for the messages in hand. Shorter than the pause that the
# other makes before it asks for the offset (rebalance.HAND_OVER_S), so that it does not get them again.
HAND_IN_S = 0.15
# A locked queue waits longer: the other member cannot begin before it is unlocked (LK-08).
ORDERED_HAND_IN_S = 20.0


class OwnedQueues:
    """Begins with queues, hands them over, and knows how far each is.

    Args:
        background: where the pull loops run.
        dispatch: gets what is pulled.
        filters: what is wanted of each topic, live.
        start: finds the offset to begin at.
        locks: for ordered consuming in a group, else None.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        background: Background,
        offsets: Offsets,
        dispatch: Dispatch,
        filters: Mapping[str, Filter],
        options: PullOptions,
        limits: FlowLimits,
        start: Callable[[MessageQueue], Awaitable[int]],
        locks: QueueLocks | None = None,
    ) -> None:
        self._client = client
        self._calls = calls
        self._background = background
        self._offsets = offsets
        self._dispatch = dispatch
        self._filters = filters
        self._options = options
        self._limits = limits
        self._start = start
        self._locks = locks
        self._readers: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._taking: set[MessageQueue] = set()
        self._leaving: set[MessageQueue] = set()

    # -- for the rebalancer ------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return sorted(self._filters)

    def owned(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._readers if queue.topic == topic}

    async def take(self, queue: MessageQueue) -> bool:
        """Find out where to begin and start to pull; False when the offset or the lock cannot be had now."""
        if queue in self._readers or queue in self._taking:
            return True
        if queue in self._leaving:
            return False
        self._taking.add(queue)
        try:
            if self._locks is not None and not await self._locks.lock(queue):
                log.info("another member still holds the lock of %s", queue)
                return False
            offset = await self._start(queue)
        except OrbitError as error:
            log.info("cannot begin with %s now: %s", queue, error)
            return False
        finally:
            self._taking.discard(queue)
        self._begin(queue, self._offsets.claim(queue, offset))
        return True

    async def drop(self, queue: MessageQueue) -> None:
        """Another member has the queue now: stop at once, and leave the offset behind what was in hand."""
        held = self._stop(queue)
        if held is None:
            return
        if self._locks is None:
            await self._hand_over(held, HAND_IN_S)
            return
        self._leaving.add(queue)
        if held.in_hand:
            self._background.spawn(self._hand_over_locked(held, self._locks), "hand over")
        else:
            await self._hand_over_locked(held, self._locks)

    # -- for the consumer --------------------------------------------------------------------------------

    def held(self) -> dict[MessageQueue, ProcessQueue]:
        return {queue: reader.held for queue, (reader, _) in sorted(self._readers.items())}

    async def drop_unwanted(self) -> None:
        """Give up the queues of topics that are not subscribed to any more."""
        for queue in [queue for queue in self._readers if queue.topic not in self._filters]:
            await self.drop(queue)

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from other offsets, as an operator ordered (RESET_CONSUMER_CLIENT_OFFSET)."""
        for queue, offset in offsets.items():
            held = self._stop(queue)
            if held is None:
                continue
            held.released = True
            self._offsets.update(queue, offset, increase_only=False)
            await self._offsets.commit([queue])
            self._begin(queue, offset)

    async def close(self) -> None:
        """The pull loops are stopped: commit, and give the locks back."""
        for held in self.held().values():
            held.dropped = held.released = True
        await self._offsets.commit()
        if self._locks is not None:
            await self._locks.unlock_all()

    # -- one queue ---------------------------------------------------------------------------------------

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        held = ProcessQueue(queue, offset)
        reader = QueueReader(
            self._client,
            self._calls,
            self._options,
            self._limits,
            held,
            lambda: self._filters.get(queue.topic) or Filter(),
            self._dispatch.arrived,
            self._offsets,
        )
        name = f"pull {queue.topic} {queue.broker_name}[{queue.queue_id}]"
        self._readers[queue] = reader, self._background.spawn(reader.run(), name)

    def _stop(self, queue: MessageQueue) -> ProcessQueue | None:
        found = self._readers.pop(queue, None)
        if found is None:
            return None
        reader, task = found
        reader.held.dropped = True
        task.cancel()
        return reader.held

    async def _hand_over(self, held: ProcessQueue, wait_s: float) -> None:
        clock = self._client.runtime.clock
        until = clock.monotonic() + wait_s
        while held.in_hand and clock.monotonic() < until:
            await clock.sleep(0.005)
        held.released = True
        await self._offsets.commit([held.queue])
        self._offsets.release(held.queue)

    async def _hand_over_locked(self, held: ProcessQueue, locks: QueueLocks) -> None:
        try:
            await self._hand_over(held, ORDERED_HAND_IN_S)
            await locks.unlock([held.queue])
        finally:
            self._leaving.discard(held.queue)
