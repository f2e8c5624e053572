"""The limit of a producer's sends in flight: further sends wait (AS-08, AS-09)."""

from __future__ import annotations

import asyncio

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import SendResult
from orbitmq.client.producer.queue_choice import QueueChooser
from orbitmq.client.producer.request import Outgoing
from orbitmq.client.producer.send import SendKernel
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.line import Line


class PacedKernel:
    """A send kernel that begins a send when the limit admits it.

    Args:
        timeout_ms: for a whole send without a timeout of its own, the wait for admission included.
        max_messages: most sends in progress at a time.
        max_bytes: most bytes of their bodies together.
    """

    def __init__(
        self, kernel: SendKernel, client: ClientInstance, timeout_ms: int, max_messages: int, max_bytes: int
    ) -> None:
        self._kernel = kernel
        self._client = client
        self._timeout_ms = timeout_ms
        self._line = Line(max_messages, max_bytes)

    async def send(
        self,
        chooser: QueueChooser,
        out: Outgoing,
        fixed: MessageQueue | None,
        timeout_ms: int | None,
        *,
        submitted: bool = False,
    ) -> SendResult:
        """As :meth:`SendKernel.send`, after waiting for room.

        Raises:
            SendError: as in :meth:`SendKernel.send`, or the send was not admitted in time (kind
                TOO_MANY_REQUESTS).
        """
        size = len(out.body)
        if not self._line.take(size):
            started = self._client.now_ms()
            timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
            deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
            try:
                await self._line.enter(size, deadline=deadline)
            except TimeoutError as error:
                raise self._kernel.too_much_under_way(out.topic, started) from error
            # The wait for admission counts in the time of the send (AS-08).
            timeout_ms = max(1, timeout_ms - int(self._client.now_ms() - started))
        try:
            return await self._kernel.send(chooser, out, fixed, timeout_ms, submitted=submitted)
        finally:
            self._line.leave(size)
