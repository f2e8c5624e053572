"""Brings the progress of the delay levels up to the deliveries that the log shows."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from orbitmq.broker.delay.delivered import LoggedDelivery, deliveries_between
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.progress import DelayProgress, LevelProgress
from orbitmq.broker.messaging.stored import record_at
from orbitmq.message import reserved
from orbitmq.runtime.seam import Clock, Threads
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

log = logging.getLogger(__name__)

# How far the clock of the broker that delivered may have been ahead of this broker's: messages due later than
# that are not delivered.
CLOCKS_APART_MS = 60_000
# How many levels are searched in one turn of the event loop; each may read some records.
LEVELS_PER_TURN = 8


class DeliverySearch:
    """Reads from the log which delayed messages were delivered.

    A level delivers in order. So all messages before the newest one named by a delivery are delivered; and
    in a tail of the log, the oldest message named by a delivery is the first that is not delivered.
    """

    def __init__(
        self,
        clock: Clock,
        threads: Threads,
        store: MessageStore,
        broker_name: str,
        levels: DelayLevels,
        progress: DelayProgress,
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._store = store
        self._broker_name = broker_name
        self._levels = levels
        self._progress = progress

    async def run(self) -> None:
        """Move the progress of each level behind the newest of its messages that the log shows as delivered.

        The log is flushed first: a message would be lost if its progress outlived the log record that proves
        its delivery. The search does not see records that the disk has refused so far.
        """
        await self._store.written()
        await self._store.flush()
        end = self._store.max_commit_log_offset
        starts = {level: self._start(level) for level in self._progress.levels}
        searched = {level: start for level, start in starts.items() if start is not None and start < end}
        at = min(searched.values(), default=end)
        newest: dict[int, LoggedDelivery] = {}
        async for found in deliveries_between(self._threads, self._store, self._broker_name, at, end):
            for each in found:
                if _is_newer(each, newest.get(each.level)):
                    newest[each.level] = each
        behind: dict[int, int] = {}
        for each in newest.values():
            if (waited := self._waited(each)) is not None:
                behind[waited[0]] = max(waited[1] + 1, behind.get(waited[0], 0))
        async for level in in_slices(searched, LEVELS_PER_TURN):
            place = self._progress.place(level)
            offset = max(place.offset, behind.get(level, 0))
            if offset != place.offset:
                log.warning(
                    "delay level %d: messages %d to %d were delivered before this broker took over",
                    level, place.offset, offset - 1,
                )  # fmt: skip
            self._progress.move(level, place.at(offset, end))

    def without(self, deliveries: Iterable[LoggedDelivery]) -> dict[int, LevelProgress]:
        """The progress of the levels after these deliveries were cut from the log.

        A level with a delivery that names none of its messages goes back to its beginning: it is unknown
        which of its messages were delivered and which went to another group. The rest of the log and the
        leader's progress move it forward again; deliveries that neither shows are repeated.
        """
        lost: dict[int, set[int]] = {}
        unknown: set[int] = set()
        for each in deliveries:
            if each.level <= 0:
                continue
            if (waited := self._waited(each)) is None:
                unknown.add(each.level)
            else:
                lost.setdefault(waited[0], set()).add(waited[1])
        known = {*self._progress.levels}
        places = {level: self._progress.place(level).without(lost[level]) for level in known & lost.keys()}
        return places | dict.fromkeys(known & unknown, LevelProgress())

    def _waited(self, delivery: LoggedDelivery) -> tuple[int, int] | None:
        """Level and offset of the delayed message that a delivery names; ``None``: no message of this log.

        RocketMQ's broker copies the property of an older delivery into a message that a consumer sends back.
        """
        record = None if delivery.place is None else record_at(self._store, delivery.place, quiet=True)
        if record is None or record.topic != reserved.SCHEDULE_TOPIC or not delivery.is_of(record):
            return None
        return record.queue_id + 1, record.queue_offset

    def _start(self, level: int) -> int | None:
        """The first place of the log that can hold deliveries of the level; ``None``: the log holds none."""
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
            return physical  # such a message is delivered at once (DL-05)
        if due > now + CLOCKS_APART_MS:
            return None
        return max(physical, self._store.raw.file_before(due))


def _is_newer(delivery: LoggedDelivery, known: LoggedDelivery | None) -> bool:
    """Whether a delivery names a later message than the known delivery does."""
    if delivery.place is None:
        return False
    return known is None or known.place is None or delivery.place > known.place
