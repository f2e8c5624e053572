"""Shared parts of services that deliver: delay levels, timers, half messages, redeliveries of pop.

Each service has its own loop, because each decides differently which messages are due. They share the list of
messages handed to the sink, the pauses after refusals and for a slow disk, and the choice of a message's
topic and queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TypeVar

from orbitmq.broker.events import Events
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleChanged
from orbitmq.message import property_names, reserved
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.runtime.seam import Clock
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

# Messages handed over in a row before the event loop does its other work.
DELIVERIES_PER_TURN = 256
# How long messages handed over may wait for the disk before they are checked again.
SETTLE_MS = 200
# The pause after a temporary refusal; RocketMQ waits 10 s (DL-04).
RETRY_AFTER_MS = 1000
# A service logs temporary refusals once in this time, however many messages they concern.
COMPLAIN_EVERY_S = 60.0
# The pause after an unexpected error; the service itself never ends.
AFTER_ERROR_SECONDS = 10.0
# The most messages of one sequence that are handed over and not stored yet; further ones wait.
MAX_UNSETTLED = 100_000
# How long a message of an unknown topic waits after a change of role; then the topic counts as deleted.
UNKNOWN_TOPIC_WAITS_MS = 60_000

Key = TypeVar("Key")


class Unsettled:
    """Numbers of the messages handed over in sequence, beginning with the first that is not stored.

    Attributes:
        handed, settled: how many were handed over, and how many from the first on are stored.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, PendingDelivery | None]] = deque()
        self.handed = self.settled = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        """Forget all messages."""
        self._waiting.clear()
        self.handed = self.settled = 0

    def add(self, number: int, handed: PendingDelivery | None) -> None:
        """Add a message that was handed over; ``None``: the number has no message to deliver."""
        self._waiting.append((number, handed))
        self.handed += 1

    @property
    def full(self) -> bool:
        """Whether no more may be handed over before the first message is stored."""
        return len(self._waiting) >= MAX_UNSETTLED

    def settle(self) -> list[tuple[int, PendingDelivery | None]]:
        """Remove stored messages from the front; returns their numbers."""
        done = []
        while self._waiting and _is_stored(self._waiting[0][1]):
            done.append(self._waiting.popleft())
        self.settled += len(done)
        return done

    @property
    def lowest(self) -> int | None:
        """The lowest number whose message is not stored."""
        return min((number for number, handed in self._waiting if not _is_stored(handed)), default=None)

    def out_of_order(self) -> Iterator[int]:
        """The numbers of messages that are stored although an earlier one is not: messages sent to other
        masters are stored in any order."""
        for number, handed in self._waiting:
            if handed is not None and handed.stored:
                yield number
            elif handed is not None and handed.end:
                return  # this broker's own log keeps the order


def _is_stored(handed: PendingDelivery | None) -> bool:
    return handed is None or handed.stored


def take_stored(waiting: dict[Key, PendingDelivery]) -> list[Key]:
    """Remove and return all stored messages, in whatever order they were stored."""
    done = [key for key, handed in waiting.items() if handed.stored]
    for key in done:
        del waiting[key]
    return done


class Pauses:
    """How long a service waits when the sink refuses a message temporarily, or the disk is slow.

    Args:
        what: the messages, for the log.
    """

    def __init__(self, clock: Clock, sink: DeliverySink, what: str) -> None:
        self._clock = clock
        self._sink = sink
        self._what = what
        self._complained_at_s: float | None = None

    def after_ms(self, error: RemotingError) -> int:
        """How long to wait after a temporary refusal, which is logged unless it is SYSTEM_BUSY."""
        if error.code == ResponseCode.SYSTEM_BUSY:
            return SETTLE_MS
        now_s, before_s = self._clock.monotonic(), self._complained_at_s
        # Without the right to lead, another broker delivers, and the change of role is in the log.
        if self._sink.leads and (before_s is None or now_s - before_s >= COMPLAIN_EVERY_S):
            self._complained_at_s = now_s
            log.warning("%s wait: %s", self._what, error)
        return RETRY_AFTER_MS

    async def for_disk(self, last: PendingDelivery | None) -> None:
        """Let other tasks run; with SYNC_FLUSH wait until the disk has kept up.

        Args:
            last: the message that was handed over last, if any.
        """
        if last is None or not self._sink.waits:
            await asyncio.sleep(0)
            return
        try:
            if await last.settled() is not PutStatus.OK:
                log.warning("the disk is slow: %s that were delivered are not on it yet", self._what)
        except (RemotingError, StoreClosedError) as error:
            log.error("%s that were delivered may not be on the disk: %s", self._what, error)


async def woken(wake: asyncio.Event, wait_ms: int | None) -> None:
    """Return when the event is set or this time has passed; ``None``: no time limit."""
    if wait_ms is None or wait_ms > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await wake.wait()


class RealPlaces:
    """The topic and the queue that the properties of a delayed or timer message name."""

    def __init__(self, clock: Clock, events: Events, topics: TopicConfigs, sink: DeliverySink) -> None:
        self._clock = clock
        self._topics = topics
        self._sink = sink
        self._patient_until_ms = 0
        events.subscribe(RoleChanged, self._role_changed)

    def _role_changed(self, changed: RoleChanged) -> None:
        self._patient_until_ms = changed.at_ms + UNKNOWN_TOPIC_WAITS_MS

    def of(self, properties: Mapping[str, str]) -> tuple[str, int]:
        """The topic and queue to deliver to; in this broker's own store a queue that the topic has now.

        Raises:
            RemotingError: MESSAGE_ILLEGAL, the properties name no place; TOPIC_NOT_EXIST;
                SERVICE_NOT_AVAILABLE, the topic may still arrive.
        """
        topic = properties.get(property_names.REAL_TOPIC, "")
        queue_text = properties.get(property_names.REAL_QUEUE_ID, "")
        queue_id = whole_number(queue_text, INT32)
        # A half message is delivered by its transaction only (DL-08).
        if not topic or topic == reserved.TRANS_HALF_TOPIC or queue_id is None:
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL, f"it cannot go to queue {queue_text!r} of topic {topic!r}"
            )
        if not self._sink.own:
            return topic, queue_id
        config = self._topics.get(topic)
        if config is None:
            # Soon after a change of role, tables of the previous leader may still arrive.
            late = self._clock.now_ms() < self._patient_until_ms
            code = ResponseCode.SERVICE_NOT_AVAILABLE if late else ResponseCode.TOPIC_NOT_EXIST
            raise RemotingError(code, f"topic {topic} does not exist{' yet' if late else ''}")
        return topic, queue_id % max(config.read_queue_nums, config.write_queue_nums, 1)
