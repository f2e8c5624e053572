"""In which order a consumer's messages go to its listener, and what happens to those that fail."""

from __future__ import annotations

import asyncio

from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_locks import QueueLocks
from orbitmq.client.consumer.redelivery import Returns, restore_topic
from orbitmq.client.namespaces import Namespace
from orbitmq.message.model import ReceivedMessage, UnreadableMessage

Delivery = tuple[ProcessQueue, ReceivedMessage]

# After this a message that no broker took back is given to the listener again (CR-09).
LOCAL_RETRY_S = 5.0
# How long a queue pauses after a failure when order matters (CR-18).
SUSPEND_MS = 1000
LEAST_SUSPEND_MS = 10
LONGEST_SUSPEND_MS = 30_000
# A queue whose lock is not sure is looked at again after this.
LOCK_PAUSE_S = 0.1
TIMEOUT_DELAY_LEVEL = 3


class Dispatch:
    """Every message at once, in any order; a failed one goes back to a broker and comes again later."""

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        offsets: Offsets,
        returns: Returns,
    ) -> None:
        self._namespace = namespace
        self._group = group
        self._offsets = offsets
        self._returns = returns
        self.ready: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self.closed = False

    def arrived(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        """A message was pulled."""
        self._put(held, message)

    def may_begin(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        """Whether the listener may have it now; when not, it comes again later if it must."""
        return not held.dropped

    def finished(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        """The listener is done with it, or a broker has it back."""
        offset = held.finish(message.queue_offset)
        if offset >= 0 and not held.released:
            self._offsets.update(held.queue, offset)

    async def failed(self, held: ProcessQueue, message: ReceivedMessage, delay_level: int = 0) -> None:
        """The listener failed; ``delay_level`` as in CR-13."""
        if held.released or message.queue_offset not in held:
            return  # someone else's now, or sent back already because it took too long (CR-06)
        if await self._returns.send_back(message, delay_level):
            self.finished(held, message)
            return
        held.put_aside(message.queue_offset)
        message.reconsume_times += 1
        self._again_after(held, message, LOCAL_RETRY_S)

    async def expire(self, held: ProcessQueue, before_ms: int) -> list[ReceivedMessage]:
        """Send back what the listener has had since before, so that it no longer holds the offset (CR-15)."""
        overdue = held.overdue(before_ms)
        for message in overdue:
            if await self._returns.send_back(message, TIMEOUT_DELAY_LEVEL):
                self.finished(held, message)
        return overdue

    def _put(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        restore_topic(message, self._group, self._namespace)
        self.ready.put_nowait((held, message))

    def _again_after(self, held: ProcessQueue, message: ReceivedMessage, seconds: float) -> None:
        if not self.closed:
            asyncio.get_running_loop().call_later(seconds, self._put, held, message)


class OrderedDispatch(Dispatch):
    """One message of a queue at a time, in the order of their offsets; a failure pauses the queue (CR-18).

    Args:
        max_reconsume_times: after so many failures a message is given up so that the queue goes on (CR-14).
        suspend_ms: the pause, 10 to 30,000 ms.
        locks: None when there is nobody to share with.
    """

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        offsets: Offsets,
        returns: Returns,
        *,
        max_reconsume_times: int,
        suspend_ms: int = SUSPEND_MS,
        locks: QueueLocks | None = None,
    ) -> None:
        super().__init__(group, namespace, offsets, returns)
        self._max = max_reconsume_times
        self._suspend_s = min(max(suspend_ms, LEAST_SUSPEND_MS), LONGEST_SUSPEND_MS) / 1000
        self._locks = locks

    def arrived(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        held.line.append(message)
        if len(held.line) == 1:
            self._put(held, message)

    def may_begin(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        if held.dropped:
            return False
        if self._locks is None or self._locks.holds(held.queue):
            return True
        self._again_after(held, message, LOCK_PAUSE_S)
        return False

    def finished(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        super().finished(held, message)
        if held.line and held.line[0] is message:
            held.line.popleft()
            if held.line and not held.dropped:
                self._put(held, held.line[0])

    async def failed(self, held: ProcessQueue, message: ReceivedMessage, delay_level: int = 0) -> None:
        if held.released or message.queue_offset not in held:
            return
        # What cannot be read would fail for ever: that one message is given up, so that the queue goes on.
        dead = delay_level < 0 or isinstance(message, UnreadableMessage)
        spent = message.reconsume_times >= self._max
        if (dead or spent) and await self._returns.give_up(message, dead=dead):
            self.finished(held, message)
            return
        held.put_aside(message.queue_offset)
        message.reconsume_times += 1
        self._again_after(held, message, self._suspend_s)

    async def expire(self, held: ProcessQueue, before_ms: int) -> list[ReceivedMessage]:
        """Nothing: a message that takes long holds its queue, which is what order means."""
        return []
