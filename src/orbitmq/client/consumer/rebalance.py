"""Rebalancing: adapts the queues of this member to changes of the group and of the routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from orbitmq.client.consumer.allocation import Allocation, ByBroker
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.routing import TopicRoute
from orbitmq.errors import OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies.pop import MessageRequestMode

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")

INTERVAL_S = 20.0
# Pause before the next round after an incomplete one (no member list, no offset).
RETRY_S = 1.0
# Delay before this member takes a queue that another member may still have: brokers notify both members of
# the change at the same moment, and the other one commits its offsets in this time.
HAND_OVER_S = 0.25
# Twice the time for which an assigning broker caches the routes.
LATE_ROUTE_S = 10.0


class QueueOwner(Protocol):
    """Takes and drops queues, by the rebalancer's decisions."""

    def assigned(self, topic: str) -> set[MessageQueue]: ...

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to consume a queue; returns False if the rebalancer has to try again."""
        ...

    async def drop(self, queue: MessageQueue) -> None: ...


class PulledOwner(QueueOwner, Protocol):
    """The owner of the queues that are pulled."""

    def topics(self) -> Iterable[str]: ...

    def chosen(self, topic: str) -> set[MessageQueue] | None:
        """The queues of a topic that the user chose; None: the group's members share the topic."""
        ...

    def left_to_others(self, queues: Iterable[MessageQueue]) -> None:
        """Receive the topic's queues that exist and belong to other members."""
        ...


class Rebalancer:
    """Decides which queues this member has: after each change, and every 20 s.

    Queues that the user chose are taken without a decision.

    Args:
        owner: the owner of the pulled queues.
        popped: the owner of the queues that the broker assigns for popping; None if the consumer cannot pop.
        allocate: the strategy of the group, or ``ByBroker``; None: every member has all queues
            (broadcasting).
        changed: called after each round of a topic.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        group: str,
        owner: PulledOwner,
        popped: QueueOwner | None,
        allocate: Allocation | ByBroker | None,
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._calls = calls
        self._group = group
        self._owner = owner
        self._popped = popped
        self._allocate = allocate
        self._changed = changed
        self._wake = asyncio.Event()
        # The time at which the assigning broker first left out a queue of the routes, in monotonic seconds.
        self._left_out: dict[MessageQueue, float] = {}

    def soon(self) -> None:
        """Rebalance at once: the members, a route or a subscription changed."""
        self._wake.set()

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            self._wake.clear()
            try:
                complete = await self.once()
            except Exception:
                # The loop continues after any error: without it this member would never again take or drop a
                # queue.
                log.exception("rebalance of group %s failed", self._group)
                complete = False
            await self._wait(INTERVAL_S if complete else RETRY_S)

    async def _wait(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def once(self) -> bool:
        """One round over all topics; returns whether each of them was decided."""
        return all(await asyncio.gather(*(self._rebalance(topic) for topic in self._owner.topics())))

    async def _rebalance(self, topic: str) -> bool:
        try:
            route = await self._client.find_route(topic, for_send=False)
            await self._client.heartbeat(only_new=True)
            if (chosen := self._owner.chosen(topic)) is not None:
                return await self._change(route, {self._owner: chosen}, shared=False)
            if isinstance(self._allocate, ByBroker):
                return await self._take_from_broker(topic, route, self._allocate.strategy)
            members = await self._members(route) if self._allocate is not None else []
        except TopicNotFoundError:
            # The shared core requests the route twice a second, and calls back when there is one.
            return True
        except OrbitError as error:
            log.info("group %s cannot share the queues of %s now: %s", self._group, topic, error)
            return False
        if self._allocate is None:
            return await self._change(route, {self._owner: set(route.subscribe)}, shared=False)
        if self._client.client_id not in members:
            # The broker does not list this member, so the other members share the queues without it.
            await self._client.heartbeat()
            return False
        wanted = set(self._allocate(self._client.client_id, sorted(route.subscribe), members))
        self._owner.left_to_others(set(route.subscribe) - wanted)
        return await self._change(route, {self._owner: wanted}, shared=len(members) > 1)

    async def _take_from_broker(self, topic: str, route: TopicRoute, strategy: str) -> bool:
        """Take the queues that the broker assigns, to pull or to pop."""
        assigned = await self._of_first(
            route, lambda a: self._calls.assignment(a, self._group, topic, strategy)
        )
        if assigned is None:
            return False
        pulled = {queue for queue, mode in assigned if mode is MessageRequestMode.PULL}
        popped = {queue for queue, _ in assigned} - pulled
        wanted: dict[QueueOwner, set[MessageQueue]] = {self._owner: pulled}
        if self._popped is not None:
            wanted[self._popped] = popped
        elif popped:
            log.warning("the broker wants group %s to pop %s, which this consumer cannot", self._group, topic)
        self._note_left_out(topic, set(route.subscribe) - pulled)
        return await self._change(route, wanted, shared=True)

    async def _change(
        self, route: TopicRoute, wanted: Mapping[QueueOwner, set[MessageQueue]], *, shared: bool
    ) -> bool:
        """Drop queues, then take new ones; returns whether all of them could be taken."""
        have = {owner: owner.assigned(route.topic) for owner in wanted}
        await asyncio.gather(
            *(owner.drop(queue) for owner in wanted for queue in sorted(have[owner] - wanted[owner]))
        )
        new = [(owner, queue) for owner in wanted for queue in sorted(wanted[owner] - have[owner])]
        if shared and new:
            await self._client.runtime.clock.sleep(HAND_OVER_S)
        taken = await asyncio.gather(*(owner.take(queue) for owner, queue in new))
        self._changed()
        return all(taken)

    def _note_left_out(self, topic: str, queues: set[MessageQueue]) -> None:
        """Record which queues the broker leaves out: they are kept for a while, since it may see a new route
        later than this member.
        """
        now = self._client.runtime.clock.monotonic()
        old = {queue: since for queue, since in self._left_out.items() if queue.topic == topic}
        for queue in old.keys() - queues:
            del self._left_out[queue]
        self._left_out |= {queue: old.get(queue, now) for queue in queues}
        self._owner.left_to_others(q for q in queues if now - self._left_out[q] > LATE_ROUTE_S)

    async def _members(self, route: TopicRoute) -> list[str]:
        """The group's members."""
        return await self._of_first(route, lambda address: self._calls.members(address, self._group))

    async def _of_first(self, route: TopicRoute, ask: Callable[[str], Awaitable[T]]) -> T:
        """The result of ``ask`` from the first broker of the topic that answers."""
        last: Exception | None = None
        for members in route.addresses.values():
            for _, address in sorted(members.items()):
                try:
                    return await ask(address)
                except OrbitError as error:
                    last = error
        self._client.suspect(route.topic)
        raise last or TopicNotFoundError(route.topic, f"the route of {route.topic!r} names no broker")
