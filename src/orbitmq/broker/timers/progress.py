"""Which timer messages are delivered: a few numbers instead of a list, and the file that keeps them. Pure.

Messages are delivered in the order of (due time, place in the commit log), a *mark*. So of the messages
taken from the timer topic, those up to a mark are delivered. A second mark begins when the clock is set back:
messages taken before that are delivered up to the old mark, later ones up to the new mark.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orbitmq.broker.timers.units import SECOND_MS
from orbitmq.wire.bodies.topic import DataVersion

# A mark is due time * 2**56 + place in the commit log.
PLACE_BITS = 56
_PLACE_MASK = (1 << PLACE_BITS) - 1
# How often the clock may be set back before it has caught up; beyond that, messages are delivered again.
MAX_AHEAD = 16
# How many messages are noted one by one while an earlier one waits; further ones may be delivered again.
MAX_ALONE = 200

CHECK_BYTES = 56
FILE_BYTES = 4096
_CHECK = struct.Struct(">qqqqqqq")
_HEAD = struct.Struct(">8sqqqqii")
_AHEAD = struct.Struct(">qqq")
_ALONE = struct.Struct(">qq")
_MAGIC = b"orbittm2"
_OURS_AT = 64


def mark(due_ms: int, place: int) -> int:
    """A message's mark."""
    return due_ms << PLACE_BITS | place


def all_of(due_ms: int) -> int:
    """The highest mark of messages due at a time: it covers all messages due up to then."""
    return due_ms << PLACE_BITS | _PLACE_MASK


def due_of(mark: int) -> int:
    """The time of a mark, milliseconds since the epoch."""
    return mark >> PLACE_BITS


def first_slot_left(mark: int, precision_ms: int) -> int:
    """The number of the first slot of length ``precision_ms`` that is not completely delivered up to a mark.

    The slot begins at a whole second: with another precision a message may have a slot that began up to a
    second before its due time. The last millisecond of a slot is the one at which the next slot begins:
    messages due then may lie behind the mark.
    """
    return (due_of(mark + 1) - 1) // SECOND_MS * (SECOND_MS // precision_ms)


def place_of(mark: int) -> int:
    """The commit log offset of a mark."""
    return mark & _PLACE_MASK


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """How far timers are delivered.

    Attributes:
        done: the mark up to which messages are delivered.
        taken: the offset in the timer topic's queue before which messages were looked at; messages that were
            late then are delivered too.
        before: the same limit as ``taken``, as an offset of the commit log; -1: unknown.
        ahead: pairs of (commit log offset, mark): messages before the offset are delivered up to that mark,
            which is above ``done``.
        alone: marks above ``done`` of single delivered messages: an acting master delivered them to another
            group while an earlier one was refused.
    """

    done: int = -1
    taken: int = 0
    before: int = -1
    ahead: tuple[tuple[int, int], ...] = ()
    alone: frozenset[int] = frozenset()

    def delivered(self, mark: int) -> bool:
        """Whether a message is known to be delivered."""
        if mark in self.alone:
            return True
        place = place_of(mark)
        if place >= self.before:
            return False
        return mark <= self.done or any(place < before and mark <= up_to for before, up_to in self.ahead)

    def passed(self, due_ms: int, place: int) -> bool:
        """Whether the message at ``place`` was looked at, and all messages due up to a time are delivered."""
        return place < self.before and all_of(due_ms) <= self.done

    def covers(self, other: TimerProgress) -> bool:
        """Whether everything delivered by ``other`` is delivered here."""
        own = ((self.before, self.done), *self.ahead)
        return (
            other.taken <= self.taken
            and all(
                any(place <= before and mark <= up_to for before, up_to in own)
                for place, mark in ((other.before, other.done), *other.ahead)
            )
            and all(map(self.delivered, other.alone))
        )

    def joined(self, other: TimerProgress) -> TimerProgress:
        """All deliveries of both progresses: two brokers of one name deliver from copies of one log."""
        pairs = sorted([(self.before, self.done), *self.ahead, (other.before, other.done), *other.ahead])
        kept: list[tuple[int, int]] = []
        for before, up_to in reversed(pairs):
            if not kept or up_to > kept[0][1]:
                kept.insert(0, (before, up_to))
        *ahead, (before, done) = kept
        taken = max(one.taken for one in (self, other) if one.before == max(self.before, other.before))
        joined = TimerProgress(done, taken, before, tuple(ahead[-MAX_AHEAD:]))
        alone = sorted(mark for mark in self.alone | other.alone if not joined.delivered(mark))
        return replace(joined, alone=frozenset(alone[:MAX_ALONE]))

    @property
    def latest(self) -> int:
        """The highest mark; no message above it is delivered."""
        return max([self.done, *(up_to for _, up_to in self.ahead), *self.alone])

    def within(self, taken: int, before: int) -> TimerProgress:
        """This progress for a log that ends at ``before``, which is also used if its own is unknown."""
        known = self.before if self.before >= 0 else before
        ahead = tuple((min(place, before), up_to) for place, up_to in self.ahead)
        alone = frozenset(mark for mark in self.alone if place_of(mark) < before)
        return TimerProgress(self.done, min(self.taken, taken), min(known, before), ahead, alone)

    def advanced(self, done: int, taken: int, before: int) -> TimerProgress:
        """The progress after everything up to a higher mark was delivered and more messages looked at."""
        done = max(done, self.done)
        ahead = tuple(pair for pair in self.ahead if pair[1] > done) if self.ahead else ()
        alone = frozenset(mark for mark in self.alone if mark > done) if self.alone else self.alone
        return TimerProgress(done, taken, before, ahead, alone)

    def taken_back(self, before_ms: int) -> TimerProgress:
        """The progress without deliveries of messages due after ``before_ms``, except those noted one by
        one."""
        most = all_of(before_ms)
        ahead = tuple((place, min(up_to, most)) for place, up_to in self.ahead)
        done = min(self.done, most)
        return replace(self, done=done, ahead=tuple(pair for pair in ahead if pair[1] > done))

    def set_back(self, now_ms: int) -> TimerProgress:
        """The progress after the clock was set back to before the mark; all messages due now were looked at.

        The old mark stays for messages looked at so far; a new mark begins for later ones.
        """
        pairs = (*self.ahead, (self.before, self.done))
        ahead = tuple(pair for pair in pairs if pair[1] > all_of(now_ms))
        return replace(self, done=all_of(now_ms), ahead=ahead[-MAX_AHEAD:])

    def plain(self) -> dict[str, Any]:
        """Plain JSON values for the change feed: marks do not fit 64 bits and are pairs."""
        plain = {
            "done": _pair(self.done),
            "taken": self.taken,
            "before": self.before,
            "ahead": [[before, *_pair(up_to)] for before, up_to in self.ahead],
        }
        return plain | {"alone": list(map(_pair, sorted(self.alone)))} if self.alone else plain

    @classmethod
    def from_plain(cls, value: Mapping[str, Any]) -> TimerProgress:
        """Read the values that :meth:`plain` returned.

        Raises:
            LookupError, TypeError, ValueError: the values are malformed.
        """
        due, place = value["done"]
        ahead = tuple((int(before), mark(int(at), int(on))) for before, at, on in value["ahead"])
        alone = frozenset(mark(int(at), int(on)) for at, on in value.get("alone", ()))
        return cls(mark(int(due), int(place)), int(value["taken"]), int(value["before"]), ahead, alone)


