"""Bringing the progress of the delay levels up to what the log says was delivered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from orbitmq.broker.delay.delivered import (
    WINDOW,
    Delivery,
    Identity,
    LevelProgress,
    deliveries,
    waiting_identity,
)
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.message import reserved
from orbitmq.runtime.seam import Clock, Threads
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore
from orbitmq.store.ports import LogPiece

log = logging.getLogger(__name__)

# Who delivered may have had a clock so far ahead of ours; what is due later nobody has delivered yet.
CLOCKS_APART_MS = 60_000
# How many found deliveries are compared with waiting messages in one turn of the event loop; each may read a
# record.
DELIVERIES_PER_TURN = 128


class DeliverySearch:
    """Looks for deliveries behind the known progress, before more are made."""

    def __init__(
        self,
        clock: Clock,
        threads: Threads,
        store: MessageStore,
        levels: DelayLevels,
        progress: DelayProgress,
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._store = store
        self._levels = levels
        self._progress = progress

    async def run(self) -> None:
        """Move the progress of each level behind the newest of its messages that is found delivered.

        The log is flushed first: a message would be lost if its progress outlived the log record that proves
        its delivery. Records that the disk refuses for now are in no file that could be read.
        """
        await self._store.written()
        await self._store.flush()
        end = self._store.max_commit_log_offset
        starts: dict[int, int] = {}
        searched: dict[int, LevelProgress] = {}
        for level in self._progress.levels:
            start = self._start(level)
            if start is not None and start < end:
                starts[level] = start
                place = self._progress.place(level)
                last = self._store.max_offset(reserved.SCHEDULE_TOPIC, level - 1)
                # The table's file does not say from where on the log holds what it does not count.
                first = place.offset if place.log_offset else max(0, place.offset - WINDOW)
                searched[level] = LevelProgress(
                    place.offset, last, self.waiting(level), self._may_be(level), first
                )
        for found in searched.values():
            async for _ in in_slices(found.loading(), DELIVERIES_PER_TURN):
                pass
        await self._read(starts, searched, end)
        for level, found in searched.items():
            place = self._progress.place(level)
            if found.progress != place.offset:
                log.warning(
                    "delay level %d: messages %d to %d were delivered before this broker took over",
                    level, place.offset, found.progress - 1,
                )  # fmt: skip
            self._progress.move(level, place.at(found.progress, end))

    def _start(self, level: int) -> int | None:
        """From where on the log can hold deliveries of the level; ``None``: it holds none."""
        place = self._progress.place(level)
        queue_id = level - 1
        offset = max(place.offset, self._store.min_offset(reserved.SCHEDULE_TOPIC, queue_id))
        entry = self._store.entry(reserved.SCHEDULE_TOPIC, queue_id, offset)
        if entry is None:
            return None
        physical, _, due = entry
        if place.log_offset:
            return max(physical, place.log_offset)
        now = self._clock.now_ms()
        if due > now + self._levels.delay_ms(level):
            return physical  # taken as due at once (DL-05)
        if due > now + CLOCKS_APART_MS:
            return None
        return max(physical, self._store.raw.file_before(due))

    def waiting(self, level: int) -> Callable[[int], Identity | None]:
        """Gives the message that waits or waited at an offset of the level's queue; ``None``: unreadable."""

        def identity(offset: int) -> Identity | None:
            entry = self._store.entry(reserved.SCHEDULE_TOPIC, level - 1, offset)
            data = None if entry is None else self._store.record_at(entry[0])
            return None if data is None else waiting_identity(data)

        return identity

    def _may_be(self, level: int) -> Callable[[int, int, int], bool]:
        """Tells whether the message at an offset was due at a time, or taken as due (DL-05).

        Stored in the same millisecond, it was delivered while store times stood still (a clock set far back).
        What is delivered lies behind the message that waited.
        """
        delay_ms = self._levels.delay_ms(level)

        def may_be(offset: int, stored_ms: int, physical_offset: int) -> bool:
            entry = self._store.entry(reserved.SCHEDULE_TOPIC, level - 1, offset)
            if entry is None:
                return True
            place, _, due = entry
            return place < physical_offset and (due <= stored_ms or due >= stored_ms + delay_ms)

        return may_be

    async def _read(self, starts: dict[int, int], searched: dict[int, LevelProgress], end: int) -> None:
        at = min(starts.values(), default=end)
        while (piece := self._store.raw.piece(at, end)) is not None:
            found, at = await self._threads.run(deliveries, piece)
            async for each in in_slices(found, DELIVERIES_PER_TURN):
                level = searched.get(each.level)
                if level is not None and each.physical_offset >= starts[each.level]:
                    level.saw([each.identity], each.stored_ms, each.physical_offset)


async def deliveries_backwards(
    threads: Threads, store: MessageStore, start: int, end: int
) -> AsyncIterator[list[Delivery]]:
    """The deliveries between two places of the log where records begin, some thousands at a time.

    The newest part comes first; in a part they are in the order of the log. The log is read twice, so that
    one part at a time is in memory.
    """
    parts: list[LogPiece] = []
    at = start
    while (piece := store.raw.piece(at, end)) is not None:
        found, at = await threads.run(deliveries, piece)
        if found:
            parts.append(replace(piece, end=at))
    for part in reversed(parts):
        found, _ = await threads.run(deliveries, part)
        yield found
