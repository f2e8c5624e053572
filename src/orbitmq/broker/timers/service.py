"""Delivering timer messages when their time has come (TimerMessageStore)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.component import Component, Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.events import Events, LogCut, SettingsChanged, TablesRead
from orbitmq.broker.messaging.delivering import (
    AFTER_ERROR_SECONDS,
    DELIVERIES_PER_TURN,
    RETRY_AFTER_MS,
    SETTLE_MS,
    Pauses,
    RealPlaces,
    Unsettled,
    woken,
)
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery, is_not_now
from orbitmq.broker.messaging.stored import record_at
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import LEADING, RoleChanged
from orbitmq.broker.timers import forms
from orbitmq.broker.timers.delivered import DeliveredTimers
from orbitmq.broker.timers.pending import TOPIC, BrokenChainError, Found, PendingTimers
from orbitmq.broker.timers.progress import MAX_ALONE, TimerProgress, all_of, due_of, place_of
from orbitmq.broker.timers.progress_table import ProgressTable
from orbitmq.broker.timers.timer_log import TimerLog
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

# How often to read the wall clock while messages wait: it may be set.
PASS_MS = 1000
# How often the progress moves with the clock while no message is due.
IDLE_NOTE_MS = 30_000
# How many slices of the timer topic are read before the search for a recalled message.
CATCH_UP_SLICES = 16


class TimerService(Component):
    """Moves messages from the timer topic to their own topics, each when it is due.

    One task takes messages that arrive in the timer topic, and delivers in the order of the due times. The
    progress follows when the delivered messages are stored.

    Attributes:
        pending: the waiting messages.
        written: the progress as last written.
    """

    name = "timer messages"
    runs_as = LEADING

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        events: Events,
        store: MessageStore,
        sink: DeliverySink,
        topics: TopicConfigs,
        feed: ChangeFeed,
        search: DeliveredTimers,
        counts: Counts,
    ) -> None:
        self._clock = runtime.clock
        self._config = config
        self._store = store
        self._sink = sink
        self._real_places = RealPlaces(runtime.clock, events, topics, sink)
        self._pauses = Pauses(runtime.clock, sink, self.name)
        self._search = search
        self._counts = counts
        self._files, self._threads = runtime.files, runtime.threads
        root = config.store_path_root_dir
        self._wheel_path = f"{root}/timerwheel"
        self._log = TimerLog(
            runtime.files, f"{root}/timerlog", config.mapped_file_size_timer_log, runtime.threads
        )
        self.pending = PendingTimers(config, store, self._log)
        self.written = ProgressTable(runtime, config, store, feed)
        # The progress in memory; :attr:`written` follows it.
        self._progress = TimerProgress()
        self._save_at_ms = 0
        self._unsettled = Unsettled()  # by mark; messages that arrived after their due time break the order
        # The progress that may be written once this many messages are settled and the timer log is on the
        # device up to a position.
        self._snapshot: tuple[int, int, TimerProgress] | None = None
        self._snapshot_at_ms = 0
        self._retry_at_ms = 0
        self._ready = False
        # Whether there may be deliveries that the progress lacks.
        self._unknown = False
        # Whether deliveries from before a crash were searched for.
        self._searched = False
        # Places of messages whose deliveries were found in the log.
        self._already: set[int] = set()
        self._last = -1  # the mark of the last message that was handed over
        self._wake = asyncio.Event()
        sink.on_stored(self._wake.set)
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(SettingsChanged, lambda _event: self._wake.set())
        events.subscribe(LogCut, self.written.cut)
        events.subscribe(TablesRead, lambda _: self.written.tables_read())
        events.on_messages_arrived(self._arrived, topic=TOPIC)

    # -- life ------------------------------------------------------------------------------------------

    def tables(self) -> Sequence[Table]:
        return self.written.tables()

    async def start(self) -> None:
        if not self._config.timer_wheel_enable:
            return
        self._ready = False
        self._unknown = self._unknown or self._store.crashed
        self._every(self._clock, AFTER_ERROR_SECONDS, self._run, first_s=0.0)

    async def stop(self) -> None:
        """Wait for delivered messages to be stored, and write the progress."""
        await self.end_work()
        if self._config.timer_wheel_enable and self._store.crashed and not self._searched:
            self._store.stop_as_crash()
        # After a change of role another broker may deliver due messages: they do not count as delivered here.
        own, self._ready = self._ready, False
        try:
            if own:
                self.pending.leave()
                await self._save_last()
            elif self._unsettled.handed:
                await self._save_handed()
            # Other brokers may deliver before this one leads again: marks noted so far must not be written
            # after that.
            self._unsettled.clear()
            await self.written.close()
            if own and not self._log.empty:
                # By the written progress, not by the messages handed over: the disk may have refused these.
                await self._threads.run(
                    self.pending.hand_over, self._files, self._wheel_path, self.written.saved
                )
        except (OSError, BrokenChainError) as error:
            log.error("the progress of timers is not on the device: %s", error)
            self._store.stop_as_crash()
        self.pending.close()

    def _save_settled(self) -> None:
        """Write the deliveries at a change of role: this log does not show those to other masters."""
        self._unsettled.settle()
        if self._log.synced < self._log.end:
            return
        if self._unsettled:
            self._try_to_save(self._save_around)
            return
        self._snapshot = None
        self._take_snapshot()
        self._try_to_save(self._save_snapshot)

    async def _save_handed(self) -> None:
        """Write the deliveries once all messages handed over are stored, if the disk takes them."""
        await self._sink.settle()
        try:
            # If this slave acted only for a moment, timers that it has read may not be on the device.
            await self._threads.run(self._log.sync)
        except OSError as error:
            log.error("the disk refused the timer log: %s", error)
        self._save_settled()

    async def _save_last(self) -> None:
        """Write the progress, up to now if every message due by now is delivered.

        Raises:
            OSError: the disk refused.
        """
        await self._sink.settle()
        self._unsettled.settle()
        if self._unsettled:
            await self._threads.run(self._log.sync)
            self._save_around()
            return
        now, due = self._clock.now_ms(), self.pending.next_ms()
        if (due is None or due > now) and not self.pending.behind:
            self._progress = self._progress.advanced(all_of(now), 0, 0)
        self._snapshot = None
        self._take_snapshot()
        await self._threads.run(self._log.sync)
        self._save_snapshot()

    def _arrived(self, _topic: str, _queue_id: int, _max_offset: int) -> None:
        self._wake.set()

    def _role_changed(self, _changed: RoleChanged) -> None:
        """Begin again from the state on the disk."""
        if self._ready:
            self._save_settled()
            self.pending.leave()
        self._ready = False
        self._unknown = True
        self._wake.set()

    async def _run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._wake.clear()
            if not self._ready:
                await self._begin()
            try:
                await self._pass()
            except BrokenChainError as error:
                log.error("%s: it is made again from the timer topic", error)
                self.pending.rebuild(self._progress)
                continue
            self._searched = True
            await woken(self._wake, self._next_pass_ms() - self._clock.now_ms())

    async def _begin(self) -> None:
        """Find the progress and read waiting messages; deliveries not known to be stored are repeated."""
        if self._unsettled.handed:
            await self._save_handed()
        self._unsettled.clear()
        self._snapshot = None
        self._last = -1
        self._progress = self.written.saved = self.written.load()
        self.written.received = False
        await self._load_pending()
        if self._unknown:
            # Without a waiting message none can be delivered twice, and the search would be long.
            waits = self.pending.next_ms() is not None or self.pending.behind
            known = due_of(self._progress.done), self._progress.taken
            self._already = await self._search.since(*known) if waits else set()
            self._unknown = False
        self._store.watch(TOPIC, 0)
        self._ready = True

    async def _load_pending(self) -> None:
        """Continue with the timers read as a slave, or read the timer log."""
        try:
            if self.pending.is_current:
                self.pending.adopt(self._progress)
                return
        except (OSError, BrokenChainError) as error:
            log.error("the timer log is read again: %s", error)
        await self._slowly(self.pending.restore(self._progress))

    async def _slowly(self, work: Iterator[None]) -> None:
        for _ in work:
            await asyncio.sleep(0)

    # -- working ---------------------------------------------------------------------------------------

    async def _pass(self) -> None:
        """Read the timers that have arrived by now, then deliver those that are due."""
        if self.written.received:
            # A broker that acted may send its deliveries while this master serves: they must not be
            # overwritten.
            self._progress = self._progress.joined(self.written.saved)
            self._snapshot, self.written.received = None, False
        if await self._take_arrived():
            now = self._clock.now_ms()
            await self._slowly(self.pending.load(now))
            await self._deliver(now)
            self._unsettled.settle()
            self._note_idle(now)
            self._take_snapshot()
        if self._clock.now_ms() >= self._save_at_ms:
            self._try_to_save(self._save_snapshot)

    async def _take_arrived(self) -> bool:
        """Read all messages that the timer topic has now: a recall must be read before its message is due."""
        end = self.pending.position + self.pending.behind
        try:
            while self.pending.position < end:
                self.pending.take(self._counts.timer_waits)
                await asyncio.sleep(0)
        except OSError as error:
            log.error("the disk refused the timer log, it is tried again: %s", error)
            self._retry_at_ms = self._clock.now_ms() + RETRY_AFTER_MS
        return self.pending.position >= end

    async def _deliver(self, now: int) -> None:
        """Deliver due messages in order; all slots that have begun by ``now`` are loaded."""
        last: PendingDelivery | None = None
        turn = 0
        self._check_clock(now)
        while (first := self.pending.first) is not None and due_of(first) <= now >= self._retry_at_ms:
            if self._unsettled.full:
                self._retry_at_ms = now + SETTLE_MS
                break
            try:
                handed = self._move(first)
            except RemotingError as error:
                self._retry_at_ms = now + self._pauses.after_ms(error)
                break
            if handed is not None:
                self._unsettled.add(first, handed)
                last = handed
            self._progress = self._progress.advanced(first, self._progress.taken, self._progress.before)
            turn += 1
            if turn % DELIVERIES_PER_TURN == 0:
                await self._pauses.for_disk(last)
        await self._pauses.for_disk(last)

    def _check_clock(self, now: int) -> None:
        """Begin a new mark if the clock was set back, so that no message is lost or repeated."""
        if now < due_of(self._progress.done):
            log.warning("the clock went back by %d ms", due_of(self._progress.done) - now)
            self._progress = self._progress.set_back(now)

    def _move(self, first: int) -> PendingDelivery | None:
        """Hand the first message to the sink; ``None``: there is no message to deliver.

        Raises:
            RemotingError: the sink refuses the message for now; it stays the first one.
        """
        record = record_at(self._store, place_of(first))
        properties = forms.properties_of(record) if record is not None else {}
        timer = record and forms.timer_of(record, properties)
        if not record or not timer:
            log.error("the timer message at %d of the log is gone", place_of(first))
            self.pending.drop_first()
            return None
        rolls = timer.out_ms >= due_of(first)
        rolled = timer.names if rolls else None
        if self._is_recalled(timer, rolls=rolls):
            self.pending.drop_first(forms.topic_hash(timer.topic), rolled=rolled)
            return None
        # A timer log that lost writes in a crash may list a message twice.
        over = first == self._last or self._progress.delivered(first)
        if over or place_of(first) in self._already:
            self._last = first
            self.pending.drop_first(forms.topic_hash(timer.topic), rolled=rolled)
            return None
        handed = None
        try:
            now = self._clock.now_ms()
            if rolls:
                message = forms.rolled(record, properties, timer, now, self._config)
            else:
                _, queue_id = self._real_places.of(properties)
                message = forms.delivered(record, properties, queue_id, now, self._config)
            handed = self._sink.hand(message, properties)
            self._counts.timers_out[timer.topic] += 1
        except RemotingError as error:
            if is_not_now(error):
                raise
            log.error("the timer message at %d is left out: %s", place_of(first), error)
        self._last = first
        self.pending.drop_first(forms.topic_hash(timer.topic), rolled=rolled)
        return handed

    def _is_recalled(self, timer: forms.Timer, *, rolls: bool) -> bool:
        """Whether to drop a message as a recall or as recalled; another group's master gets no recalls."""
        if not rolls:
            return timer.deletes is not None or self.pending.is_recalled(timer)
        # A recalled message must not be stored again: the recall is forgotten before its new slot begins.
        if timer.deletes is None and self.pending.is_recalled(timer):
            return True
        return not self._sink.own and self.pending.find(timer, self._progress) is Found.RECALLED

    def _next_pass_ms(self) -> int:
        now = self._clock.now_ms()
        times = [now + 3_600_000]
        due = self.pending.next_ms()
        if due is not None:
            times += [max(due, self._retry_at_ms), now + PASS_MS]
        if self.pending.behind:
            times.append(self._retry_at_ms)
        if self._unsettled or self._progress != self.written.saved:
            times.append(max(self._save_at_ms, now + SETTLE_MS // 4))
        return min(times)

    # -- progress --------------------------------------------------------------------------------------

    def _note_idle(self, now: int) -> None:
        """Move the progress while no message is due, so that a later search for deliveries begins here."""
        first = self.pending.first
        if now - due_of(self._progress.done) > IDLE_NOTE_MS and (first is None or due_of(first) > now):
            self._progress = self._progress.advanced(all_of(now), self._progress.taken, self._progress.before)

    def _take_snapshot(self) -> None:
        """Note the progress that may be written once all messages handed over so far are stored."""
        first, pending = self.pending.first, self.pending
        if first is not None and first <= self._progress.done:
            return  # a message that arrived after its due time still waits: it must not count as looked at
        if self._clock.now_ms() < due_of(self._progress.done):
            return  # the clock was set back just now
        self._progress = self._progress.advanced(self._progress.done, pending.position, pending.before)
        if self._snapshot is None and self._progress != self.written.saved:
            self._snapshot = (self._unsettled.handed, self._log.end, self._progress)
            self._snapshot_at_ms = self._clock.now_ms()

    def _try_to_save(self, save: Callable[[], None]) -> None:
        try:
            save()
        except OSError as error:
            log.error("the disk refused the progress of timers, it is tried again: %s", error)
            self._save_at_ms = self._clock.now_ms() + RETRY_AFTER_MS

    def _save_snapshot(self) -> None:
        """Write the progress, if all messages that it counts as delivered are stored.

        Raises:
            OSError: the disk refused.
        """
        if self._snapshot is None:
            return
        if self._unsettled.settled < self._snapshot[0]:
            # If another group's master refuses one message, the deliveries of others must still be saved.
            if not self._sink.own and self._clock.now_ms() - self._snapshot_at_ms >= RETRY_AFTER_MS:
                self._save_around()
            return
        _, log_end, progress = self._snapshot
        if self._log.synced < log_end:
            self._log.bring_to_device(self._log_synced)
            return
        self.written.write(progress)
        self._snapshot = None
        self._save_at_ms = self._clock.now_ms() + SETTLE_MS
        # The clock may have gone back since the snapshot: slots that seemed over are still to come.
        self.pending.pass_by(min(progress.done, self._progress.done))

    def _save_around(self) -> None:
        """Write the deliveries made after a message that still waits.

        Raises:
            OSError: the disk refused.
        """
        first, next_one = self._unsettled.lowest, self.pending.first
        if first is None or (next_one is not None and next_one < first):
            return  # a message that arrived after its due time was not handed over yet
        self._save_at_ms = self._clock.now_ms() + RETRY_AFTER_MS
        if self._log.synced < self._log.end:
            self._log.bring_to_device(self._log_synced)
            return
        # Beyond this number, later messages are delivered again.
        later = sorted(mark for mark in self._unsettled.out_of_order() if mark > first)[:MAX_ALONE]
        around = TimerProgress(first - 1, self.pending.position, self.pending.before, alone=frozenset(later))
        progress = self.written.saved.joined(around)
        if progress != self.written.saved:
            self.written.write(progress)

    def _log_synced(self, worked: bool) -> None:
        if not worked:
            self._save_at_ms = self._clock.now_ms() + RETRY_AFTER_MS
        self._wake.set()

    # -- looking ---------------------------------------------------------------------------------------

    def find(self, wanted: forms.Timer) -> Found:
        """Whether a message that is to be recalled is waiting."""
        if not self._ready:
            return Found.UNKNOWN
        try:
            for _ in range(CATCH_UP_SLICES):
                if not self.pending.behind:
                    break
                self.pending.take(self._counts.timer_waits)
            return self.pending.find(wanted, self._progress)
        except (OSError, BrokenChainError) as error:
            log.error("a timer message cannot be looked for: %s", error)
            return Found.UNKNOWN

    def message_of(self, waiting: int) -> forms.Timer | None:
        """The message of a mark."""
        return self.pending.timer_at(place_of(waiting))
