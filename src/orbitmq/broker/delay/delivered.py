"""Which delayed messages were delivered, read from the log: nobody writes progress down with each delivery.

A level delivers in order, and what it delivers goes into the same log, behind the message that waited. So the
progress of a level is the newest place whose message is found once more behind it. A delivered record is told
from others by what RocketMQ leaves in it (DL-07), so a log that a Java broker wrote is read in the same way.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from orbitmq.broker.delay.levels import level_number
from orbitmq.message import property_names, reserved
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.store.ports import LogPiece

# Messages of a level that are compared with what is found. A run of this many in a row that could not be
# delivered and left no trace ends the search of the level early; they are looked at again then.
WINDOW = 1024
TIMER = 0
# A timer message that was put into the timer topic once more, to wait for the rest of its time.
ROLLED = -1
# Deliveries that one call collects.
BATCH = 10_000

# What a message keeps from the time when it waits to its delivery, and no other message has.
Identity: TypeAlias = tuple[str, str, int, tuple[str, int], int, int, int, int]

_MARK = re.compile(property_names.REAL_TOPIC.encode() + b"\x01")
_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered record that was found in the log.

    Attributes:
        level: :data:`TIMER` or :data:`ROLLED` for a timer message.
        out_ms, enqueued_ms, cut_ms: of a timer message, its slot, when it began to wait, and where the wait
            was cut if it was stored again; 0: it does not say.
        stored_ms: when it was delivered, by who did.
    """

    level: int
    physical_offset: int
    identity: Identity
    out_ms: int = 0
    enqueued_ms: int = 0
    cut_ms: int = 0
    stored_ms: int = 0


def identity_of(record: Record, topic: str, unique_id: str) -> Identity:
    """The identity of a message, waiting or delivered."""
    return (
        topic,
        unique_id,
        record.born_timestamp,
        record.born_host,
        record.body_crc,
        len(record.body),
        record.flag,
        record.reconsume_times,
    )


def waiting_identity(data: bytes) -> Identity | None:
    """The identity of a stored record of the schedule topic, ``None``: it cannot be read."""
    try:
        record = decode_record(data)
        properties = decode_properties(record.properties)
    except MessageFormatError:
        return None
    topic = properties.get(property_names.REAL_TOPIC, "")
    return identity_of(record, topic, properties.get(property_names.UNIQ_KEY, ""))


def deliveries(piece: LogPiece, limit: int = BATCH) -> tuple[list[Delivery], int]:
    """The delivered records among those that begin in the piece, up to ``limit``.

    Returns:
        Them, and the log offset to go on at: the end of the piece when no more can follow in it.
    """
    found: list[Delivery] = []
    view, at, end = piece.view, piece.start - piece.base, piece.end - piece.base
    # Few records name a real topic: the others are passed by their size alone.
    for mark in _MARK.finditer(view, at, end):
        if mark.start() < at:
            continue
        while (size := _SIZE.unpack_from(view, at)[0]) > 0 and at + size <= mark.start():
            at += size
        if size <= 0:
            break
        delivery = _delivery(view, at)
        at += size
        if delivery is not None:
            found.append(delivery)
            if len(found) >= limit:
                return found, piece.base + at
    return found, piece.end


def _delivery(view: memoryview, at: int) -> Delivery | None:
    try:
        record = decode_record(view, at)
        properties = decode_properties(record.properties)
    except MessageFormatError:
        return None
    level = level_number(properties.get(property_names.DELAY, ""))
    out_text = properties.get(property_names.TIMER_OUT_MS, "")
    if not level and not out_text:
        return None
    # Other messages that wait, and half messages, name another topic than their own.
    topic = properties.get(property_names.REAL_TOPIC, "")
    rolled = record.topic == reserved.TIMER_TOPIC and property_names.TIMER_ROLL_TIMES in properties
    if record.topic != topic and not rolled:
        return None
    kind = ROLLED if rolled else level or TIMER
    identity = identity_of(record, topic, properties.get(property_names.UNIQ_KEY, ""))
    times = (
        _number(out_text),
        _number(properties.get(property_names.TIMER_ENQUEUE_MS, "")),
        _number(properties.get(property_names.TIMER_CUT_BEFORE_MS, "")),
    )
    return Delivery(kind, record.physical_offset, identity, *times, record.store_timestamp)


def _number(text: str) -> int:
    return whole_number(text) or 0


def before_lost(
    offset: int, lost: Iterable[Identity], waiting: Callable[[int], Identity | None]
) -> tuple[int, list[int]]:
    """Where the progress of a level was before deliveries that the log loses.

    Args:
        offset: the progress.
        lost: the messages whose deliveries are lost. A level delivers in order, so they are the last ones
            before ``offset``, but for those that went to other masters.
        waiting: as for :class:`LevelProgress`.

    Returns:
        The new progress, and the messages from there on whose deliveries are not lost.
    """
    left, at, misses = Counter(lost), offset, 0
    others: list[int] = []
    passed: list[int] = []
    while at > 0 and misses < WINDOW and left.total():
        at -= 1
        identity = waiting(at)
        if identity is None or not left[identity]:
            passed.append(at)
            misses += 1
            continue
        left[identity] -= 1
        others += passed
        passed, offset, misses = [], at, 0
    return offset, others


class LevelProgress:
    """The progress of one level while deliveries are found, in the order of the log.

    Args:
        progress: all before this offset of the level's queue is known to be delivered.
        waiting: gives the identity of the message at an offset of the level's queue, ``None``: it cannot be
            read.
        end: the offset behind the newest message of the queue.
        may_be: whether the message at an offset may have been delivered at a time in milliseconds and at a
            place of the log. What is sent back twice waits twice, as one identity: the delivery of the first
            is none of the second.
        first: deliveries from this offset on may be found, though they are known; ``None``: from progress on.
    """

    def __init__(
        self,
        progress: int,
        end: int,
        waiting: Callable[[int], Identity | None],
        may_be: Callable[[int, int, int], bool] = lambda _offset, _stored_ms, _physical: True,
        first: int | None = None,
    ) -> None:
        self.progress = self._known = progress
        self._end = end
        self._waiting = waiting
        self._may_be = may_be
        self._loaded = progress if first is None else first
        self._places: dict[Identity, deque[int]] = {}

    def saw(self, found: Iterable[Identity], stored_ms: int = 0, physical_offset: int = 0) -> None:
        """Messages with these identities were delivered at a time and place, the first one first."""
        for identity in found:
            self._load()
            places = self._places.get(identity, ())
            while places and places[0] < self.progress > self._known:
                places.popleft()
            if places and places[0] < self._known:
                places.popleft()  # nothing behind was found yet, so it is that one's
            elif places and self._may_be(places[0], stored_ms, physical_offset):
                self.progress = places.popleft() + 1
            if not places:
                self._places.pop(identity, None)

    def _load(self) -> None:
        for _ in self.loading():
            pass

    def loading(self) -> Iterator[None]:
        """Note the identities of the next messages, one with each step."""
        stop = min(self._end, self.progress + WINDOW)
        if len(self._places) > 2 * WINDOW:
            # Passed over without a delivery: they would stay for ever.
            self._places.clear()
            self._loaded = self.progress
        while self._loaded < stop:
            identity = self._waiting(self._loaded)
            if identity is not None:
                self._places.setdefault(identity, deque()).append(self._loaded)
            self._loaded += 1
            yield
