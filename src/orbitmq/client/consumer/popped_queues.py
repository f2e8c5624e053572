"""Popping by a push consumer whose group its broker has set to popping: the broker tracks messages in flight
(PP rows).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator

from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.failures import Failures
from orbitmq.client.consumer.intake import FetchControl
from orbitmq.client.consumer.leases import RENEW_EVERY_S, Leases
from orbitmq.client.consumer.pop_queue import PopQueue
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.core.broker_calls import BrokerCalls, Filter
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.pop_calls import PopCalls, PopOptions, Receipt
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import ACK, settle
from orbitmq.runtime.tasks import Background, every
from orbitmq.runtime.waiters import Waiters

log = logging.getLogger("orbitmq.client")

# How long a pop waits at the broker (DefaultMQPushConsumerImpl.BROKER_SUSPEND_MAX_TIME_MILLIS).
WAIT_MS = 15_000
# A pop that returns empty before its time is repeated only after this pause: the broker may have ended it
# because the group is switched to pulling, which the next rebalance shows.
IDLE_PAUSE_S = 0.2
# How long a dropped place waits for the answer to its last pop.
DRAIN_S = 0.15


class PoppedQueues:
    """The places that the broker assigns to this member to pop, and the popped messages.

    A place is a queue, or all queues of a topic at one broker as queue -1. A dropped place is not popped any
    more; its messages are still handled and acknowledged, since no other member has them.

    Args:
        background: where the pop loops run.
        intake: the filters of the topics.
        delivery: takes the popped messages.
        batch_size: messages per pop.
        invisible_s: the invisible time of a message; it is renewed until the message is done.
        most_redeliveries: see :class:`~orbitmq.client.consumer.pop_queue.PopQueue`.
    """

    def __init__(
        self,
        client: ClientInstance,
        calls: BrokerCalls,
        background: Background,
        intake: FetchControl,
        delivery: Delivery,
        options: PopOptions,
        limits: FlowLimits,
        *,
        batch_size: int,
        invisible_s: float,
        most_redeliveries: int | None,
    ) -> None:
        self._client = client
        self._pops = PopCalls(client, calls)
        self._background = background
        self._intake = intake
        self._delivery = delivery
        self._options = options
        self._limits = limits
        self._batch_size = batch_size
        self._invisible_s = invisible_s
        self._most_redeliveries = most_redeliveries
        # These tasks outlive the pop loops: leases are renewed and ended until the last handler has returned.
        self._settling = Background(f"leases of {options.group}")
        self._leases = Leases(client, calls, self._pops, options.group, self._settling)
        self._poppers: dict[MessageQueue, Popper] = {}
        self._leaving: list[Popper] = []
        self._attempts = 0

    def start(self) -> None:
        """Begin to renew leases."""
        self._leases.begin()
        clock = self._client.runtime.clock
        self._settling.spawn(every(clock, RENEW_EVERY_S, self._tend), "renewal")

    # -- for the rebalancer ------------------------------------------------------------------------------

    def assigned(self, topic: str) -> set[MessageQueue]:
        return {place for place in self._poppers if place.topic == topic}

    async def take(self, queue: MessageQueue) -> bool:
        if queue not in self._poppers:
            popper = self._poppers[queue] = Popper(self._client, self, queue)
            name = f"pop {queue.topic} {queue.broker_name}[{queue.queue_id}]"
            popper.task = self._background.spawn(popper.run(), name)
        return True

    async def drop(self, queue: MessageQueue) -> None:
        popper = self._poppers.pop(queue, None)
        if popper is None or popper.task is None:
            return
        popper.ended = True
        for waiters in (popper.changes, self._intake.pauses, self._intake.total.fell):
            waiters.changed()  # wakes the loop, which waits for one of these unless a pop is under way
        self._leaving.append(popper)
        # A pop that waits at the broker is not cancelled: its messages would be invisible to all members.
        await asyncio.wait({popper.task}, timeout=DRAIN_S)
        self._give_back_unwanted(popper)

    # -- for the consumer --------------------------------------------------------------------------------

    def places(self) -> dict[MessageQueue, int]:
        """The popped places, each with its number of unfinished messages."""
        return {place: popper.unfinished for place, popper in sorted(self._poppers.items())}

    def process_queues(self) -> Iterator[ProcessQueue]:
        """The queues of popped, unfinished messages."""
        for popper in (*self._poppers.values(), *self._leaving):
            yield from popper.queues.values()

    async def drop_unwanted(self) -> None:
        """Give up the topics without a subscription."""
        for place in [place for place in self._poppers if place.topic not in self._intake]:
            await self.drop(place)

    def pauses_changed(self) -> None:
        """Apply a change of the paused topics."""
        for popper in (*self._poppers.values(), *self._leaving):
            self._intake.count(popper.queues.values(), popper.place.topic)

    async def close(self, limit_s: float) -> None:
        """Give back unfinished messages, after the pop loops and the handlers have stopped."""
        for popper in (*self._poppers.values(), *self._leaving):
            popper.give_back()
            for queue in popper.queues.values():
                queue.drop(released=True)
        await self._leases.close(limit_s)
        await self._settling.stop()

    def _tend(self) -> None:
        self._leases.renew()
        for popper in (*self._poppers.values(), *self._leaving):
            for queue in popper.queues.values():
                queue.forget_expired()
        for popper in self._leaving:
            self._give_back_unwanted(popper)
        self._leaving = [popper for popper in self._leaving if not popper.empty]

    def _give_back_unwanted(self, popper: Popper) -> None:
        if popper.place.topic not in self._intake:
            popper.give_back()

    # -- for the pop loops -------------------------------------------------------------------------------

    async def wanted(self, popper: Popper) -> Filter | None:
        """The filter for the next pop, once the topic is not paused and the flow limits leave room.

        None when the place was dropped meanwhile.
        """
        intake, topic = self._intake, popper.place.topic

        def has_room() -> bool:
            return popper.ended or (
                popper.unfinished < self._limits.popped
                and sum(queue.unfinished_bytes for queue in popper.queues.values()) < self._limits.size_bytes
            )

        def total_has_room() -> bool:
            return popper.ended or intake.total.size_bytes < self._limits.total_bytes

        while not popper.ended:
            wanted = intake.wanted(topic)
            if wanted is None:
                await intake.pauses.until(lambda: popper.ended or intake.wanted(topic) is not None)
            elif not has_room():
                await popper.changes.until(has_room)
            elif not total_has_room():
                await intake.total.fell.until(total_has_room)
            else:
                return wanted
        return None

    def next_attempt(self) -> int:
        """A new attempt id, for a pop that is not the repetition of an earlier one."""
        self._attempts += 1
        return self._attempts

    async def pop(
        self, place: MessageQueue, wanted: Filter, attempt: int
    ) -> list[tuple[ReceivedMessage, Receipt]]:
        """Pop once. With order, a repeated pop with the same attempt id gets the same messages again.

        Raises:
            OrbitError: the pop failed.
        """
        return await self._pops.pop(
            self._options,
            place.topic,
            place.broker_name,
            wanted,
            queue_id=place.queue_id,
            max_messages=self._batch_size,
            invisible_ms=int(self._invisible_s * 1000),
            wait_ms=WAIT_MS,
            attempt_id=f"{self._client.client_id}@pop@{attempt}" if self._options.ordered else None,
        )

    def arrived(self, popper: Popper, wanted: Filter, taken: list[tuple[ReceivedMessage, Receipt]]) -> None:
        """Deliver popped messages; acknowledge those whose tag only shares its hash with a wanted tag."""
        fresh: dict[PopQueue, list[ReceivedMessage]] = {}
        for message, receipt in taken:
            stored = MessageQueue(receipt.topic, popper.place.broker_name, receipt.info.queue_id)
            queue = popper.queues.get(stored)
            if queue is None:
                total = self._intake.total_for(popper.place.topic)
                most, ordered = self._most_redeliveries, self._options.ordered
                queue = PopQueue(stored, total, self._delivery.settled, popper.changes, most, ordered=ordered)
                popper.queues[stored] = queue
            lease = self._leases.open(message, receipt, self._invisible_s, math.inf)
            if not wanted.has_text_of(message):
                settle(message, ACK)
            elif queue.admit(lease):
                fresh.setdefault(queue, []).append(message)
            else:
                self._leases.drop(lease)
        for queue, messages in fresh.items():
            self._delivery.arrived(queue, messages)


class Popper:
    """The pop loop of one place.

    Attributes:
        place: the place.
        queues: the popped messages by the queue where they are stored, which may be one of a retry topic.
        changes: called when messages are finished.
        ended: whether no further pop begins.
        task: the loop.
    """

    def __init__(
        self,
        client: ClientInstance,
        owner: PoppedQueues,
        place: MessageQueue,
    ) -> None:
        self._clock = client.runtime.clock
        self._owner = owner
        self._failures = Failures(client, "pop", place)
        self.place = place
        self.queues: dict[MessageQueue, PopQueue] = {}
        self.changes = Waiters()
        self.ended = False
        self.task: asyncio.Task[None] | None = None

    @property
    def unfinished(self) -> int:
        """Number of unfinished messages."""
        return sum(len(queue) for queue in self.queues.values())

    @property
    def empty(self) -> bool:
        """Whether the loop has ended and all messages are finished."""
        return not self.unfinished and (self.task is None or self.task.done())

    async def run(self) -> None:
        """Pop until the place is dropped."""
        attempt = self._owner.next_attempt()
        while (wanted := await self._owner.wanted(self)) is not None:
            asked = self._clock.monotonic()
            try:
                taken = await self._owner.pop(self.place, wanted, attempt)
            except OrbitError as error:
                await self._failures.recover(error)
                continue
            except Exception as error:
                log.exception("pop of %s failed unexpectedly", self.place)
                await self._failures.recover(error)
                continue
            self._failures.over()
            attempt = self._owner.next_attempt()
            if taken:
                self._owner.arrived(self, wanted, taken)
            elif self._clock.monotonic() - asked < WAIT_MS / 1000 - IDLE_PAUSE_S:
                await self._clock.sleep(IDLE_PAUSE_S)

    def give_back(self) -> None:
        """Give back messages that no handler has begun, so that other members get them."""
        for queue in self.queues.values():
            queue.give_back()
