"""Delivering delayed messages when their time has come (ScheduleMessageService)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from orbitmq.broker.change_feed import DELAYS
from orbitmq.broker.component import Component, Table
from orbitmq.broker.delay.delivered import delivery_of
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.progress import MAX_AHEAD, DelayProgress
from orbitmq.broker.delay.search import CLOCKS_APART_MS, DeliverySearch
from orbitmq.broker.events import DeliveriesLost, Events, LogCut
from orbitmq.broker.messaging.delivering import (
    AFTER_ERROR_SECONDS,
    DELIVERIES_PER_TURN,
    SETTLE_MS,
    Pauses,
    RealPlaces,
    Unsettled,
    woken,
)
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery, is_not_now
from orbitmq.broker.messaging.room import with_property
from orbitmq.broker.messaging.stored import copied
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import LEADING, RoleChanged
from orbitmq.message import property_names, reserved
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import decode_record
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

_FAR_AWAY_MS = 1 << 62


@dataclass(slots=True)
class _Level:
    """One level: the next offset to look at, and when to look again.

    Attributes:
        unsettled: the offsets of messages handed over and not stored yet. A level that waits for its message
            does not hold up the progress of the other levels.
        ahead: offsets from the position on whose messages are delivered already.
    """

    number: int
    position: int = 0
    look_at_ms: int = 0
    unsettled: Unsettled = field(default_factory=Unsettled)
    ahead: frozenset[int] = frozenset()


class ScheduleService(Component):
    """Moves messages from the schedule topic to their own topics when they are due.

    A level is one queue, in which messages come due in the order they were stored: only the first one is
    looked at. Progress follows when the delivered message is on the device. After a crash or a change of role
    the log shows the later deliveries, so that none is made twice. One task works for all levels.

    Attributes:
        delays: the progress of each level.
    """

    name = "delayed messages"
    runs_as = LEADING  # behaviour DL-10

    def __init__(
        self,
        clock: Clock,
        broker_name: str,
        events: Events,
        store: MessageStore,
        sink: DeliverySink,
        topics: TopicConfigs,
        levels: DelayLevels,
        delays: DelayProgress,
        search: DeliverySearch,
    ) -> None:
        self._clock = clock
        self._broker_name = broker_name
        self._store = store
        self._sink = sink
        self._real_places = RealPlaces(clock, events, topics, sink)
        self._pauses = Pauses(clock, sink, self.name)
        self.delays = delays
        self._search = search
        self._wake = asyncio.Event()
        sink.on_stored(self._wake.set)
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(DeliveriesLost, self._lost)
        events.subscribe(LogCut, self._log_cut)
        events.on_messages_arrived(self.on_arrival, topic=reserved.SCHEDULE_TOPIC)
        self.levels = levels
        self._levels = [_Level(number) for number in range(1, levels.highest + 1)]
        # Whether positions must be read again: at a start, and after a change of role.
        self._anew = True
        # Whether another broker, or this one before a crash, may have made deliveries that the progress
        # lacks.
        self._unknown = False
        # Whether the log was searched since the start.
        self._searched = False

    # -- working ---------------------------------------------------------------------------------------

    def tables(self) -> Sequence[Table]:
        return (Table(DELAYS, self.delays),)

    async def start(self) -> None:
        self._anew = True
        self._unknown = self._unknown or self._store.crashed
        self._every(self._clock, AFTER_ERROR_SECONDS, self._run, first_s=0.0)

    async def stop(self) -> None:
        """Wait for delivered messages to be stored, and count them."""
        await self.end_work()
        if self._store.crashed and not self._searched:
            self._store.stop_as_crash()
        if self._any_unsettled():
            await self._sink.settle()
            self.settle()

    async def _run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._wake.clear()
            if self._anew:
                await self._begin_anew()
            await self._pass()
            self.settle()
            look_ms = self._next_look_ms()
            await woken(self._wake, None if look_ms == _FAR_AWAY_MS else look_ms - self._clock.now_ms())

    async def _begin_anew(self) -> None:
        """Begin at the saved progress: deliveries not known to be stored are repeated."""
        if self._any_unsettled():
            await self._sink.settle()
            self.settle()
        if self._unknown:
            await self._search.run()
        self._anew, self._unknown, self._searched = False, False, True
        for level in self._levels:
            level.unsettled.clear()
            level.look_at_ms = 0
        self._begin()
        others = [level for level in self.delays.levels if level > self.levels.highest]
        if waiting := [level for level in others if self.progress(level) < self.end(level)]:
            log.warning("messages of delay levels %s wait: messageDelayLevel does not have these", waiting)

    def _begin(self) -> None:
        """Keep positions within the bounds of the queues, and watch the queues for new messages."""
        for level in self._levels:
            queue_id = level.number - 1
            low = self._store.min_offset(reserved.SCHEDULE_TOPIC, queue_id)
            high = self._store.max_offset(reserved.SCHEDULE_TOPIC, queue_id)
            before = self.delays.place(level.number)
            place = before.cut(high)
            if not low <= before.offset <= high:
                place = place.at(max(low, place.offset), 0)
                log.warning(
                    "progress of delay level %d was %d, its queue has %d to %d: going on at %d",
                    level.number, before.offset, low, high, place.offset,
                )  # fmt: skip
            if place != before:
                self.delays.move(level.number, place)
            level.position, level.ahead = place.offset, frozenset(place.ahead)
            self._store.watch(reserved.SCHEDULE_TOPIC, queue_id)

    def on_arrival(self, _topic: str, queue_id: int, _max_offset: int) -> None:
        """Wake the loop for a level that had no message: it has one now."""
        if queue_id < len(self._levels) and self._levels[queue_id].look_at_ms == _FAR_AWAY_MS:
            self._levels[queue_id].look_at_ms = 0
            self._wake.set()

    def _role_changed(self, _changed: RoleChanged) -> None:
        self._unknown = True
        self._anew = True
        self._wake.set()

    def _lost(self, event: DeliveriesLost) -> None:
        """Take back the deliveries in a tail of the log that is set aside (behaviour PO-36)."""
        for level, place in self._search.without(event.deliveries).items():
            before = self.delays.place(level)
            if place != before:
                log.warning(
                    "delay level %d goes back from message %d to %d: later deliveries are set aside",
                    level, before.offset, place.offset,
                )  # fmt: skip
                self.delays.take_back(level, place)

    def _log_cut(self, cut: LogCut) -> None:
        for level in self.delays.levels:
            self.delays.cut(level, self.end(level), cut.end)

    def _any_unsettled(self) -> bool:
        return any(level.unsettled for level in self._levels)

    def _next_look_ms(self) -> int:
        look = min(level.look_at_ms for level in self._levels)
        return min(look, self._clock.now_ms() + SETTLE_MS) if self._any_unsettled() else look

    async def _pass(self) -> None:
        """Deliver the messages due in every level, a bounded number of each level."""
        last: PendingDelivery | None = None
        for level in self._levels:
            if level.look_at_ms <= self._clock.now_ms():
                last = self._deliver(level) or last
                await asyncio.sleep(0)
        await self._pauses.for_disk(last)

    def _deliver(self, level: _Level) -> PendingDelivery | None:
        """Deliver the messages due in one level; returns the last one put, if any."""
        last: PendingDelivery | None = None
        for _ in range(DELIVERIES_PER_TURN):
            now = self._clock.now_ms()
            entry = self._first(level)
            if entry is None:
                level.look_at_ms = _FAR_AWAY_MS
                return last
            physical, _, due = entry
            # A time further away than the delay comes from a clock set back or a changed level (DL-05). If it
            # is only a little further away, it comes from another broker's clock, and the level waits for it.
            if now < due <= now + self.levels.delay_ms(level.number) + CLOCKS_APART_MS:
                level.look_at_ms = due
                return last
            if level.unsettled.full:
                level.look_at_ms = now + SETTLE_MS
                return last
            put = None
            try:
                if level.position not in level.ahead:
                    put = self._move(physical)
            except RemotingError as error:
                if is_not_now(error):
                    level.look_at_ms = now + self._pauses.after_ms(error)
                    return last
                log.error(
                    "the delayed message at %d cannot be delivered, it is left out: %s", physical, error
                )
            level.unsettled.add(level.position, put)
            level.position += 1
            last = put or last
        level.look_at_ms = 0
        return last

    def _first(self, level: _Level) -> tuple[int, int, int] | None:
        """The queue entry at the level's position; cleaning may have moved the position."""
        queue_id = level.number - 1
        entry = self._store.entry(reserved.SCHEDULE_TOPIC, queue_id, level.position)
        if entry is None:
            low = self._store.min_offset(reserved.SCHEDULE_TOPIC, queue_id)
            if level.position < low:
                log.error(
                    "messages %d to %d of delay level %d were deleted before they were due",
                    level.position, low - 1, level.number,
                )  # fmt: skip
                level.position = low
                entry = self._store.entry(reserved.SCHEDULE_TOPIC, queue_id, low)
        return entry

    def _move(self, physical: int) -> PendingDelivery | None:
        """Put the message into its own topic; ``None`` when there is no message to put.

        Raises:
            RemotingError: the message is refused, for the moment or for good.
        """
        stored = self._store.record_at(physical)
        if stored is None:
            log.error("the delayed message at %d of the log is gone", physical)
            return None
        try:
            record = decode_record(stored)
            properties = decode_properties(record.properties)
        except MessageFormatError as error:
            log.error("the delayed message at %d cannot be read: %s", physical, error)
            return None
        topic, queue_id = self._real_places.of(properties)
        # The message keeps its properties; an added property names the place where it waited (DL-06, DL-09).
        value = delivery_of(record.physical_offset, self._broker_name)
        properties[property_names.DELIVERY_OF] = value
        encoded = with_property(record.properties, property_names.DELIVERY_OF, value)
        return self._sink.hand(copied(record, properties, topic, queue_id, encoded=encoded), properties)

    # -- progress --------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Count stored messages as done."""
        for level in self._levels:
            if level.unsettled:
                self._settle(level)

    def _settle(self, level: _Level) -> None:
        before = place = self.delays.place(level.number)
        for offset, handed in level.unsettled.settle():
            log_offset = place.log_offset if handed is None else handed.end or place.log_offset
            place = place.at(offset + 1, log_offset)
        # Messages that other masters have stored before the first one (behaviour ES-14).
        place = place.with_ahead(islice(level.unsettled.out_of_order(), MAX_AHEAD))
        if place != before:
            self.delays.move(level.number, place)

    def progress(self, level: int) -> int:
        """The offset in the level's queue up to which messages were delivered."""
        return self.delays.place(level).offset

    def end(self, level: int) -> int:
        """The offset behind the newest message of the level's queue."""
        return self._store.max_offset(reserved.SCHEDULE_TOPIC, level - 1)

    def state(self) -> dict[str, str]:
        """Lines of the broker's state: the progress of each level in use, and the end of its queue."""
        ends = ((level, self.end(level)) for level in range(1, self.levels.highest + 1))
        return {
            f"scheduleMessageOffset_{level}": f"{self.progress(level)},{end}" for level, end in ends if end
        }
