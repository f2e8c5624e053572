"""Queue locks of a broker that has replicas: strict mode asks the others, else the table is shared."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TablesTold
from orbitmq.broker.handlers.base import Family, Handler
from orbitmq.broker.role import Role, RoleChanged, RoleState
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError

log = logging.getLogger(__name__)

MEMBER_TIMEOUT_MS = 1000
TOTAL_S = 2.0
# A grant is answered when the followers have it, but a consumer does not wait longer for that than this.
SHARE_S = 1.0
# A client trusts a lock for so long after it was granted or renewed (LK-02).
TRUSTED_S = 30.0


class ReplicatedLocks(Component):
    """Grants queue locks.

    Args:
        members: gives the other living brokers of this name.
        share: returns when the followers that are linked have all changes of tables.
    """

    name = "strict queue locks"

    def __init__(
        self,
        clock: Clock,
        events: Events,
        config: BrokerConfig,
        role: RoleState,
        locks: QueueLocks,
        client: RemotingClient,
        members: Callable[[], Awaitable[Mapping[int, str]]],
        share: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._config = config
        self._role = role
        # Until then others may have granted what this broker's table, empty at its start, does not hold.
        self._knows_from_s = 0.0 if role.role is Role.MASTER else clock.monotonic() + TRUSTED_S
        events.subscribe(TablesTold, lambda _: self._knows())
        events.subscribe(RoleChanged, self._role_changed)
        self._locks = locks
        self._client = client
        self._members = members
        self._share = share

    @property
    def quorum(self) -> int:
        """How many brokers have to grant a lock; 1: this one alone (LK-04, LK-05)."""
        return self._config.total_replicas // 2 + 1 if self._config.lock_in_strict_mode else 1

    async def lock(self, request: LockBatchRequestBody) -> set[MessageQueue]:
        """The queues that the client holds now (LK-06).

        Raises:
            RemotingError: SLAVE_NOT_AVAILABLE, another broker has the table that decides (LK-10).
        """
        if self.quorum <= 1 and not request.only_this_broker:
            self._check_decides()
        held = self._locks.lock(request.consumer_group, request.client_id, request.mq_set)
        if request.only_this_broker or not held:
            return set(held)
        if self.quorum <= 1:
            await self._shared()
            return set(held)
        granted = Counter(held)
        members = list((await self._members()).values())
        tasks = [asyncio.ensure_future(self._lock_at(at, request, held)) for at in members]
        done, late = await asyncio.wait(tasks, timeout=TOTAL_S) if tasks else (set(), set())
        for task in late:
            task.cancel()
        for task in done:
            granted.update(task.result())
        return {queue for queue in held if granted[queue] >= self.quorum}

    def _role_changed(self, change: RoleChanged) -> None:
        if change.after is Role.MASTER:
            self._knows()  # by consent of all others, whose tables it took

    def _knows(self) -> None:
        self._knows_from_s = 0.0

    def _check_decides(self) -> None:
        """Refuse where the table is a copy, or may lack what another broker has granted.

        A name server shows clients a slave in its master's place as soon as it does not see the master
        (NR-11), also before the slave acts.
        """
        role = self._role.role.value
        if not (self._role.takes_messages or self._role.leads):
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {role}: the master of its name keeps the queue locks",
            )
        left_s = self._knows_from_s - self._clock.monotonic()
        if left_s > 0:
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {role} that began anew and was not told the queue locks of its name: "
                f"it grants some in {left_s:.1f} s",
            )

    async def _shared(self) -> None:
        try:
            async with asyncio.timeout(SHARE_S):
                await self._share()
        except TimeoutError:
            log.warning(
                "the followers do not have the queue locks yet: a change of master may grant them twice"
            )

    async def _lock_at(
        self, address: str, request: LockBatchRequestBody, queues: Sequence[MessageQueue]
    ) -> set[MessageQueue]:
        body = LockBatchRequestBody(request.consumer_group, request.client_id, True, set(queues))
        try:
            answer = await self._client.request(
                address, Command(RequestCode.LOCK_BATCH_MQ, body=body.encode()), MEMBER_TIMEOUT_MS
            )
            if answer.code != ResponseCode.SUCCESS:
                return set()
            return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set & set(queues)
        except (TransportError, WireError) as error:
            log.info("%s grants no queue locks: %s", address, error)
            return set()

    async def unlock(self, request: UnlockBatchRequestBody) -> None:
        """Give locks back here, and tell the others without waiting for them (LK-07)."""
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        if request.only_this_broker or self.quorum <= 1:
            return
        for address in (await self._members()).values():
            self._spawn(self._unlock_at(address, request), f"unlock at {address}")

    async def _unlock_at(self, address: str, request: UnlockBatchRequestBody) -> None:
        body = UnlockBatchRequestBody(request.consumer_group, request.client_id, True, request.mq_set)
        try:
            await self._client.request(
                address, Command(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()), MEMBER_TIMEOUT_MS
            )
        except TransportError as error:
            log.info("%s keeps queue locks until they run out: %s", address, error)


class LockHandlers(Family):
    """The door of queue locks (AdminBrokerProcessor.lockBatchMQ)."""

    def __init__(self, locks: ReplicatedLocks) -> None:
        self._locks = locks

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    async def lock(self, _connection: ServerConnection, command: Command) -> Command:
        """Lock queues for an orderly consumer."""
        held = await self._locks.lock(LockBatchRequestBody.decode(command.body))
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    async def unlock(self, _connection: ServerConnection, command: Command) -> Command:
        """Give locked queues back."""
        await self._locks.unlock(UnlockBatchRequestBody.decode(command.body))
        return command.reply()
