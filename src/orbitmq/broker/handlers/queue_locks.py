"""Queue locks of orderly consumers (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class QueueLockHandlers(Family):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Lock queues for an orderly consumer."""
        request = bodies.LockBatchRequestBody.decode(command.body)
        held = self._locks.lock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply(body=bodies.LockBatchResponseBody(lock_ok_mq_set=set(held)).encode())

    def unlock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give locked queues back."""
        request = bodies.UnlockBatchRequestBody.decode(command.body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply()
