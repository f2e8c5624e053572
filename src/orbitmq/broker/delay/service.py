"""Delivering delayed messages when their time has come (ScheduleMessageService)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orbitmq.broker.change_feed import DELAYS, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.durability import Durability
from orbitmq.broker.events import Events
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import LEADING
from orbitmq.message import property_names, reserved
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.message.tags import tags_code
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore, NewMessage, PutStatus, StoreClosedError
from orbitmq.wire.bodies import DataVersion
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

# Deliveries of one level in a row before the event loop and the other levels come next.
DELIVERIES_PER_TURN = 256
# A level whose message the store refuses is tried again after this time; RocketMQ waits 10 s (DL-04).
RETRY_AFTER_MS = 1000
# How long delivered messages may wait for the device before progress looks again.
SETTLE_MS = 200
# Delivered messages whose records are not on the device yet, per level; more wait in the schedule topic.
MAX_UNSETTLED = 100_000
_FAR_AWAY_MS = 1 << 62
AFTER_ERROR_SECONDS = 10.0  # an unforeseen one; the service itself never ends


@dataclass(slots=True)
class _Level:
    """One level: the next offset to look at, where a restart begins, and when to look again."""

    number: int
    position: int = 0
    progress: int = 0
    look_at_ms: int = 0


class ScheduleService(Component):
    """Moves messages from the schedule topic to where they belong.

    A level is one queue, in which messages come due in the order they were stored: only the first one is
    looked at. Progress follows when the delivered message is on the device, so a crash repeats deliveries of
    the last moments and loses none. One task works for all levels.
    """

    name = "delayed messages"
    runs_as = LEADING  # behaviour DL-10

    def __init__(
        self,
        clock: Clock,
        events: Events,
        store: MessageStore,
        durability: Durability,
        append: MessageAppend,
        topics: TopicConfigs,
        levels: DelayLevels,
        feed: ChangeFeed,
    ) -> None:
        self._clock = clock
        self._store = store
        self._durability = durability
        self._append = append
        self._topics = topics
        self._feed = feed
        events.on_messages_arrived(self.on_arrival, topic=reserved.SCHEDULE_TOPIC)
        feed.register(DELAYS, FedTable(int, self._apply, self))
        self.levels = levels
        self._levels = [_Level(number) for number in range(1, levels.highest + 1)]
        # (end of the delivered record in the log, its level, the progress that it allows), oldest first.
        self._unsettled: deque[tuple[int, _Level, int]] = deque()
        self._wake = asyncio.Event()
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)

    # -- working ---------------------------------------------------------------------------------------

    def tables(self) -> Sequence[Table]:
        return (Table(DELAYS, self),)

    async def start(self) -> None:
        self._every(self._clock, AFTER_ERROR_SECONDS, self._run, first_s=0.0)

    async def stop(self) -> None:
        """Bring what was delivered to the device and count it."""
        await self.end_work()
        if self._unsettled:
            await self._store.flush()
            self.settle()

    async def _run(self) -> None:
        """Deliver for ever."""
        self._begin()
        while True:
            self._wake.clear()
            await self._pass()
            self.settle()
            wait_ms = self._next_look_ms() - self._clock.now_ms()
            if wait_ms > 0:
                await self._sleep(wait_ms)

    def _begin(self) -> None:
        """Bring progress into the bounds of the queues, and ask to be told what arrives in them."""
        for level in self._levels:
            queue_id = level.number - 1
            low = self._store.min_offset(reserved.SCHEDULE_TOPIC, queue_id)
            high = self._store.max_offset(reserved.SCHEDULE_TOPIC, queue_id)
            inside = min(max(level.progress, low), high)
            if inside != level.progress:
                log.warning(
                    "progress of delay level %d was %d, its queue has %d to %d: going on at %d",
                    level.number, level.progress, low, high, inside,
                )  # fmt: skip
            level.progress = inside
            level.position = max(level.position, inside)
            level.look_at_ms = 0
            self._store.watch(reserved.SCHEDULE_TOPIC, queue_id)

    def on_arrival(self, _topic: str, queue_id: int, _max_offset: int) -> None:
        """Messages of a level can be read now."""
        if queue_id < len(self._levels) and self._levels[queue_id].look_at_ms == _FAR_AWAY_MS:
            self._levels[queue_id].look_at_ms = 0
            self._wake.set()

    async def _sleep(self, wait_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms >= _FAR_AWAY_MS // 2 else wait_ms / 1000):
                await self._wake.wait()

    def _next_look_ms(self) -> int:
        look = min(level.look_at_ms for level in self._levels)
        return min(look, self._clock.now_ms() + SETTLE_MS) if self._unsettled else look

    async def _pass(self) -> None:
        """Deliver what is due in every level, a bounded number of messages of each."""
        end = 0
        for level in self._levels:
            if level.look_at_ms <= self._clock.now_ms():
                end = max(end, self._deliver(level))
                await asyncio.sleep(0)
        if end and self._append.must_wait(True):
            try:
                status = await self._durability.stored(end)
            except StoreClosedError as error:
                log.error("delivered messages may not be on the disk: %s", error)
            else:
                if status is not PutStatus.OK:
                    log.warning("the disk is slow: delivered messages are not on it yet")

    def _deliver(self, level: _Level) -> int:
        """Deliver what is due in one level; returns the end of the last record put, 0 for none."""
        end = 0
        for _ in range(DELIVERIES_PER_TURN):
            now = self._clock.now_ms()
            entry = self._first(level)
            if entry is None:
                level.look_at_ms = _FAR_AWAY_MS
                return end
            physical, _, due = entry
            # A time further away than the delay comes from a clock set back or a changed level (DL-05).
            if now < due <= now + self.levels.delay_ms(level.number):
                level.look_at_ms = due
                return end
            if len(self._unsettled) >= MAX_UNSETTLED:
                level.look_at_ms = now + SETTLE_MS
                return end
            try:
                put = self._move(physical)
            except RemotingError as error:
                if not self._store.accepting:
                    log.warning("delay level %d waits: %s", level.number, error)
                    level.look_at_ms = now + RETRY_AFTER_MS
                    return end
                log.error(
                    "the delayed message at %d cannot be delivered, it is left out: %s", physical, error
                )
                put = 0
            level.position += 1
            self._unsettled.append((put, level, level.position))
            end = max(end, put)
        level.look_at_ms = 0
        return end

    def _first(self, level: _Level) -> tuple[int, int, int] | None:
        """The queue entry at the level's position, which cleaning may have moved."""
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

    def _move(self, physical: int) -> int:
        """Store the message under its real name; returns the end of its record, 0 when there is none."""
        stored = self._store.record_at(physical)
        if stored is None:
            log.error("the delayed message at %d of the log is gone", physical)
            return 0
        try:
            message = self._restored(decode_record(stored))
        except MessageFormatError as error:
            log.error("the delayed message at %d cannot be read: %s", physical, error)
            return 0
        if message is None:
            return 0
        return self._append.put_many([message]).end_offset

    def _restored(self, record: Record) -> NewMessage | None:
        """The message to deliver; its properties stay as they are (behaviours DL-06, DL-07)."""
        properties = decode_properties(record.properties)
        topic = properties.get(property_names.REAL_TOPIC, "")
        queue_text = properties.get(property_names.REAL_QUEUE_ID, "")
        config = self._topics.get(topic)
        # A half message is delivered by its transaction only (DL-08).
        if config is None or topic == reserved.TRANS_HALF_TOPIC or not queue_text.isdecimal():
            log.error(
                "the delayed message at %d is dropped: it cannot go to queue %r of topic %r%s",
                record.physical_offset, queue_text, topic, "" if config else ", which does not exist",
            )  # fmt: skip
            return None
        queues = max(config.read_queue_nums, config.write_queue_nums, 1)
        queue_id = int(queue_text)
        return NewMessage(
            topic,
            # The topic may have fewer queues now.
            queue_id if queue_id < queues else queue_id % queues,
            record.body,
            record.properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
            tags_code=tags_code(properties.get(property_names.TAGS)),
        )

    # -- progress --------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Count as done what is on the device."""
        safe = self._store.flushed_offset
        changed: dict[int, int] = {}
        while self._unsettled and self._unsettled[0][0] <= safe:
            _, level, progress = self._unsettled.popleft()
            level.progress = changed[level.number] = progress
        for number, progress in changed.items():
            self.version = self.version.next(self._clock.now_ms())
            self._feed.changed(DELAYS, str(number), progress)

    def _apply(self, key: str, progress: int | None) -> None:
        """Take over progress of another broker, which worked while this one did not."""
        level = self._levels[int(key) - 1]
        level.progress = level.position = progress or 0
        self._feed.changed(DELAYS, key, progress)

    def progress(self, level: int) -> int:
        """The offset in the level's queue up to which messages were delivered."""
        return self._levels[level - 1].progress

    def end(self, level: int) -> int:
        """The offset behind the newest message of the level's queue."""
        return self._store.max_offset(reserved.SCHEDULE_TOPIC, level - 1)

    def file_text(self) -> Iterator[str]:
        """``delayOffset.json``, piece by piece."""
        table = {level.number: level.progress for level in self._levels}
        return file_text(
            [("dataVersion", body_text(self.version, "\n\t")), ("offsetTable", pretty_value(table, "\n\t"))]
        )

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``delayOffset.json``."""
        for number, offset in (content.get("offsetTable") or {}).items():
            if 0 < int(number) <= len(self._levels):
                self._levels[int(number) - 1].progress = int(offset)
        if content.get("dataVersion"):
            self.version = DataVersion.from_json(content["dataVersion"])
