"""Deliveries of delayed messages, found in the log: each names the place of the message that it delivers.

A delayed or timer message that is delivered, and a long timer wait that is stored again, carries the property
``DELIVERY_OF``: a place in the log and the broker name of that log. So the records alone show which messages
were delivered since a saved progress, and which in a tail of the log that is to be set aside.
RocketMQ's broker writes no such property: its delivery is recognized (DL-07), but not which message it
delivers. It also copies the property of an older delivery into a message that a consumer sends back, so the
named message has to be compared with the delivery.
"""

from __future__ import annotations

import re
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from orbitmq.broker.delay.levels import level_number
from orbitmq.message import property_names, reserved
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.runtime.seam import Threads
from orbitmq.store import MessageStore
from orbitmq.store.ports import LogPiece

TIMER = 0
# A timer message that was stored again in the timer topic, to wait for the rest of its time.
ROLLED = -1
# The most deliveries that one call collects.
BATCH = 10_000

_MARK = re.compile(property_names.REAL_TOPIC.encode() + b"\x01")
_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class LoggedDelivery:
    """A delivered record that was found in the log.

    Attributes:
        level: :data:`TIMER` or :data:`ROLLED` for a timer message.
        place: where in this log the delayed message is; ``None``: the record does not say.
        born_ms, reconsume_times: the same as those of the delayed message.
        out_ms: of a timer message, its slot; 0: the record does not say.
        enqueued_ms: of a timer message, when it began to wait; 0: the record does not say.
    """

    level: int
    physical_offset: int
    place: int | None = None
    born_ms: int = 0
    reconsume_times: int = 0
    out_ms: int = 0
    enqueued_ms: int = 0

    def is_of(self, waited: Record) -> bool:
        """Whether this can be the delivery of a message that waited."""
        return (waited.born_timestamp, waited.reconsume_times) == (self.born_ms, self.reconsume_times)


def delivery_of(place: int, broker_name: str) -> str:
    """The value of ``DELIVERY_OF`` for the message at a place in the log of a broker name."""
    return f"{place} {broker_name}"


def place_in(properties: Mapping[str, str], broker_name: str) -> int | None:
    """The place of the delayed message in this broker name's log; ``None``: the properties name none."""
    place, _, name = properties.get(property_names.DELIVERY_OF, "").partition(" ")
    return whole_number(place) if name == broker_name else None


async def deliveries_between(
    threads: Threads, store: MessageStore, broker_name: str, start: int, end: int
) -> AsyncIterator[list[LoggedDelivery]]:
    """The deliveries between two places of the log where records begin, some thousands at a time."""
    at = start
    while (piece := store.raw.piece(at, end)) is not None:
        found, at = await threads.run(deliveries, piece, broker_name)
        if found:
            yield found


def deliveries(piece: LogPiece, broker_name: str, limit: int = BATCH) -> tuple[list[LoggedDelivery], int]:
    """The delivered records among those that begin in the piece, up to ``limit``.

    Returns:
        The records, and the log offset to continue at: the end of the piece if it has no more.
    """
    found: list[LoggedDelivery] = []
    view, at, end = piece.view, piece.start - piece.base, piece.end - piece.base
    # Few records have REAL_TOPIC: the others are skipped by their size alone.
    for mark in _MARK.finditer(view, at, end):
        if mark.start() < at:
            continue
        while (size := _SIZE.unpack_from(view, at)[0]) > 0 and at + size <= mark.start():
            at += size
        if size <= 0:
            break
        delivery = _delivery(view, at, broker_name)
        at += size
        if delivery is not None:
            found.append(delivery)
            if len(found) >= limit:
                return found, piece.base + at
    return found, piece.end


def _delivery(view: memoryview, at: int, broker_name: str) -> LoggedDelivery | None:
    try:
        record = decode_record(view, at)
        properties = decode_properties(record.properties)
    except MessageFormatError:
        return None
    level = level_number(properties.get(property_names.DELAY, ""))
    if not level and not properties.get(property_names.TIMER_OUT_MS):
        return None
    # A message that still waits, or a half message, is in another topic than its REAL_TOPIC.
    topic = properties.get(property_names.REAL_TOPIC, "")
    rolled = record.topic == reserved.TIMER_TOPIC and property_names.TIMER_ROLL_TIMES in properties
    if record.topic != topic and not rolled:
        return None
    out_ms = _number(properties, property_names.TIMER_OUT_MS)
    cut_ms = _number(properties, property_names.TIMER_CUT_MS)
    enqueued_ms = _number(properties, property_names.TIMER_ENQUEUE_MS)
    return LoggedDelivery(
        ROLLED if rolled else level or TIMER,
        record.physical_offset,
        place_in(properties, broker_name),
        record.born_timestamp,
        record.reconsume_times,
        # A message delivered by a Java broker still has TIMER_CUT_MS, where OrbitMQ would have cut its wait.
        min(cut_ms or out_ms, out_ms),
        min(cut_ms or enqueued_ms, enqueued_ms),
    )


def _number(properties: Mapping[str, str], name: str) -> int:
    return whole_number(properties.get(name, "")) or 0
