"""The progress of timers, kept in ``config/timercheck`` and in a table for other brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import TIMERS, ChangeFeed, FedTable
from orbitmq.broker.component import Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.delivered import ROLLED, TIMER, LoggedDelivery
from orbitmq.broker.events import LogCut
from orbitmq.broker.messaging.stored import record_at
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value
from orbitmq.broker.timers import forms
from orbitmq.broker.timers.check_file import CheckFile
from orbitmq.broker.timers.pending import TOPIC
from orbitmq.broker.timers.progress import Check, TimerProgress, check_of, due_of
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.topic import DataVersion

log = logging.getLogger(__name__)


class ProgressTable:
    """The progress of this broker, joined with that of a broker that delivers in its place.

    Attributes:
        received: whether another broker has sent its deliveries since this was set to ``False``.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, store: MessageStore, feed: ChangeFeed) -> None:
        self._clock = runtime.clock
        self._store = store
        self._feed = feed
        self._file = CheckFile(runtime, f"{config.store_path_root_dir}/config/timercheck")
        self._saved = TimerProgress()
        # The file is read at the first use of the progress, not with the tables: reading it needs the queues.
        self._file_is_known = True
        self.received = False
        self._version = DataVersion(state_version=0, timestamp=runtime.clock.now_ms(), counter=0)
        feed.register(
            TIMERS,
            FedTable(
                TimerProgress.plain,
                self._apply,
                self,
                lambda: [("progress", self.saved)],
                self._is_further,
                restore=self._restore,
            ),
        )

    def tables(self) -> tuple[Table, ...]:
        return (Table(TIMERS, self),)

    @property
    def saved(self) -> TimerProgress:
        """The last written progress, of this broker or another."""
        self._read_file()
        return self._saved

    @saved.setter
    def saved(self, progress: TimerProgress) -> None:
        self._saved = progress
        self._file_is_known = True

    @property
    def version(self) -> DataVersion:
        """The table's version: it counts writes."""
        self._read_file()
        return self._version

    @version.setter
    def version(self, version: DataVersion) -> None:
        self._read_file()  # compares the file with the present version
        self._version = version

    def tables_read(self) -> None:
        """Have ``timercheck`` read at the next use: it may be newer than the table from file and journal."""
        self._file_is_known = False

    def _read_file(self) -> None:
        if self._file_is_known:
            return
        self._file_is_known = True
        found = self._file.load()
        known = self._version
        if found is not None and (not known.counter or found[0].version.is_newer_than(known)):
            self._version, self._saved = found[0].version, found[1]
        # Behind the log's end at recovery, file and table mean other messages, which a crash has lost.
        recovered = self._store.recovered
        own_end = min([0 if recovered is None else recovered.end_offset, *self._store.cuts])
        self._saved = self._within(self._saved, own_end)

    def load(self) -> TimerProgress:
        """The progress without messages that the log does not have."""
        return self._within(self.saved, self._store.end)

    def _within(self, progress: TimerProgress, end: int) -> TimerProgress:
        high = self._store.max_offset(TOPIC, 0)
        if progress.before < 0:
            end = min(end, self._place_behind(min(progress.taken, high)))
        return progress.within(high, end)

    def _place_behind(self, taken: int) -> int:
        """The commit log offset at which the messages before an offset of the timer topic end."""
        entry = self._store.entry(TOPIC, 0, taken - 1) if taken > 0 else None
        return entry[0] + entry[1] if entry is not None else 0

    def take_back(self, lost: Iterable[LoggedDelivery]) -> bool:
        """Take back deliveries in a tail of the log that is set aside; returns whether there were any.

        The progress goes back by due time: messages due since then that went to other masters are repeated
        too.
        """
        slots = [slot for each in lost if (slot := self._slot_of(each)) is not None]
        if not slots or due_of(self.saved.latest) <= min(slots):
            return False
        log.warning("timers due from %d on come again, their deliveries are set aside", min(slots))
        self.saved = self.saved.taken_back(min(slots))
        self._feed.changed(TIMERS, "progress", self.saved)
        return True

    def _slot_of(self, lost: LoggedDelivery) -> int | None:
        """The slot in which a message waited, or an earlier time; ``None``: it is no timer.

        A delivery without the place of its message was made by a broker that may cut waits at other times.
        """
        if lost.level not in (TIMER, ROLLED) or not lost.out_ms:
            return None
        if lost.place is None:
            return min(lost.out_ms, lost.enqueued_ms)
        if lost.level == TIMER:
            return lost.out_ms
        waited = record_at(self._store, lost.place, quiet=True)
        timer = None if waited is None else forms.timer_of(waited, forms.properties_of(waited))
        return (timer and timer.cut_ms) or lost.enqueued_ms

    def cut(self, _cut: LogCut) -> None:
        """Drop progress behind the end of a log that was cut: messages stored there later are not delivered.

        The version stays the same: this progress is not newer than the master's.
        """
        self.saved = self.load()
        self._feed.changed(TIMERS, "progress", self.saved)

    def write(self, progress: TimerProgress) -> None:
        """Write the progress, and report it to the change feed for other brokers.

        Raises:
            OSError: the disk refused.
        """
        version = self.version.next(self._clock.now_ms())
        self._file.write(check_of(progress, version), progress)
        self.version, self.saved = version, progress
        self._feed.changed(TIMERS, "progress", progress)

    async def close(self) -> None:
        """Bring the file to the device and release it."""
        await self._file.close()

    def _apply(self, _key: str, value: dict[str, Any] | None) -> None:
        """Join this broker's progress with that of another broker, which delivers or has delivered."""
        if value is None:
            return
        own, received = self.saved, TimerProgress.from_plain(value)
        if own.before >= 0 or received.before >= 0:
            # A RocketMQ broker sends no place in the log: it is looked up if there is one to compare.
            own, received = (self._within(one, self._store.end) for one in (own, received))
        self.saved = own.joined(received)
        self.received = True
        self._feed.changed(TIMERS, "progress", self.saved)

    def _restore(self, _key: str, value: dict[str, Any]) -> None:
        """Set the progress of an earlier run; deliveries that it had taken back stay taken back."""
        self.saved = TimerProgress.from_plain(value)
        self._feed.changed(TIMERS, "progress", self.saved)

    def _is_further(self, _key: str, value: dict[str, Any] | None) -> bool:
        """Whether another broker's progress has deliveries that this one lacks."""
        return value is not None and not self.saved.covers(TimerProgress.from_plain(value))

    @property
    def check(self) -> Check:
        """The numbers in the answer to GET_TIMER_CHECK_POINT."""
        return check_of(self.saved, self.version)

    def file_text(self) -> Iterator[str]:
        """``timerProgress.json``, piece by piece."""
        return file_text(
            [
                ("dataVersion", body_text(self.version, "\n\t")),
                ("progress", pretty_value(self.saved.plain(), "\n\t")),
            ]
        )

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``timerProgress.json``."""
        if content.get("progress"):
            self.saved = TimerProgress.from_plain(content["progress"])
        if content.get("dataVersion"):
            self.version = DataVersion.from_json(content["dataVersion"])
