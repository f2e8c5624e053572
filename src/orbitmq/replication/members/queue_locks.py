"""Queue locks of a broker with replicas: its heir copies the table, and strict mode locks at the others
too."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from orbitmq.broker.change_feed import LOCKS
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TablesReceived
from orbitmq.broker.handlers.base import Handler, HandlerFamily
from orbitmq.broker.role import LEADING, Role, RoleChanged, RoleState
from orbitmq.message.model import MessageQueue
from orbitmq.replication.members.heir import Heir
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.members.probe import refuses
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError

log = logging.getLogger(__name__)

MEMBER_TIMEOUT_MS = 1000
TOTAL_S = 2.0
# How long a new lock waits for the heir's acknowledgement: RocketMQ's clients wait 1 s for the answer.
SHARE_S = 0.8


class SharesTables(Protocol):
    """The tables beside the log, see ``replication.state.exchange``."""

    def request_promise(self, number: int, hold_s: float) -> None: ...

    async def shared_with(self, broker_id: int) -> bool: ...


class ReplicatedLocks(Component):
    """Grants queue locks: only the leading broker does, and only locks that its heir has (see ``heir``).

    Args:
        members: gives the other living brokers of this name.
        tables: sends changes to the followers.
        copy: decides whether the table has every lock that a client may trust.
        look_s: the period in which a slave asks for the leader's promise.
        took_all: whether the tables of all others were taken in the last pre-online.
        has_groups: whether any group has ever consumed here, as far as this broker can know.
        written: returns when the changes of a table are on the disk.
    """

    name = "queue locks"

    def __init__(
        self,
        clock: Clock,
        events: Events,
        config: BrokerConfig,
        role: RoleState,
        locks: QueueLocks,
        client: RemotingClient,
        members: Callable[[], Awaitable[Mapping[int, str]]],
        tables: SharesTables,
        copy: LockCopy,
        look_s: float,
        took_all: Callable[[], bool],
        has_groups: Callable[[], bool],
        written: Callable[[str], Awaitable[object]],
    ) -> None:
        self._clock = clock
        self._config = config
        self._role = role
        self._locks = locks
        self._client = client
        self._members = members
        self._tables = tables
        self._copy = copy
        self._look_s = look_s
        self._took_all = took_all
        self._has_groups = has_groups
        self._written = written
        self._roles = 0
        events.subscribe(TablesReceived, lambda event: copy.master_serves(all_locks=event.all_locks))
        events.subscribe(RoleChanged, self._role_changed)

    async def start(self) -> None:
        """Start the component.

        Raises:
            OSError: the disk refuses the note that the table of locks is not complete any more.
        """
        if self._locks.alone:
            known = self._locks.complete or not self._has_groups()
            self._spawn(self._complete(self._copy.begins(0.0 if known else None)), "complete")
            return
        self._locks.note_complete(False)
        await self._written(LOCKS)
        if self._role.role in LEADING:
            # A start brings no change of role, but another broker may have led before it.
            self._copy.begins(None)
        if self._config.enable_slave_acting_master:
            self._every(self._clock, self._look_s, self._request_promise, first_s=0.0)

    async def _complete(self, wait_s: float) -> None:
        await self._clock.sleep(wait_s)
        self._locks.note_complete(True)
        with contextlib.suppress(OSError):  # the note is written with the table's file or the first lock
            await self._written(LOCKS)

    @property
    def quorum(self) -> int:
        """How many brokers must grant a lock; 1: only this one (LK-04, LK-05)."""
        return self._config.total_replicas // 2 + 1 if self._config.lock_in_strict_mode else 1

    async def lock(self, request: LockBatchRequestBody) -> set[MessageQueue]:
        """The queues that the client holds now (LK-06).

        Raises:
            RemotingError: SLAVE_NOT_AVAILABLE: another broker may grant locks, or may take over without these
                (LK-10..12).
        """
        if not request.only_this_broker:
            # Strict mode needs this too: a restarted broker may have an empty table, and the others a copy.
            self._check_decides()
        held = self._locks.lock(request.consumer_group, request.client_id, request.mq_set)
        if request.only_this_broker or not held:
            return set(held)
        roles = self._roles
        if self.quorum > 1:
            held = await self._granted_by_most(request, held)
        if not self._locks.all_shared(request.consumer_group, held):
            await self._share()
            if self._locks.alone:
                await self._keep()
        self._check_led_since(roles)
        return self._locks.share(request.consumer_group, request.client_id, held)

    async def _granted_by_most(
        self, request: LockBatchRequestBody, held: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        """The queues that this broker and more than half of all replicas grant (LK-05).

        A lock that the client already had stays even if it is not granted now; a new one is released.
        """
        granted = Counter(held)
        members = list((await self._members()).values())
        tasks = [asyncio.ensure_future(self._lock_at(at, request, held)) for at in members]
        done, late = await asyncio.wait(tasks, timeout=TOTAL_S) if tasks else (set(), set())
        for task in late:
            task.cancel()
        for task in done:
            granted.update(task.result())
        group = request.consumer_group
        few = [queue for queue in held if granted[queue] < self.quorum]
        new = [queue for queue in few if not self._locks.all_shared(group, [queue])]
        self._locks.unlock(group, request.client_id, new)
        return [queue for queue in held if granted[queue] >= self.quorum]

    # -- the right to lead -----------------------------------------------------------------------------

    def _role_changed(self, change: RoleChanged) -> None:
        self._roles += 1
        self._copy.role_changed(change, has_groups=self._has_groups(), took_all=self._took_all())

    def _check_decides(self) -> None:
        """Refuse if another broker may grant locks, or has granted locks that are not in this table.

        A name server shows clients a slave in its master's place as soon as it does not see the master
        (NR-11), also before the slave acts. And a master may still serve clients while a slave acts.
        """
        role = self._role.role.value
        if not self._role.leads:
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {role} and does not lead: the leader keeps the queue locks of its name",
            )
        self._copy.leads()
        left_s = self._copy.lacks_for_s()
        if left_s > 0:
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a {role} that has not received all queue locks of its name: "
                f"it grants locks in {left_s:.1f} s",
            )

    # -- the heir --------------------------------------------------------------------------------------

    def _request_promise(self) -> None:
        if self._role.role is Role.SLAVE:
            self._tables.request_promise(*self._copy.question())
        elif self._role.leads:
            self._copy.leads()

    async def _share(self) -> None:
        """Return when the heir has all locks granted until now.

        Raises:
            RemotingError: the heir does not answer.
        """
        try:
            async with asyncio.timeout(SHARE_S):
                while (heir := self._copy.heir()) is not None and not await self._has_all(heir):
                    pass
        except TimeoutError as error:
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                "a slave that may take over does not answer: no new queue locks until it cannot",
            ) from error

    async def _keep(self) -> None:
        """Return when the locks are on the disk: after a restart this broker has only those.

        Raises:
            RemotingError: the disk refuses.
        """
        try:
            await self._written(LOCKS)
        except OSError as error:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"no new queue locks while the disk refuses to keep them: {error}",
            ) from error

    def _check_led_since(self, roles: int) -> None:
        """Refuse if another broker may have led since the role had changed ``roles`` times."""
        if roles != self._roles:
            raise RemotingError(ResponseCode.SLAVE_NOT_AVAILABLE, "another broker may keep the queue locks")
        self._check_decides()

    async def _has_all(self, heir: Heir) -> bool:
        """Whether the heir has all changes; ``False``: check again whether there is an heir."""
        if await self._tables.shared_with(heir.broker_id):
            return True
        if await refuses(self._client, heir.address):
            self._copy.is_gone(heir)
        else:
            await self._clock.sleep(max(0.0, heir.until_s - self._clock.monotonic()))
        return False

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
        """Release locks here, and at the others without waiting for them (LK-07).

        A slave's copy refuses: its leader would believe that the returning client still has the lock.
        """
        strict = request.only_this_broker or self.quorum > 1
        if not (strict or self._role.leads or self._role.takes_messages):
            return
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


class LockHandlers(HandlerFamily):
    """The request handlers of queue locks (AdminBrokerProcessor.lockBatchMQ)."""

    def __init__(self, locks: ReplicatedLocks) -> None:
        self._locks = locks

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    async def lock(self, _connection: ServerConnection, command: Command) -> Command:
        """Lock queues for an orderly consumer."""
        held = await self._locks.lock(LockBatchRequestBody.decode(command.body))
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    async def unlock(self, _connection: ServerConnection, command: Command) -> Command:
        """Release locked queues."""
        await self._locks.unlock(UnlockBatchRequestBody.decode(command.body))
        return command.reply()
