"""In which order a consumer's messages go to its listener, and what happens to those that fail."""

from __future__ import annotations

import asyncio

from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_locks import MemberLocks
from orbitmq.client.consumer.redelivery import RedeliveryPolicy, restore_topic
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


class ConcurrentDelivery:
    """Every message at once, in any order; a failed one goes back to a broker and comes again later."""

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        offsets: Offsets,
        redelivery: RedeliveryPolicy,
    ) -> None:
        self._namespace = namespace
        self._group = group
        self._offsets = offsets
        self._redelivery = redelivery
        self.ready: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self.closed = False

    def arrived(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """A message was pulled."""
        self._put(process_queue, message)

    def may_begin(self, process_queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Whether the listener may have it now; when not, it comes again later if it must."""
        return not process_queue.dropped

    def finished(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """The listener is done with it, or a broker has it back."""
        offset = process_queue.finish(message.queue_offset)
        if offset >= 0 and not process_queue.released:
            self._offsets.update(process_queue.queue, offset)

    async def failed(
        self, process_queue: ProcessQueue, message: ReceivedMessage, delay_level: int = 0
    ) -> None:
        """The listener failed; ``delay_level`` as in CR-13."""
        if process_queue.released or message.queue_offset not in process_queue:
            return  # someone else's now, or sent back already because it took too long (CR-06)
        if await self._redelivery.send_back(message, delay_level):
            self.finished(process_queue, message)
            return
        process_queue.put_aside(message.queue_offset)
        message.reconsume_times += 1
        self._again_after(process_queue, message, LOCAL_RETRY_S)

    async def expire(self, process_queue: ProcessQueue, before_ms: int) -> list[ReceivedMessage]:
        """Send back what the listener has had since before, so that it no longer holds the offset (CR-15)."""
        overdue = process_queue.overdue(before_ms)
        for message in overdue:
            if await self._redelivery.send_back(message, TIMEOUT_DELAY_LEVEL):
                self.finished(process_queue, message)
        return overdue

    def _put(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        restore_topic(message, self._group, self._namespace)
        self.ready.put_nowait((process_queue, message))

    def _again_after(self, process_queue: ProcessQueue, message: ReceivedMessage, seconds: float) -> None:
        if not self.closed:
            asyncio.get_running_loop().call_later(seconds, self._put, process_queue, message)


class OrderedDelivery(ConcurrentDelivery):
    """One message of a queue at a time, in the order of their offsets; a failure pauses the queue (CR-18).

    Args:
        max_reconsume_times: after so many failures a message is given up so that the queue goes on (CR-14).
        suspend_ms: the pause, 10 to 30,000 ms.
        locks: None in broadcasting, where no queue is shared.
    """

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        offsets: Offsets,
        redelivery: RedeliveryPolicy,
        *,
        max_reconsume_times: int,
        suspend_ms: int = SUSPEND_MS,
        locks: MemberLocks | None = None,
    ) -> None:
        super().__init__(group, namespace, offsets, redelivery)
        self._max = max_reconsume_times
        self._suspend_s = min(max(suspend_ms, LEAST_SUSPEND_MS), LONGEST_SUSPEND_MS) / 1000
        self._locks = locks

    def arrived(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        process_queue.line.append(message)
        if len(process_queue.line) == 1:
            self._put(process_queue, message)

    def may_begin(self, process_queue: ProcessQueue, message: ReceivedMessage) -> bool:
        if process_queue.dropped:
            return False
        if self._locks is None or self._locks.holds(process_queue.queue):
            return True
        self._again_after(process_queue, message, LOCK_PAUSE_S)
        return False

    def finished(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        super().finished(process_queue, message)
        if process_queue.line and process_queue.line[0] is message:
            process_queue.line.popleft()
            if process_queue.line and not process_queue.dropped:
                self._put(process_queue, process_queue.line[0])

    async def failed(
        self, process_queue: ProcessQueue, message: ReceivedMessage, delay_level: int = 0
    ) -> None:
        if process_queue.released or message.queue_offset not in process_queue:
            return
        # What cannot be read would fail for ever: that one message is given up, so that the queue goes on.
        dead = delay_level < 0 or isinstance(message, UnreadableMessage)
        spent = message.reconsume_times >= self._max
        if (dead or spent) and await self._redelivery.give_up(message, dead=dead):
            self.finished(process_queue, message)
            return
        process_queue.put_aside(message.queue_offset)
        message.reconsume_times += 1
        self._again_after(process_queue, message, self._suspend_s)

    async def expire(self, process_queue: ProcessQueue, before_ms: int) -> list[ReceivedMessage]:
        """Nothing: a message that takes long holds its queue, which is what order means."""
        return []
