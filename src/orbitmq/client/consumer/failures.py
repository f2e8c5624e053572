"""Pauses of a pull or pop loop whose broker fails."""

from __future__ import annotations

import logging

from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.backoff import Backoff
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode

log = logging.getLogger("orbitmq.client")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
_UNKNOWN_TO_BROKER = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})


class Failures:
    """The consecutive failures of one loop; the pause grows with each.

    Args:
        what: ``pull`` or ``pop``, for the log.
        queue: the queue or place of the loop.
    """

    def __init__(self, client: ClientInstance, what: str, queue: MessageQueue) -> None:
        self._client = client
        self._what = what
        self._queue = queue
        self._in_a_row = 0
        self.backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, client.runtime.random)

    def over(self) -> None:
        """Reset the count after a success."""
        self._in_a_row = 0

    async def recover(self, error: Exception) -> None:
        """Pause; first send a heartbeat or refresh the route if the error requires it."""
        self._in_a_row += 1
        pause = self.backoff.pause_s(self._in_a_row)
        log.log(
            logging.WARNING if self._in_a_row == 1 else logging.INFO,
            "%s of %s failed, next try in %.1f s: %s",
            self._what,
            self._queue,
            pause,
            error,
        )
        if isinstance(error, BrokerError) and error.code in _UNKNOWN_TO_BROKER:
            await self._client.heartbeat()
        elif isinstance(error, TransportError | BrokerError):
            self._client.suspect(self._queue.topic)
        await self._client.runtime.clock.sleep(pause)
