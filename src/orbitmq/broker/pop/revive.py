"""Redelivers messages that were not handled in time: into the group's retry topic, and after the last try as
dead letters (PopReviveService)."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat

from orbitmq.broker.change_feed import POP_DELIVERIES, POP_ORDERS, POPS
from orbitmq.broker.component import Component, Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.events import Events, RequestModeSet
from orbitmq.broker.messaging.delivering import (
    AFTER_ERROR_SECONDS,
    RETRY_AFTER_MS,
    SETTLE_MS,
    Pauses,
    take_stored,
    woken,
)
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery, is_not_now
from orbitmq.broker.messaging.stored import record_of
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop import retry_policy
from orbitmq.broker.pop.group_positions import GroupPositions
from orbitmq.broker.pop.hand_over import CheckPoints
from orbitmq.broker.pop.in_flight import PopDelivery, PopQueue
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.pop.redelivery import Redeliveries
from orbitmq.broker.pop.requests import MAX_MESSAGES, Sources
from orbitmq.broker.pop.revived import Revived
from orbitmq.broker.pop.state import NEVER_MS, PopState
from orbitmq.broker.role import LEADING, RoleChanged, RoleState
from orbitmq.message import reserved
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.errors import RemotingError
from orbitmq.wording import counted

log = logging.getLogger(__name__)

# How many deliveries are redelivered after one save of the table; each may have some dozen messages.
TAKEN_PER_TURN = 16
# The most redeliveries that are put and not stored yet; further messages wait in flight.
MAX_ON_THE_WAY = 10_000
# Pauses after a message itself is refused; the last one repeats (behaviour PE-06).
REFUSED_AFTER_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
# How many messages of pop's retry topics are redelivered in a row for a group that begins to pull.
RELEASED_PER_TURN = 100


class PopRevive(Component):
    """Watches the deadlines of the messages in flight, and owns their tables.

    A message stays in flight until its redelivery is stored, so a crash loses no message. A redelivery
    stored a moment before a crash is recognized by one of its properties, and is not stored again.

    Args:
        answer_pops: answers the pops of a group that wait for a topic.

    Attributes:
        state: the messages in flight.
    """

    name = "popped messages"
    runs_as = LEADING  # behaviour PE-08
    stop_limit_s = 30.0  # writes a check point for each delivery

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        role: RoleState,
        events: Events,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        modes: RequestModes,
        store: MessageStore,
        sink: DeliverySink,
        state: PopState,
        orders: OrderedPops,
        check_points: CheckPoints,
        positions: GroupPositions,
        counts: Counts,
        answer_pops: Callable[[str, str], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._role = role
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._modes = modes
        self._answer_pops = answer_pops
        self._store = store
        self._sink = sink
        self.state = state
        self._in_flight = state.in_flight
        self._orders = orders
        self._check_points = check_points
        self._positions = positions
        self._counts = counts
        self._sources = Sources(config, topics)
        self._redeliveries = Redeliveries(config, clock, metadata, topics, modes, store, self._sources)
        self._revived = Revived(store, topics, self._in_flight, self._redeliveries.targets)
        self._pauses = Pauses(clock, sink, self.name)
        # Messages that were put, and are in flight until their redeliveries are stored.
        self._on_the_way: dict[tuple[PopQueue, PopDelivery, int], PendingDelivery] = {}
        self._refused: dict[str, int] = {}
        self._wake = state.wake
        self._led_otherwise = False
        self._anew = True  # until redeliveries stored before this start are found
        self._running = False
        self._saving = False
        sink.on_stored(self._wake.set)
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(RequestModeSet, lambda event: self._mode_set(event.mode))

    # -- life ------------------------------------------------------------------------------------------

    def tables(self) -> Sequence[Table]:
        return (Table(POPS, self.state, parts=(POP_DELIVERIES,)), Table(POP_ORDERS, self._orders))

    async def start(self) -> None:
        await self._check_points.take_over()
        await self._positions.begin()
        self._anew = True
        self._running = True
        self._every(self._clock, AFTER_ERROR_SECONDS, self._run, first_s=0.0)

    async def stop(self) -> None:
        """Wait until redeliveries are stored, and count them; the folder's next broker makes the rest."""
        self._running = False
        await self.end_work()
        await self._settle_all()
        with contextlib.suppress(RemotingError):  # check points count as read after this
            await self._metadata.save(POPS)
        self._check_points.end()
        if self._role.takes_messages:
            await self._check_points.leave()

    def save_soon(self) -> None:
        """Write changes within ``flushIntervalCommitLog``; no answer waits for the write."""
        if self._running and not self._saving:
            self._saving = True
            self._spawn(self._save(), "saving")

    async def _save(self) -> None:
        await self._clock.sleep(self._config.flush_interval_commit_log_ms / 1000)
        self._saving = False
        try:
            await self._metadata.save(POPS, POP_ORDERS)
        except RemotingError as error:
            log.warning("acknowledgements are not on the disk yet: %s", error)

    async def _settle_all(self) -> None:
        if self._on_the_way:
            await self._sink.settle()
            self._settle()
            now = self._clock.now_ms()
            for queue, delivery, _ in self._on_the_way:
                self._in_flight.again(queue, delivery, now)
            self._on_the_way.clear()

    # -- working ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Redeliver until cancelled."""
        if self._anew:
            await self._revived.forget(self._clock.now_ms())
            self._anew = False
            modes = [mode for modes in self._modes.table().values() for mode in modes.values()]
            async for mode in in_slices(modes, RELEASED_PER_TURN):
                await self._release(mode)
        while True:
            self._wake.clear()
            if self._led_otherwise:
                self._led_otherwise = False
                await self._settle_all()
            await self._pass()
            self._settle()
            await self._sleep()

    async def _sleep(self) -> None:
        now = self._clock.now_ms()
        due = self._in_flight.next_due_ms
        self.state.looks_at_ms = NEVER_MS if due is None else due
        if len(self._on_the_way) >= MAX_ON_THE_WAY:
            due = now + SETTLE_MS  # too many redeliveries are not stored yet: overdue deliveries wait
        elif self._on_the_way:
            due = now + SETTLE_MS if due is None else min(due, now + SETTLE_MS)
        await woken(self._wake, None if due is None else due - now)

    async def _pass(self) -> None:
        """Redeliver the messages of due deliveries."""
        before = len(self._on_the_way)
        while len(self._on_the_way) < MAX_ON_THE_WAY:
            await self._clock.sleep(0)  # other tasks come first; a simulated power loss may end here
            due = self._in_flight.take_due(self._clock.now_ms(), TAKEN_PER_TURN)
            if not due:
                break
            await self._leave_all(due)
        if len(self._on_the_way) > before and self._sink.waits:
            await self._sink.settle()

    async def _leave_all(self, due: list[tuple[PopQueue, PopDelivery]]) -> None:
        waiting = deque(due)
        try:
            # A crash must not keep a redelivery and lose the pop of the message that it repeats.
            await self._metadata.save(POPS)
            while waiting:
                try:
                    await self._leave(*waiting[0])
                except RemotingError as error:
                    self._later(*waiting[0], error)
                waiting.popleft()
        except RemotingError as error:
            log.warning("redeliveries wait for the disk: %s", error)
        finally:
            for queue, delivery in waiting:
                self._in_flight.again(queue, delivery, self._clock.now_ms() + RETRY_AFTER_MS)

    def _later(self, queue: PopQueue, delivery: PopDelivery, error: RemotingError) -> None:
        """Try a delivery again later: its messages, or some of them, could not be put."""
        if is_not_now(error):
            wait_ms = self._pauses.after_ms(error)
        else:
            tries = self._refused[delivery.key] = self._refused.get(delivery.key, 0) + 1
            wait_ms = REFUSED_AFTER_S[min(tries, len(REFUSED_AFTER_S)) - 1] * 1000
            log.error("messages of %s cannot be redelivered, try %d: %s", queue.key, tries, error)
        self._in_flight.again(queue, delivery, self._clock.now_ms() + wait_ms)

    async def _leave(self, queue: PopQueue, delivery: PopDelivery) -> None:
        """Put a delivery's messages into the topics from which they will be popped again.

        Raises:
            RemotingError: not all messages could be put; some may have been.
        """
        group = self._groups.find(queue.group)
        gone: set[int] = set()
        refused: RemotingError | None = None
        for offset in sorted(delivery.left):
            if (queue, delivery, offset) in self._on_the_way:
                continue
            record = (
                record_of(self._store, queue.topic, queue.queue_id, offset) if group is not None else None
            )
            if group is None or record is None:
                gone.add(offset)
                continue
            waits = not (delivery.postponed or delivery.dead)
            delay_ms = retry_policy.delay_ms(group, record.reconsume_times) if waits else 0
            if delay_ms:
                self._in_flight.postpone(queue, delivery, offset, delay_ms)
                continue
            topic = await self._redeliveries.target(queue, group, record, dead=delivery.dead)
            if offset not in delivery.left:
                continue
            message, properties = self._redeliveries.message(queue, delivery, record, topic)
            try:
                self._on_the_way[queue, delivery, offset] = self._sink.hand(message, properties)
                dead = topic.startswith(reserved.DLQ_PREFIX)
                counter = self._counts.dead if dead else self._counts.revived
                counter[queue.group, pop_info.normal_topic(queue.topic, queue.group)] += 1
            except RemotingError as error:
                if is_not_now(error):
                    raise
                refused = error  # the refusal is about this message only: the others are redelivered
        if gone:
            log.warning("%s of %s gone, not to be redelivered", counted(len(gone), "message"), queue.key)
            self._in_flight.remove(queue, delivery, gone)
        if refused is not None:
            raise refused

    def _settle(self) -> None:
        """End the flight of messages whose redeliveries are stored, in whatever order that happened."""
        for queue, delivery, offset in take_stored(self._on_the_way):
            self._refused.pop(delivery.key, None)
            self._in_flight.remove(queue, delivery, {offset})

    # -- changes from outside --------------------------------------------------------------------------

    def _role_changed(self, _changed: RoleChanged) -> None:
        self._led_otherwise = True
        self._wake.set()

    def _mode_set(self, mode: SetMessageRequestModeRequestBody) -> None:
        if mode.mode is MessageRequestMode.PULL and self._running:
            # A waiting pop would take messages that a member already pulls.
            self._answer_pops(mode.topic, mode.consumer_group)
            self._spawn(self._release(mode), "release what waits for pops")

    async def _release(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Redeliver the messages in pop's retry topics: a group that begins to pull does not read these."""
        if mode.mode is not MessageRequestMode.PULL:
            return
        for config in self._sources.retry_topics(mode.topic, mode.consumer_group):
            for queue_id in range(config.read_queue_nums):
                async for _ in in_slices(repeat(None), RELEASED_PER_TURN):
                    if self._modes.get(mode.topic, mode.consumer_group) is not mode:
                        return  # the group pops again
                    if not self._release_next(config.topic_name, mode.consumer_group, queue_id):
                        break

    def _release_next(self, topic: str, group: str, queue_id: int) -> bool:
        """Redeliver the next messages of a queue; ``False``: no message is left."""
        high = self._store.max_offset(topic, queue_id)
        if topic not in self._topics or high == 0:
            return False
        queue = self._in_flight.queue(topic, group, queue_id)
        low = max(queue.next, self._store.min_offset(topic, queue_id))
        offsets = range(low, min(low + MAX_MESSAGES, high))
        if offsets:
            now = self._clock.now_ms()
            self._in_flight.take(queue, low, offsets, offsets.stop, now_ms=now, invisible_ms=0)
        return bool(offsets)