def _pair(value: int) -> tuple[int, int]:
    return due_of(value), place_of(value)


@dataclass(frozen=True, slots=True)
class Check:
    """The seven numbers of ``config/timercheck`` (TimerCheckpoint); OrbitMQ's exact progress follows them.

    Attributes:
        read_ms: slots before this time are delivered.
        log_flushed: the position up to which the wheel has the timer log's units; 0 makes Apache's broker
            read the whole timer log.
        taken: offset in the timer topic's queue.
    """

    read_ms: int
    log_flushed: int
    taken: int
    master_taken: int
    version: DataVersion

    def encode(self) -> bytes:
        """The 56 bytes of the answer to GET_TIMER_CHECK_POINT."""
        version = self.version
        return _CHECK.pack(
            self.read_ms,
            self.log_flushed,
            self.taken,
            self.master_taken,
            version.state_version,
            version.timestamp,
            version.counter,
        )

    @classmethod
    def decode(cls, data: bytes) -> Check:
        """Read 56 bytes.

        Raises:
            struct.error: there are fewer.
        """
        read, flushed, taken, master, state, timestamp, counter = _CHECK.unpack_from(data)
        return cls(
            read,
            flushed,
            taken,
            master,
            DataVersion(state_version=state, timestamp=timestamp, counter=counter),
        )


def check_of(progress: TimerProgress, version: DataVersion, *, log_flushed: int = 0) -> Check:
    """The numbers for Apache's broker, which delivers whole slots, so it may repeat the last one."""
    read_ms = max(0, first_slot_left(progress.done, SECOND_MS) * SECOND_MS)
    return Check(read_ms, log_flushed, progress.taken, progress.taken, version)


def encode_file(check: Check, progress: TimerProgress) -> bytes:
    """The bytes of the file; the rest of its 4096 stays as it is."""
    head = check.encode()
    due, place = _pair(progress.done)
    counts = len(progress.ahead), len(progress.alone)
    ours = _HEAD.pack(_MAGIC, due, place, progress.taken, progress.before, *counts)
    ours += b"".join(_AHEAD.pack(before, *_pair(up_to)) for before, up_to in progress.ahead)
    ours += b"".join(_ALONE.pack(*_pair(mark)) for mark in sorted(progress.alone))
    crc = zlib.crc32(head + ours).to_bytes(4, "big")
    return head + bytes(_OURS_AT - len(head)) + ours + crc


def decode_file(data: bytes) -> tuple[Check, TimerProgress] | None:
    """Read the file: OrbitMQ's progress if it belongs to the seven numbers before it, else only those.

    Returns:
        ``None`` if the file has no progress.
    """
    if len(data) < CHECK_BYTES or not any(data[:CHECK_BYTES]):
        return None
    check = Check.decode(data)
    ours = _decode_ours(data)
    if ours is None:
        taken = min(check.taken, check.master_taken)
        ours = TimerProgress(all_of(check.read_ms), max(0, taken))
    return check, ours


def _decode_ours(data: bytes) -> TimerProgress | None:
    if len(data) < _OURS_AT + _HEAD.size:
        return None
    magic, due, place, taken, before, count, singles = _HEAD.unpack_from(data, _OURS_AT)
    at = _OURS_AT + _HEAD.size
    alone_at = at + count * _AHEAD.size
    end = alone_at + singles * _ALONE.size
    if magic != _MAGIC or not (0 <= count <= MAX_AHEAD and 0 <= singles <= MAX_ALONE) or len(data) < end + 4:
        return None
    if zlib.crc32(data[:CHECK_BYTES] + data[_OURS_AT:end]).to_bytes(4, "big") != data[end : end + 4]:
        return None
    ahead = tuple(
        (offset, mark(on, where))
        for offset, on, where in (_AHEAD.unpack_from(data, at + n * _AHEAD.size) for n in range(count))
    )
    alone = frozenset(mark(on, where) for on, where in _ALONE.iter_unpack(data[alone_at:end]))
    return TimerProgress(mark(due, place), taken, before, ahead, alone)
