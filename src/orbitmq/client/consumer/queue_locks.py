"""The locks of an ordered consumer: at most one member works on a queue, even during a hand-over."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

RENEW_EVERY_S = 20.0
FIRST_RENEWAL_S = 1.0
RETRY_S = 1.0
# The broker keeps a lock for 60 s (LK-01). A lock counts as held here for half of that, which leaves room for
# differences between the two clocks.
TRUSTED_MS = 30_000.0


class MemberLocks:
    """The queue locks that this client holds at the brokers (LK-02, LK-03).

    Args:
        lost: called with a queue whose lock another member has got.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        group: str,
        lost: Callable[[MessageQueue], Awaitable[None]],
    ) -> None:
        self._client = client
        self._calls = calls
        self._group = group
        self._lost = lost
        self._renewed_ms: dict[MessageQueue, float] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Whether the lock was confirmed within the last 30 s."""
        renewed = self._renewed_ms.get(queue)
        return renewed is not None and self._client.now_ms() - renewed <= TRUSTED_MS

    async def lock(self, queue: MessageQueue) -> str | None:
        """Lock one queue; returns the address of its broker, ``None`` if another member has the lock.

        Raises:
            OrbitError, TransportError, WireError: no usable answer of the broker.
        """
        asked = self._client.now_ms()
        leader = self._calls.leader_of(queue.broker_name)
        if queue not in await self._calls.lock(self._group, leader, [queue]):
            return None
        self._renewed_ms[queue] = asked
        return leader

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues. A broker that does not get the request drops the locks after 60 s."""
        for queue in queues:
            self._renewed_ms.pop(queue, None)
        await asyncio.gather(*(self._unlock(*share) for share in _by_broker(queues).items()))

    async def unlock_all(self) -> None:
        await self.unlock(list(self._renewed_ms))

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            await self._calls.unlock(self._group, self._calls.leader_of(broker_name), queues)
        except OrbitError as error:
            log.info(
                "broker %s does not know that locks end, of %s: %s",
                broker_name,
                counted(len(queues), "queue"),
                error,
            )

    async def renew(self) -> None:
        """Prolong all locks, with one request per broker. Failed requests are repeated until the locks
        expire: another broker may become the master (row MO-07).
        """
        left = _by_broker(self._renewed_ms)
        until_ms = self._client.now_ms() + TRUSTED_MS
        while left:
            done = await asyncio.gather(*(self._renew(*share) for share in left.items()))
            left = {name: share for (name, share), ended in zip(left.items(), done, strict=True) if not ended}
            if left and self._client.now_ms() >= until_ms:
                return
            if left:
                await self._client.runtime.clock.sleep(RETRY_S)

    async def _renew(self, broker_name: str, queues: list[MessageQueue]) -> bool:
        """Prolong the locks at one broker; returns whether it answered."""
        asked = self._client.now_ms()
        try:
            locked = await self._calls.lock(self._group, self._calls.leader_of(broker_name), queues)
        except OrbitError as error:
            log.warning("the locks at broker %s are not prolonged: %s", broker_name, error)
            for topic in {queue.topic for queue in queues}:
                self._client.suspect(topic)
            return False
        for queue in queues:
            if queue not in self._renewed_ms:
                continue  # unlocked meanwhile
            if queue in locked:
                self._renewed_ms[queue] = asked
            else:
                log.warning("the lock of %s went to another member", queue)
                del self._renewed_ms[queue]
                await self._lost(queue)
        return True


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    shares: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in sorted(queues):
        shares[queue.broker_name].append(queue)
    return shares
