"""The slot in which a message of the timer topic waits, and its unit in the timer log. Pure."""

from __future__ import annotations

from orbitmq.broker.timers import forms, units
from orbitmq.broker.timers.forms import Timer
from orbitmq.message.record import Record


def place_of(timer: Timer) -> tuple[int, int, int]:
    """The magic number of a message's unit, the time of its slot, and its due time."""
    magic = units.DEFAULT if timer.deletes is None else units.DELETE | units.DEFAULT
    if timer.cut_ms:
        return magic | units.ROLL, timer.cut_ms, timer.cut_ms + 1
    return magic, timer.out_ms, timer.due_ms


def unit_bytes(below: int, place: tuple[int, int, int], record: Record, timer: Timer) -> bytes:
    """The unit of a message or recall.

    Args:
        place: the result of :func:`place_of`.
    """
    magic, out_ms, due_ms = place
    return units.unit_bytes(
        below,
        magic,
        record.store_timestamp,
        out_ms,
        record.physical_offset,
        record.total_size,
        forms.topic_hash(timer.topic),
        units.reserved_bytes(due_ms - out_ms, forms.key_hash(timer.names)),
    )


def is_whole(unit: units.Unit, record: Record) -> bool:
    """Whether a unit has all the bytes that this broker writes: one torn by a crash ends with zeros."""
    timer = forms.timer_of(record, forms.properties_of(record))
    if timer is None:
        return False
    return units.UNIT.pack(*unit) == unit_bytes(unit.below, place_of(timer), record, timer)
