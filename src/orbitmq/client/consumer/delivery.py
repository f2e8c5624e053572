"""The order of deliveries to a consumer's handlers, and the settling of messages."""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

from orbitmq.client.consumer.process_queue import DeliveryState, ProcessQueue
from orbitmq.client.consumer.queue_locks import MemberLocks
from orbitmq.client.consumer.ready import ReadyLine
from orbitmq.client.consumer.redelivery import LOCAL_RETRY_S, RedeliveryPolicy, StaysHere, restore_topic
from orbitmq.client.hooks import ConsumeHooks
from orbitmq.client.namespaces import Namespace
from orbitmq.message.model import ReceivedMessage, UnreadableMessage
from orbitmq.message.reserved import retry_topic
from orbitmq.message.settling import Ending, Settled, Verdict, close_delivery, level_for, open_delivery

log = logging.getLogger("orbitmq.client")

# How long a queue pauses after a failure when order matters (CR-18).
FAILURE_PAUSE_S = 1.0
LEAST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 30.0
# Retry delay while the queue's broker lock is unconfirmed.
LOCK_PAUSE_S = 0.1
TIMEOUT_DELAY_LEVEL = 3
# Longest interval between checks for overdue handlers.
EXPIRY_CHECK_S = 60.0

# Messages in the user's code, each with its queue.
HandedOut = list[tuple[ProcessQueue, ReceivedMessage]]
# States in which a verdict takes effect at once: no handler of run() has the message.
AT_ONCE = (DeliveryState.LOOP, DeliveryState.LEFT)
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class Delivery(ABC):
    """Settling, redelivery and expiry, common to ordered and concurrent deliveries.

    Args:
        spawn: starts background work.
        consume_timeout_s: how long the user's code may have a message (CR-15).

    Attributes:
        expiry_s: how often :meth:`expire` is to be called.
        redelivery: sends failed messages back, for queues without a redelivery policy of their own.
    """

    # Whether a queue's next message waits for :meth:`release`.
    ordered = False

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        redelivery: RedeliveryPolicy,
        spawn: Spawn,
        hooks: ConsumeHooks | None = None,
        consume_timeout_s: float = 900.0,
    ) -> None:
        self._group = group
        self._namespace = namespace
        self._retry_topic = retry_topic(group)
        self.redelivery = redelivery
        self._spawn = spawn
        self._hooks = hooks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._paused: Collection[str] | None = ()
        self._ready: ReadyLine[Any] = ReadyLine()
        self._round = 0
        # The entry in ``ProcessQueue.begun`` of a message that goes to the user's code in this round.
        self._begun = (DeliveryState.HANDLER, 0)
        self.expiry_s = min(EXPIRY_CHECK_S, consume_timeout_s / 4)
        # One round more than the timeout has, since a message may have begun at the end of its round.
        self._rounds = math.ceil(consume_timeout_s / self.expiry_s)

    def start(self) -> None:
        """Set the event loop that carries out verdicts; messages may be settled on any thread."""
        self._loop = asyncio.get_running_loop()

    # -- arrival and giving out --------------------------------------------------------------------------

    @abstractmethod
    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Accept messages that were pulled."""

    @abstractmethod
    def take(self) -> ReceivedMessage | None:
        """The next message for the user's code, with an open delivery; None when none is ready."""

    @abstractmethod
    def take_batch(self, at_most: int) -> HandedOut:
        """The next messages that are handled together; empty when none is ready."""

    async def wait(self) -> bool:
        """Return when there may be something to take; False when the consumer is closed."""
        await self._ready.wait()
        return not self._ready.closed

    def close(self) -> None:
        """Give out nothing more."""
        self._ready.close()

    @abstractmethod
    def give_back(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Make a message ready again that was taken but not begun by a handler."""

    def release(self, process_queue: ProcessQueue) -> None:  # noqa: B027  # only order needs it
        """Release a queue whose messages the user's code has finished."""

    @abstractmethod
    def pause(self, topics: Collection[str] | None) -> None:
        """Pause the delivery of these topics; None pauses all, ``()`` ends every pause."""

    def _paused_topic(self, topic: str) -> bool:
        return self._paused is None or topic in self._paused

    def _restore(self, process_queue: ProcessQueue, messages: Iterable[ReceivedMessage]) -> None:
        if self._namespace or process_queue.queue.topic == self._retry_topic:
            for message in messages:
                restore_topic(message, self._group, self._namespace)

    def _begin(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        process_queue.begun[message.queue_offset] = self._begun
        if self._hooks is not None:
            self._hooks.begin(process_queue.queue, message)

    # -- settling ----------------------------------------------------------------------------------------

    def settled(self, process_queue: ProcessQueue, message: ReceivedMessage, verdict: Verdict) -> Settled:
        """Handle the user's verdict on a message, on any thread.

        An acknowledgement counts at once. Any other verdict waits for the handler's return, so that no two
        handlers have one message; without a handler it takes effect at once.
        """
        offset = message.queue_offset
        if process_queue.released or offset not in process_queue:
            return Settled.GONE
        if verdict.ending is Ending.ACK or process_queue.state(offset) in AT_ONCE:
            return self._on_loop(process_queue, message)
        return Settled.DONE

    def _on_loop(self, process_queue: ProcessQueue, message: ReceivedMessage) -> Settled:
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        home = self._loop
        if here is home or home is None:
            return self.settle_now(process_queue, message)
        try:
            home.call_soon_threadsafe(self.settle_now, process_queue, message)
        except RuntimeError:
            return Settled.GONE  # the event loop is closed
        return Settled.DONE

    def settle_now(
        self, process_queue: ProcessQueue, message: ReceivedMessage, *, left: bool = False
    ) -> Settled:
        """Carry out a verdict, unless a running handler has to return first.

        Args:
            left: the user's loop was left after the verdict on this message.
        """
        loose = left or process_queue.state(message.queue_offset) in AT_ONCE
        process_queue.move(message.queue_offset, DeliveryState.ENDED)
        if message.verdict is not None and message.verdict.ending is Ending.ACK:
            self.done(process_queue, message)
            if loose and not process_queue.begun:
                self.release(process_queue)
            return Settled.DONE
        try:
            self._spawn(self._carry_out_and_release(process_queue, message), "settle")
        except RuntimeError:
            return Settled.GONE  # the consumer is closed
        return Settled.DONE

    async def _carry_out_and_release(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        await self.carry_out(process_queue, message)
        if not process_queue.begun:
            self.release(process_queue)

    def done(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Remove a message that is handled, or that was sent back to a broker."""
        if self._hooks is not None:
            self._hooks.end(message)
        process_queue.finish(message.queue_offset)

    async def ended(self, held: HandedOut, error: BaseException | None = None) -> None:
        """Finish deliveries after the handler's return: unsettled messages are done, or after an error
        delivered again.

        The work continues when the caller is cancelled: otherwise a message whose sending back was
        interrupted would count as in the user's code for ever.
        """
        for process_queue, message in held:
            if not close_delivery(message):
                continue
            if error is None:
                self.done(process_queue, message)
            else:
                message.verdict = Verdict(Ending.RETRY, error=error)
        again = [each for each in held if (verdict := each[1].verdict) and verdict.ending is not Ending.ACK]
        if not again:
            self.release(held[0][0])
            return
        try:
            carrying = self._spawn(self._carry_out_all(again), "settle")
        except RuntimeError:  # the consumer is closed, or has too many background tasks
            await self._carry_out_all(again)
        else:
            # This wait raises nothing: close() cancels the background task, but not this caller.
            await asyncio.wait((carrying,))

    async def _carry_out_all(self, held: HandedOut) -> None:
        for process_queue, message in held:
            await self.carry_out(process_queue, message)
        self.release(held[0][0])

    async def carry_out(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Carry out a verdict, once; an acknowledgement has taken effect already."""
        # Only the first of two calls proceeds: the user may retry a polled message while the next poll marks
        # all messages of the previous poll as done.
        verdict, message.verdict = message.verdict, None
        if verdict is None or verdict.ending is Ending.ACK:
            return
        if self._hooks is not None:
            self._hooks.end(message, verdict)
        if process_queue.released or message.queue_offset not in process_queue:
            # another member has the queue, or the message was sent back because it took too long (CR-06)
            return
        await self._not_done(process_queue, message, verdict)

    def _next_round(self) -> None:
        self._round += 1
        self._begun = (DeliveryState.HANDLER, self._round)

    @abstractmethod
    async def _not_done(
        self, process_queue: ProcessQueue, message: ReceivedMessage, verdict: Verdict
    ) -> None:
        """Have a message delivered again, or give it up."""

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Send back messages that the user's code has had for too long: the offset has to advance (CR-15)."""
        self._next_round()
        for process_queue in process_queues:
            for message in process_queue.overdue(self._round - self._rounds):
                log.warning(
                    "%s of %s takes too long, it is sent back", message.message_id, process_queue.queue
                )
                back = process_queue.redelivery or self.redelivery
                if await back.send_back(message, TIMEOUT_DELAY_LEVEL, reason="it took too long"):
                    process_queue.finish(message.queue_offset)


class ConcurrentDelivery(Delivery):
    """Every message at once, in any order; a failed one goes back to a broker, which redelivers it later."""

    _ready: ReadyLine[ReceivedMessage]

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        redelivery: RedeliveryPolicy,
        spawn: Spawn,
        hooks: ConsumeHooks | None = None,
        consume_timeout_s: float = 900.0,
    ) -> None:
        super().__init__(group, namespace, redelivery, spawn, hooks, consume_timeout_s)
        self._parked: list[ReceivedMessage] = []

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._restore(process_queue, messages)
        self._offer(messages)

    def _offer(self, messages: list[ReceivedMessage]) -> None:
        if self._paused == ():
            self._ready.extend(messages)
            return
        self._parked += [message for message in messages if self._paused_topic(message.topic)]
        self._ready.extend([message for message in messages if not self._paused_topic(message.topic)])

    def take(self) -> ReceivedMessage | None:
        while (message := self._ready.pop()) is not None:
            process_queue: ProcessQueue = message.owner  # type: ignore[assignment]
            if not process_queue.dropped:
                # Inlined _begin(), to save the cost of a call per message.
                process_queue.begun[message.queue_offset] = self._begun
                if self._hooks is not None:
                    self._hooks.begin(process_queue.queue, message)
                return message
        return None

    def take_batch(self, at_most: int) -> HandedOut:
        held: HandedOut = []
        while len(held) < at_most and (message := self.take()) is not None:
            held.append((message.owner, message))  # type: ignore[arg-type]
        return held

    def give_back(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        process_queue.put_aside(message.queue_offset)
        if not process_queue.dropped and message.queue_offset in process_queue:
            open_delivery(message, process_queue)
            self._offer([message])

    def pause(self, topics: Collection[str] | None) -> None:
        self._paused = topics
        parked, self._parked = self._parked, []
        self._offer(parked + self._ready.take_all())

    async def _not_done(
        self, process_queue: ProcessQueue, message: ReceivedMessage, verdict: Verdict
    ) -> None:
        level = verdict.delay_level if verdict.delay_s is None else level_for(verdict.delay_s)
        back = process_queue.redelivery or self.redelivery
        if await back.send_back(message, level, verdict.delay_s, verdict.why):
            process_queue.finish(message.queue_offset)
            return
        process_queue.put_aside(message.queue_offset)
        message.reconsume_times += 1
        pause_s = back.pause_s(verdict) if isinstance(back, StaysHere) else LOCAL_RETRY_S
        asyncio.get_running_loop().call_later(pause_s, self.give_back, process_queue, message)


class OrderedDelivery(Delivery):
    """The messages of a queue one after the other, in the order of their offsets; a failure pauses the queue.

    At most one handler has a queue at a time (CR-18). The line of ready work holds queues: a handler takes
    the first message of a queue, or the first few, and the queue is ready again when the handler has finished
    them.

    Args:
        max_reconsume_times: after this many failures a message is given up, so that later messages of its
            queue are delivered (CR-14).
        failure_pause_s: the pause, 0.01 to 30 s.
        locks: None in broadcasting, where no queue is shared.
    """

    ordered = True
    _ready: ReadyLine[ProcessQueue]

    def __init__(
        self,
        group: str,
        namespace: Namespace,
        redelivery: RedeliveryPolicy,
        spawn: Spawn,
        hooks: ConsumeHooks | None = None,
        consume_timeout_s: float = 900.0,
        *,
        max_reconsume_times: int,
        failure_pause_s: float = FAILURE_PAUSE_S,
        locks: MemberLocks | None = None,
    ) -> None:
        super().__init__(group, namespace, redelivery, spawn, hooks, consume_timeout_s)
        self._max = max_reconsume_times
        self._failure_pause_s = _pause_s(failure_pause_s)
        self._locks = locks
        self._idle: list[ProcessQueue] = []

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._restore(process_queue, messages)
        process_queue.line.extend(messages)
        self._offer(process_queue)

    def _offer(self, process_queue: ProcessQueue) -> None:
        line = process_queue.line
        while line and line[0].queue_offset not in process_queue:
            line.popleft()
        if not line or process_queue.busy or process_queue.dropped:
            return
        process_queue.busy = True
        if self._paused_topic(line[0].topic):
            self._idle.append(process_queue)
        else:
            self._ready.put(process_queue)

    def take(self) -> ReceivedMessage | None:
        held = self.take_batch(1)
        return held[0][1] if held else None

    def take_batch(self, at_most: int) -> HandedOut:
        while (process_queue := self._ready.pop()) is not None:
            if process_queue.dropped:
                continue
            locks = self._locks if process_queue.locked else None
            if locks is not None and not locks.holds(process_queue.queue):
                self._rest(process_queue, LOCK_PAUSE_S)
                continue
            held: HandedOut = []
            for message in process_queue.line:
                if len(held) == at_most or (held and message.topic != held[0][1].topic):
                    break
                if message.queue_offset in process_queue:
                    open_delivery(message, process_queue)
                    self._begin(process_queue, message)
                    held.append((process_queue, message))
            if held:
                return held
            # All leases of the queue's messages ran out while the queue waited for a handler. An empty batch
            # is never released, so the queue is made idle here: otherwise it would count as busy for ever.
            self._rested(process_queue)
        return []

    def give_back(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        process_queue.put_aside(message.queue_offset)

    def release(self, process_queue: ProcessQueue) -> None:
        """Make the queue ready again, after its pause if a message failed."""
        pause_s, process_queue.pause_s = process_queue.pause_s, 0.0
        if pause_s:
            self._rest(process_queue, pause_s)
        else:
            self._rested(process_queue)

    def pause(self, topics: Collection[str] | None) -> None:
        self._paused = topics
        idle, self._idle = self._idle, []
        for process_queue in idle + self._ready.take_all():
            self._rested(process_queue)

    def _rest(self, process_queue: ProcessQueue, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._rested, process_queue)

    def _rested(self, process_queue: ProcessQueue) -> None:
        process_queue.busy = False
        self._offer(process_queue)

    async def _not_done(
        self, process_queue: ProcessQueue, message: ReceivedMessage, verdict: Verdict
    ) -> None:
        # An unreadable message would fail for ever: it is given up, so that the messages after it are
        # delivered.
        dead = verdict.delay_level < 0 or isinstance(message, UnreadableMessage)
        spent = message.reconsume_times >= self._max
        back = process_queue.redelivery or self.redelivery
        if (dead or spent) and await back.give_up(message, dead=dead):
            process_queue.finish(message.queue_offset)
            return
        process_queue.put_aside(message.queue_offset)
        message.reconsume_times += 1
        asked_s = self._failure_pause_s if verdict.delay_s is None else _pause_s(verdict.delay_s)
        process_queue.pause_s = max(process_queue.pause_s, asked_s)

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Deliver again the open messages of a loop that was left; otherwise their queue would wait for ever.

        A message that stays long with a handler delays its queue: order requires that.
        """
        self._next_round()
        for process_queue in process_queues:
            overdue = process_queue.overdue(self._round - self._rounds)
            left = [one for one in overdue if process_queue.state(one.queue_offset) is DeliveryState.LEFT]
            for message in left:
                close_delivery(message)
                self.give_back(process_queue, message)
            if left and not process_queue.begun:
                self.release(process_queue)


def _pause_s(seconds: float) -> float:
    """The pause after a failure, within the limits of CR-18."""
    return min(max(seconds, LEAST_PAUSE_S), LONGEST_PAUSE_S)
