"""A limit for what a producer has under way: sends beyond it wait (AS-08, AS-09)."""

from __future__ import annotations

import asyncio
from collections import deque

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import SendResult
from orbitmq.client.producer.queue_choice import QueueChooser
from orbitmq.client.producer.request import Outgoing
from orbitmq.client.producer.send import SendKernel
from orbitmq.message.model import MessageQueue


class BackPressure:
    """Admits sends up to a limit; the others wait, in order, until earlier ones are done.

    Args:
        max_messages: sends under way at a time.
        max_bytes: their bodies together. One body over the limit may go when nothing else is under way.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def take(self, size_bytes: int) -> bool:
        """Enter at once if there is room and no send waits."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self._enter(size_bytes)
        return True

    async def enter(self, size_bytes: int) -> None:
        """Enter, waiting for room. A cancelled waiter leaves its place in the line to the next."""
        if self.take(size_bytes):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((admitted, size_bytes))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(size_bytes)
            else:
                self._let_in()
            raise

    def leave(self, size_bytes: int) -> None:
        """Done, one way or the other."""
        self._messages -= 1
        self._bytes -= size_bytes
        self._let_in()

    def _fits(self, size_bytes: int) -> bool:
        if not self._messages:
            return True
        return self._messages < self._max_messages and self._bytes + size_bytes <= self._max_bytes

    def _enter(self, size_bytes: int) -> None:
        self._messages += 1
        self._bytes += size_bytes

    def _let_in(self) -> None:
        while self._waiting:
            admitted, size_bytes = self._waiting[0]
            if admitted.done():
                self._waiting.popleft()
            elif self._fits(size_bytes):
                self._waiting.popleft()
                self._enter(size_bytes)
                admitted.set_result(None)
            else:
                return


class PacedKernel:
    """A kernel that begins a send when there is room for it.

    Args:
        timeout_ms: for a whole send that has no timeout of its own, the wait for admission included.
        max_messages: sends under way at a time.
        max_bytes: their bodies together.
    """

    def __init__(
        self, kernel: SendKernel, client: ClientInstance, timeout_ms: int, max_messages: int, max_bytes: int
    ) -> None:
        self._kernel = kernel
        self._client = client
        self._timeout_ms = timeout_ms
        self._pressure = BackPressure(max_messages, max_bytes)

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
            SendError: as there, or it was not admitted in time (kind TOO_MANY_REQUESTS).
        """
        size = len(out.body)
        if not self._pressure.take(size):
            started = self._client.now_ms()
            timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._pressure.enter(size)
            except TimeoutError as error:
                raise self._kernel.too_much_under_way(out.topic, started) from error
            # Waiting for admission is part of the time of the send (AS-08).
            timeout_ms = max(1, timeout_ms - int(self._client.now_ms() - started))
        try:
            return await self._kernel.send(chooser, out, fixed, timeout_ms, submitted=submitted)
        finally:
            self._pressure.leave(size)
