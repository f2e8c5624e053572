"""The pull loop of one queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.client.consumer.failures import Failures
from orbitmq.client.consumer.intake import FetchControl
from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.broker_calls import BrokerCalls, Filter, Pulled, PullOptions, PullStatus, QueueOffset
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.ranges import check_number
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.message.model import ReceivedMessage
from orbitmq.parameters import refuses_unknown
from orbitmq.wire.codes import ResponseCode

log = logging.getLogger("orbitmq.client")

# An empty pull that took longer than this was a long poll.
IDLE_PULL_MS = 900


@refuses_unknown
@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of unfinished messages: while a queue exceeds them, it is not pulled.

    Attributes:
        messages: unfinished messages of one queue.
        size_bytes: the bytes of their bodies.
        span: distance between the smallest and the largest unfinished offset.
        total_bytes: bodies of all queues of the consumer together, without those of paused topics. Pulls
            under way are not counted, so that one more pull of each queue may exceed the limit.
        popped: unfinished messages of one place that is popped, a queue or all queues of a broker; applies in
            place of ``messages`` and ``span`` (RocketMQ's popThresholdForQueue).
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000
    total_bytes: int = 256 * 1024 * 1024
    popped: int = 96

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span", "total_bytes", "popped"):
            check_number(f"FlowLimits.{name}", getattr(self, name), called=f"{name} of the flow limits")


class QueuePuller:
    """The pull loop of one queue.

    Args:
        process_queue: where pulled messages wait until they are finished.
        intake: the filter and pause of the queue's topic, and the byte count of all queues of the consumer.
        deliver: called with the process queue and the new messages of a pull.
        offsets: the group's offsets, which pulls may commit.
        anew: replaces a process queue by an empty one that continues at another offset.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        options: PullOptions,
        limits: FlowLimits,
        process_queue: ProcessQueue,
        intake: FetchControl,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        offsets: Offsets,
        anew: Callable[[ProcessQueue, int], ProcessQueue],
    ) -> None:
        self._client = client
        self._calls = calls
        self._options = options
        self._limits = limits
        self.process_queue = process_queue
        self._intake = intake
        self._deliver = deliver
        self._offsets = offsets
        self._anew = anew
        self._broker_id = 0
        # Whether the broker had no such topic: a topic of this name that appears later may be a new one.
        self._topic_gone = False
        self._failures = Failures(client, "pull", process_queue.queue)
        # Number of consecutive pulls that were empty and returned at once.
        self._idle = 0

    async def run(self) -> None:
        """Pull until the queue is dropped."""
        while not self.process_queue.dropped:
            wanted = await self._wanted()
            asked_ms, asked_id = self._client.now_ms(), self._broker_id
            try:
                if self._topic_gone:
                    await self._find_again()
                pulled = await self._calls.pull(
                    self._options,
                    self.process_queue.queue,
                    self.process_queue.next_offset,
                    wanted,
                    broker_id=self._broker_id,
                    commit_offset=self._offsets.get(self.process_queue.queue),
                )
            except OrbitError as error:
                await self._recover(error)
                continue
            except Exception as error:
                log.exception("pull of %s failed unexpectedly", self.process_queue.queue)
                await self._recover(error)
                continue
            if not self.process_queue.dropped:
                self._failures.over()
                moved = bool(pulled.messages) or pulled.next_offset != self.process_queue.next_offset
                self._take(pulled)
                if moved or self._client.now_ms() - asked_ms >= IDLE_PULL_MS:
                    self._idle = 0
                else:
                    await self._rest(asked_id)

    async def _wanted(self) -> Filter:
        """The filter for the next pull, once the topic is not paused and the limits leave room."""
        intake, queue = self._intake, self.process_queue
        while True:
            wanted = intake.wanted(queue.queue.topic)
            if wanted is None:
                await intake.pauses.until(lambda: intake.wanted(queue.queue.topic) is not None)
            elif not self._has_room():
                await queue.changes.until(self._has_room)
            elif not self._total_has_room():
                await intake.total.fell.until(self._total_has_room)
            else:
                return wanted

    def _has_room(self) -> bool:
        process_queue, limits = self.process_queue, self._limits
        return (
            len(process_queue) < limits.messages
            and process_queue.unfinished_bytes < limits.size_bytes
            and process_queue.span < limits.span
        )

    def _total_has_room(self) -> bool:
        return self._intake.total.size_bytes < self._limits.total_bytes

    def _take(self, pulled: Pulled) -> None:
        process_queue = self.process_queue
        process_queue.last_pull_ms = self._client.runtime.clock.now_ms()
        self._broker_id = pulled.suggested_broker_id
        if pulled.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "%s: offset %d is outside %d to %d, going on at %d",
                process_queue.queue,
                process_queue.next_offset,
                pulled.min_offset,
                pulled.max_offset,
                pulled.next_offset,
            )
            if not process_queue.next_offset < pulled.next_offset == pulled.min_offset:
                # Messages in flight have offsets from before the move: finished later, they would undo it,
                # and new messages with the same offsets would count as known.
                self.process_queue = self._anew(process_queue, self._moved_to(pulled))
                return
            # The broker has deleted only the requested offset: held messages can still be handled.
        process_queue.next_offset = pulled.next_offset
        if pulled.messages:
            process_queue.last_stored_ms = pulled.messages[-1].store_timestamp_ms
            self._deliver(process_queue, process_queue.add(pulled.messages))
        if not len(process_queue):
            # The range had no message that passes the filter, or none at all: that is progress, too.
            self._offsets.update(process_queue.queue, pulled.next_offset)

    def _moved_to(self, pulled: Pulled) -> int:
        """The offset at which the queue continues, as a rule the one in the broker's answer.

        A queue that has lost its last messages may still have the messages held here: it continues at the
        first of these.
        """
        first = self.process_queue.committable()
        lost_its_end = self.process_queue.next_offset > pulled.max_offset
        return min(first, pulled.next_offset) if lost_its_end and first >= 0 else pulled.next_offset

    async def _rest(self, asked_id: int) -> None:
        """Handle an empty answer that came at once, from a slave that is behind this consumer (row MO-12).

        If the answer suggests another broker, that broker is asked at once, unless the two suggest each
        other.
        """
        self._idle += 1
        if self._idle > 1 or self._broker_id == asked_id:
            await self._client.runtime.clock.sleep(self._failures.backoff.pause_s(self._idle))

    async def _find_again(self) -> None:
        """Continue with a topic that was gone: at its beginning if it was created again, so that no message
        is missed.

        The groups' offsets are deleted with a topic. The old offset would be in the middle of the new
        messages, or after them.

        Raises:
            OrbitError: the topic is still gone, or a broker did not answer.
        """
        process_queue = self.process_queue
        queue = process_queue.queue
        begins = await self._calls.min_offset(queue)
        if await self._is_another(begins):
            self.process_queue = self._anew(process_queue, await self._begin_of_group(begins))
            self.process_queue.made_at = begins.made_at
        else:
            self._offsets.follow(queue, process_queue)
        self._topic_gone = False

    async def _is_another(self, begins: QueueOffset) -> bool:
        """Whether the queue belongs to a new topic of the same name, by its present first message.

        OrbitMQ's brokers send the creation stamp of the topic. With other brokers the store times of messages
        decide, and only if they leave no doubt: to read a whole topic again would be worse.
        """
        process_queue = self.process_queue
        queue, stored_ms, made_at = process_queue.queue, process_queue.last_stored_ms, process_queue.made_at
        if made_at is not None and begins.made_at and begins.made_at != made_at:
            return True
        if (await self._calls.max_offset(queue)).offset < process_queue.next_offset:
            return True
        if not stored_ms:
            return False
        return (await self._calls.offset_by_time(queue, stored_ms + 1)).offset <= begins.offset

    async def _begin_of_group(self, begins: QueueOffset) -> int:
        """The start offset in a new topic: the group's offset if another member has committed one already.

        Only brokers that delete the offsets of a group together with a topic are asked: others may return an
        offset of the deleted topic.
        """
        if not begins.made_at or not self._options.commits:
            return begins.offset
        queue = self.process_queue.queue
        committed = (await self._calls.committed(self._options.group, queue)).offset
        ends = (await self._calls.max_offset(queue)).offset
        return committed if begins.offset < committed <= ends else begins.offset

    def _asked_a_slave(self) -> bool:
        """Whether the last request may have gone to a slave, which may not have the topic yet."""
        queue = self.process_queue.queue
        route = self._client.route(queue.topic)
        found = route.reader(queue.broker_name, self._broker_id) if route is not None else None
        return found is None or found[1] or self._client.has_acting_master(queue.broker_name)

    async def _recover(self, error: Exception) -> None:
        if (
            isinstance(error, BrokerError)
            and error.code == ResponseCode.TOPIC_NOT_EXIST
            and not self._asked_a_slave()
        ):
            self._topic_gone = True
            # This member's offset would become the group's offset in a new topic of the same name.
            self._offsets.release(self.process_queue.queue)
        # The replica that failed may be a slave that is gone: start again at the master.
        self._broker_id = 0
        await self._failures.recover(error)
