"""The waiting timer messages: read from the timer topic, kept in the timer log, returned when due."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.stored import record_at
from orbitmq.broker.timers import forms, placing, units
from orbitmq.broker.timers.already_delivered import AlreadyDelivered
from orbitmq.broker.timers.forms import Timer
from orbitmq.broker.timers.hand_over import without_delivered, write_wheel
from orbitmq.broker.timers.progress import TimerProgress, due_of, first_slot_left, mark, place_of
from orbitmq.broker.timers.recalled import Recalled
from orbitmq.broker.timers.rolling import Rolling
from orbitmq.broker.timers.timer_log import Fields, TimerLog
from orbitmq.broker.timers.valid_log_end import ValidLogEnd
from orbitmq.broker.timers.wheel import NONE, Wheel
from orbitmq.errors import OrbitError
from orbitmq.message import reserved
from orbitmq.message.record import Record, iter_records
from orbitmq.runtime.seam import Files
from orbitmq.store import GetStatus, MessageStore

log = logging.getLogger(__name__)

TOPIC = reserved.TIMER_TOPIC
TAKE_MESSAGES = 512
TAKE_BYTES = 1 << 20
# How many units of a slot are read before the event loop gets time for other work.
LOAD_UNITS = 4096
# A slot with more units is not searched for a message to recall.
SEARCH_UNITS = 20_000


class BrokenChainError(OrbitError):
    """The timer log lacks a unit that another unit names."""


class Found(Enum):
    """The result of a search for a message. UNKNOWN: the message may wait in a slot that is not searched."""

    WAITING = 1
    RECALLED = 2
    MISSING = 3
    UNKNOWN = 4


class PendingTimers:
    """Messages that are not due yet, and the few that are due.

    Messages of later slots are in the timer log; the wheel's memory grows only with the minutes in use.
    Messages of slots that have begun are in a heap of marks.

    Attributes:
        position: the next offset of the timer topic's queue to look at.
        before: the commit log's offset behind the last message that was looked at.
        waiting: how many messages are waiting, by the hash of their topic.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, timer_log: TimerLog) -> None:
        self._store = store
        self._log = timer_log
        self._precision = config.timer_precision_ms
        self._already = AlreadyDelivered()
        self._valid_end = ValidLogEnd(store)
        self._is_current = False
        self.position = 0
        self.before = 0
        self.waiting: Counter[int] = Counter()
        self._recalled = Recalled()
        self._empty()
        store.held.are_known = not config.timer_wheel_enable

    def _empty(self) -> None:
        self._wheel = Wheel()
        self._heap: list[int] = []
        # The last slot in the heap, and the newest unit of each slot there.
        self._loaded = -1
        self._tails: dict[int, int] = {}
        self._recalled.forget()
        # Places of messages that are looked at again although they already have a unit.
        self._known: set[int] = set()
        self._rolling = Rolling()
        self.waiting.clear()
        self._store.held.forget()
        self._store.held.are_known = False

    # -- the start -------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether :meth:`adopt` may use the present state; else :meth:`restore` has to read the timer log."""
        return self._is_current and not self._valid_end.is_cut

    def leave(self) -> None:
        """Stop relying on the present state: from now on another broker may write to the commit log."""
        if self._is_current:
            self._valid_end.ends_at(self.before)
        self._is_current = False

    def pause(self) -> None:
        """Release the files while this broker does not use them."""
        try:
            self._log.pause()
        except OSError as error:
            log.error("the timer log will be read again: %s", error)
            self.leave()
            self._log.close()

    def adopt(self, progress: TimerProgress) -> None:
        """Continue with the messages read while another broker delivered.

        Raises:
            OSError: the disk refused.
            BrokenChainError: the timer log is torn.
        """
        self._log.resume()
        self.forget(progress)
        before = self._already
        self._begin_from(progress)
        latest = due_of(progress.latest) // self._precision
        for slot, newest, _ in self._wheel.slots():
            if slot > latest:
                break
            for unit in self._chain(newest):
                if self._already.has(unit) and not before.has(unit):
                    self._uncount(unit)

    def close(self) -> None:
        """Release the files; :meth:`restore` opens them again."""
        self._log.close()

    def restore(self, progress: TimerProgress) -> Iterator[None]:
        """Read the timer log, a piece at a time; :meth:`take` continues at its end.

        Raises:
            OSError: the disk refused.
        """
        self.leave()
        self._empty()
        self._begin_from(progress)
        self._log.close()
        self._log.open()
        newest: units.Unit | None = None
        foreign = False  # whether the unit before the newest is one of Apache's
        for position, found in self._log.scan(self._valid_end.end()):
            self._restore_units(position, found)
            before = units.Unit(*found[-2]) if len(found) > 1 else newest
            foreign = before is not None and units.hash_of(before.extra) is None
            newest = units.Unit(*found[-1])
            yield
        self.position = low = self._store.min_offset(TOPIC, 0)
        self.before = progress.before
        if newest is not None and self._resume(newest, progress, foreign):
            self.before = max(self.before, newest.physical + newest.record_bytes)
        self._is_current = True
        self._store.held.are_known = not self.behind
        if self.position > low or progress.taken:
            total = sum(number for _, _, number in self._wheel.slots())
            log.info("timers: %d wait, going on at %d", total, self.position)

    def _restore_units(self, position: int, found: list[Fields]) -> None:
        """Put waiting messages back into the wheel: there may be a million, most of them due after any mark.

        Raises:
            OSError: the disk refused to link a unit to the one below it.
        """
        progress, precision, file_bytes = self._already.progress, self._precision, self._store.held.file_bytes
        over_ms = due_of(progress.latest) + 1
        add, counts, files = self._wheel.add, Counter[int](), Counter[int]()
        for fields in found:
            _, named, magic, written_ms, delay_ms, physical, _, topic_hash, reserved_bytes = fields
            out_ms = written_ms + delay_ms
            if out_ms >= over_ms or not self._already.has(units.Unit(*fields)):
                if magic == units.DEFAULT:
                    below = add(out_ms // precision, position)
                    counts[topic_hash] += 1
                else:
                    count = -1 if magic & units.DELETE else 1
                    below = add(out_ms // precision, position, count)
                    self._count(topic_hash, magic, units.hash_of(reserved_bytes), count)
                files[physical // file_bytes] += 1
                if below != named:
                    # The unit below is delivered, or slots had another length, so that this slot holds
                    # several of those.
                    self._log.rewrite(position, units.Unit(*fields)._replace(below=below))
                if physical >= progress.before and units.hash_of(reserved_bytes) is None:
                    self._known.add(physical)
            position += units.UNIT_BYTES
        self.waiting.update(counts)
        for file, number in files.items():
            self._store.held.hold(file * file_bytes, number)

    def _begin_from(self, progress: TimerProgress) -> None:
        """Note the deliveries before the start, and the store time of the first message not looked at."""
        unread_ms = self._store.store_time(TOPIC, 0, progress.taken)
        self._already = (
            AlreadyDelivered(progress, unread_ms) if unread_ms >= 0 else AlreadyDelivered(progress)
        )

    def _uncount(self, unit: units.Unit) -> None:
        """Stop counting a message as waiting: another broker has delivered it."""
        self.waiting[unit.topic_hash] += 1 if unit.magic & units.DELETE else -1
        self._store.held.hold(unit.physical, -1)
        if unit.magic & units.ROLL:
            self._rolling.drop(units.hash_of(unit.extra))

    def _count(self, topic_hash: int, magic: int, key_hash: int | None, count: int) -> None:
        self.waiting[topic_hash] += count
        if magic & units.ROLL:
            self._rolling.add(key_hash)

    def _resume(self, newest: units.Unit, progress: TimerProgress, foreign: bool) -> bool:
        """Continue after the last unit's message, which is in the commit log if the files belong together.

        Args:
            foreign: whether Apache's broker wrote the previous units.
        """
        record = record_at(self._store, newest.physical, quiet=True)
        if record is None or record.topic != TOPIC:
            log.warning("the timer log does not belong to the commit log: it is made again")
            self.rebuild(progress)
            return False
        if self._store.crashed and not foreign and not placing.is_whole(newest, record):
            log.warning("the last unit of the timer log is torn: it is made again")
            self.rebuild(progress)
            return False
        position = record.queue_offset + 1
        if units.hash_of(newest.extra) is None:
            # A Java broker writes no unit for a message that is already late when the broker reads it.
            position = min(position, progress.taken)
        self.position = max(self.position, position)
        return True

    def rebuild(self, progress: TimerProgress) -> None:
        """Rebuild the timer log, from the oldest message of the timer topic.

        Raises:
            OSError: the disk refused.
        """
        self._empty()
        self._log.clear()
        self._begin_from(progress)
        self.before = progress.before
        self.position = self._store.min_offset(TOPIC, 0)

    # -- taking ----------------------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """How many messages of the timer topic have not been looked at."""
        return max(0, self._store.max_offset(TOPIC, 0) - self.position)

    def take(self, taken: Callable[[str, int], object] | None = None) -> None:
        """Look at the next messages of the timer topic, some hundred at most.

        Args:
            taken: called for each message that begins to wait, with its topic and the time from its birth
                until it is due.

        Raises:
            OSError: the disk refused the timer log. The messages looked at so far are kept in memory.
        """
        self._log.write()
        low = self._store.min_offset(TOPIC, 0)
        if self.position < low:
            log.error(
                "timer messages %d to %d were deleted before they were looked at", self.position, low - 1
            )
            self.position = low
        found = self._store.get(TOPIC, 0, self.position, TAKE_MESSAGES, max_bytes=TAKE_BYTES)
        if found.status is GetStatus.FOUND:
            for record in iter_records(found.body):
                self._take(record, taken)
        self.position = max(self.position, found.next_offset)
        self._store.held.are_known = not self.behind
        self._log.write()

    def _take(self, record: Record, taken: Callable[[str, int], object] | None) -> None:
        self.before = max(self.before, record.physical_offset + record.total_size)
        timer = forms.timer_of(record, forms.properties_of(record))
        if timer is None:
            log.error("message %d of the timer topic is no timer: it is left out", record.queue_offset)
            return
        if record.physical_offset in self._known:
            self._known.discard(record.physical_offset)
            return
        self._put(record, timer)
        if taken is not None and timer.deletes is None:
            taken(timer.topic, timer.due_ms - record.born_timestamp)

    def _put(self, record: Record, timer: Timer) -> None:
        place = placing.place_of(timer)
        magic, out_ms, due_ms = place
        if self._already.would_have(magic, out_ms, due_ms, record.physical_offset):
            return
        slot = out_ms // self._precision
        begun = slot <= self._loaded
        below = self._tails.get(slot, NONE) if begun else self._wheel.last(slot)
        position = self._log.append(placing.unit_bytes(below, place, record, timer), out_ms)
        count = 1 if timer.deletes is None else -1
        self._count(forms.topic_hash(timer.topic), magic, forms.key_hash(timer.names), count)
        self._store.held.hold(record.physical_offset)
        if not begun:
            self._wheel.add(slot, position, count)
            return
        self._tails[slot] = position
        if timer.deletes is not None and not magic & units.ROLL:
            self._note_recall(timer, record.physical_offset, forms.topic_hash(timer.topic))
        else:
            heapq.heappush(self._heap, mark(due_ms, record.physical_offset))

    # -- due messages ----------------------------------------------------------------------------------

    def load(self, now_ms: int) -> Iterator[None]:
        """Load the slots that have begun into the heap, in pieces; nothing may be delivered meanwhile.

        Raises:
            BrokenChainError: the timer log is torn.
        """
        begun = (now_ms - 1) // self._precision
        while (slot := self._wheel.next_slot()) is not None and slot <= begun:
            self._loaded = max(self._loaded, slot)
            self._tails[slot] = tail = self._wheel.take(slot)
            marks: list[int] = []
            for unit in self._chain(tail):
                if self._already.has(unit):
                    continue
                if unit.magic & units.DELETE and not unit.magic & units.ROLL:
                    self._note_recall(self.timer_at(unit.physical), unit.physical, unit.topic_hash)
                else:
                    marks.append(self._mark_of(unit))
                if len(marks) % LOAD_UNITS == LOAD_UNITS - 1:
                    yield
            self._heap += marks
            heapq.heapify(self._heap)
        self._loaded = max(self._loaded, begun)

    def _chain(self, position: int) -> Iterator[units.Unit]:
        while position != NONE:
            unit = self._log.read(position)
            if unit is None or unit.below >= position:
                raise BrokenChainError(f"the timer log has no unit at {position}")
            yield unit
            position = unit.below

    def _mark_of(self, unit: units.Unit) -> int:
        """The mark of a unit's message. A unit of Apache's broker has only the slot: the record is read."""
        due = units.due_ms(unit.out_ms, unit.extra)
        if units.hash_of(unit.extra) is None and not unit.magic & units.ROLL:
            timer = self.timer_at(unit.physical)
            due = due if timer is None else timer.due_ms
        return mark(due, unit.physical)

    def timer_at(self, physical: int) -> Timer | None:
        """The message or recall at a place of the commit log."""
        record = record_at(self._store, physical, quiet=True)
        return None if record is None else forms.timer_of(record, forms.properties_of(record))

    def _note_recall(self, recall: Timer | None, physical: int, topic_hash: int) -> None:
        """Note a recall whose slot has begun: the recalled message counts as waiting until it is dropped."""
        self.waiting[topic_hash] += 1
        self._store.held.hold(physical, -1)
        if recall is not None:
            self._recalled.note(recall)

    @property
    def first(self) -> int | None:
        """The mark of the first message of the slots that have begun."""
        return self._heap[0] if self._heap else None

    def drop_first(self, topic_hash: int | None = None, *, rolled: str | None = None) -> None:
        """Remove the first message: it was delivered, or cannot be.

        Args:
            topic_hash: the hash of the topic in which the message counted as waiting.
            rolled: the message's key, if this slot ends only a part of its wait.
        """
        first = heapq.heappop(self._heap)
        self._store.held.hold(place_of(first), -1)
        if topic_hash is not None:
            self.waiting[topic_hash] -= 1
        if rolled is not None:
            self._rolling.drop(forms.key_hash(rolled))

    def is_recalled(self, timer: Timer) -> bool:
        """Whether a message of a slot that has begun was taken back."""
        return self._recalled.has(timer)

    def next_ms(self) -> int | None:
        """When to deliver or load next; ``None`` when no message waits."""
        slot = self._wheel.next_slot()
        times = [] if slot is None else [slot * self._precision + 1]
        if self._heap:
            times.append(due_of(self._heap[0]))
        return min(times, default=None)

    def pass_by(self, done: int) -> None:
        """Forget past slots, and files of the timer log that hold only such slots."""
        over = first_slot_left(done, self._precision)
        for slot in [slot for slot in self._tails if slot < over]:
            del self._tails[slot]
            self._recalled.pass_by(slot * self._precision)
        self._log.drop_before(min(over, self._first_slot()) * self._precision)

    def forget(self, progress: TimerProgress) -> None:
        """Forget past slots and their files, since another broker has delivered up to ``progress``.

        Raises:
            BrokenChainError: the timer log is torn.
        """
        over = first_slot_left(progress.done, self._precision)
        while (slot := self._wheel.next_slot()) is not None:
            if slot >= over and not self._is_delivered(slot, progress):
                break
            newest = self._log.read(self._wheel.last(slot))
            if newest is not None and newest.physical >= progress.before:
                break  # a message that arrived after its due time may still wait
            for unit in self._chain(self._wheel.take(slot)):
                if not self._already.has(unit):
                    self._uncount(unit)
        self._log.drop_before(min(over, self._first_slot()) * self._precision, progress.before)

    def _is_delivered(self, slot: int, progress: TimerProgress) -> bool:
        """Whether all messages of a slot that is not over are delivered."""
        for searched, unit in enumerate(self._chain(self._wheel.last(slot))):
            waits = unit.magic & units.DELETE or not progress.delivered(self._mark_of(unit))
            if waits or searched >= SEARCH_UNITS:
                return False
        return True

    def _first_slot(self) -> int:
        slot = self._wheel.next_slot()
        first = self._loaded + 1 if slot is None else slot
        return min(first, first_slot_left(self._heap[0] - 1, self._precision)) if self._heap else first

    def hand_over(self, files: Files, wheel_path: str, progress: TimerProgress) -> None:
        """Leave the files in the form for Apache's broker, which delivers whole slots.

        Raises:
            OSError: the disk refused; the files are usable as they are.
            BrokenChainError: the timer log is torn.
        """
        self._log.write()
        slots: list[tuple[int, int, int]] = []
        over = first_slot_left(progress.done, self._precision)

        def is_delivered(unit: units.Unit) -> bool:
            return not unit.magic & units.DELETE and progress.delivered(self._mark_of(unit))

        for slot, tail in sorted(self._tails.items()):
            if slot >= over:
                chain, past_ms = [*self._chain(tail)], (over - 1) * self._precision
                slots.append((slot, *without_delivered(self._log, tail, chain, is_delivered, past_ms)))
        slots += self._wheel.slots()
        write_wheel(files, wheel_path, [each for each in slots if each[1] != NONE])
        self._log.sync()

    # -- looking ---------------------------------------------------------------------------------------

    def find(self, wanted: Timer, progress: TimerProgress) -> Found:
        """Whether a message is waiting; searches its slot.

        Args:
            progress: the deliveries, including those in slots that begin a second time after the clock was
                set back.
        """
        slot = wanted.out_ms // self._precision
        key = wanted.key
        hashed = forms.key_hash(key)
        found = Found.MISSING
        for searched, unit in enumerate(self._chain(self._tails.get(slot, self._wheel.last(slot)))):
            if searched >= SEARCH_UNITS:
                return Found.UNKNOWN
            if units.hash_of(unit.extra) not in (hashed, None):
                continue
            timer = self.timer_at(unit.physical)
            if timer is None:
                continue
            if timer.deletes == key:
                return Found.RECALLED
            place = mark(timer.due_ms, unit.physical)
            if timer.deletes is None and timer.key == key and not progress.delivered(place):
                found = Found.WAITING
        # A message whose long wait is cut into parts lies in the slot of its next part, not in this one.
        if found is Found.MISSING and (self.behind or self._rolling.may_have(hashed)):
            return Found.UNKNOWN
        return found

    @property
    def begun(self) -> int:
        """How many messages of slots that have begun are not delivered yet."""
        return len(self._heap)

    def ahead(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """How many messages are due within each of these times, and not within the one before."""
        ends = [(now_ms + bound * 1000) // self._precision for bound in bounds_s]
        found = self._wheel.numbers(now_ms // self._precision, ends)
        found[0] += self.begun
        return found

    def minutes(self) -> dict[int, int]:
        """How many messages wait, by the minute in which they are due (ms since the epoch)."""
        found: Counter[int] = Counter()
        for slot, _, number in self._wheel.slots():
            found[slot * self._precision // 60_000 * 60_000] += number
        for waiting in self._heap:
            found[due_of(waiting) // 60_000 * 60_000] += 1
        return {minute: number for minute, number in sorted(found.items()) if number}
