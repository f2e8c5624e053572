"""Queue locks of orderly consumers (AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.change_feed import LOCKS
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.message.model import MessageQueue
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class QueueLockHandlers(Family):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, locks: QueueLocks, metadata: MetadataAccess) -> None:
        self._locks = locks
        self._metadata = metadata

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    async def lock(self, _connection: ServerConnection, command: Command) -> Command:
        """Lock queues for an orderly consumer; a new lock is on the disk before it is answered."""
        request = bodies.LockBatchRequestBody.decode(command.body)
        group, client_id = request.consumer_group, request.client_id
        held: Iterable[MessageQueue] = self._locks.lock(group, client_id, request.mq_set)
        if not self._locks.all_shared(group, held):
            await self._metadata.save(LOCKS)
            held = self._locks.share(group, client_id, held)
        return command.reply(body=bodies.LockBatchResponseBody(lock_ok_mq_set=set(held)).encode())

    def unlock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give locked queues back."""
        request = bodies.UnlockBatchRequestBody.decode(command.body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply()
