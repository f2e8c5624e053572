"""Where a message of the timer topic waits, and the unit of the timer log that says so. Pure."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.timers import forms, units
from orbitmq.broker.timers.forms import Timer
from orbitmq.broker.timers.progress import Cut
from orbitmq.message.record import Record


def cut_of(config: BrokerConfig) -> Cut:
    """The settings that say where a long wait is cut; ``fileReservedTime`` may change at any moment."""
    return config.timer_roll_window_ms, config.timer_precision_ms


def place_of(record: Record, timer: Timer, cut: Cut) -> tuple[int, int, int]:
    """The magic of its unit, the time of its slot, and when it is due."""
    recall, (window_ms, precision_ms) = timer.deletes is not None, cut
    magic = units.DELETE | units.DEFAULT if recall else units.DEFAULT
    out_ms, due_ms, stored_ms = timer.out_ms, timer.due_ms, record.store_timestamp
    # A recall goes to its slot at once, as far as the wheel of Apache's reaches: two long waits at a time
    # could end in the wrong order.
    window_ms = units.MAX_AHEAD_SLOTS * precision_ms if recall else window_ms
    # Counted from its store time: whoever reads it, and when, a long wait is cut at the same place.
    if out_ms - stored_ms >= window_ms:
        magic |= units.ROLL
        out_ms = units.roll_ms(out_ms, stored_ms, window_ms, precision_ms)
        due_ms = out_ms + precision_ms
    return magic, out_ms, due_ms


def later(
    place: tuple[int, int, int], timer: Timer, after_ms: int, precision_ms: int
) -> tuple[int, int, int]:
    """The place of a long wait that is to be cut behind a time, since where it was cut is over."""
    magic, _, _ = place
    out_ms = (after_ms // precision_ms + 1) * precision_ms
    if timer.out_ms < out_ms + precision_ms:
        return magic & ~units.ROLL, timer.out_ms, timer.due_ms
    return magic, out_ms, out_ms + precision_ms


def is_cut_here(unit: units.Unit, cut: Cut) -> bool:
    """Whether a unit waits for a whole window, as most do; the place of others is in their record."""
    window_ms, precision_ms = cut
    begun_ms = unit.written_ms // precision_ms * precision_ms
    out_ms = (begun_ms + window_ms) // precision_ms * precision_ms
    return unit.out_ms == out_ms and units.due_ms(out_ms, unit.extra) == out_ms + precision_ms


def is_cut_elsewhere(unit: units.Unit, record: Record | None, cut: Cut) -> bool:
    """Whether a unit of ours was made with settings that cut this long wait at another place."""
    timer = record and forms.timer_of(record, forms.properties_of(record))
    if not record or not timer:
        return False
    place = unit.magic, unit.out_ms, units.due_ms(unit.out_ms, unit.extra)
    return place_of(record, timer, cut) != place


def unit_bytes(below: int, place: tuple[int, int, int], record: Record, timer: Timer) -> bytes:
    """The unit of a message or recall.

    Args:
        place: as :func:`place_of` gives it.
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
    """Whether a unit is as this broker makes it: of one that a crash has torn the end is zeros."""
    timer = forms.timer_of(record, forms.properties_of(record))
    if timer is None:
        return False
    out_ms, due_ms = timer.out_ms, timer.due_ms
    if unit.magic & units.ROLL:
        # The settings that say where a long wait is cut may have been others.
        out_ms, due_ms = unit.out_ms, units.due_ms(unit.out_ms, unit.extra)
    return units.UNIT.pack(*unit) == unit_bytes(unit.below, (unit.magic, out_ms, due_ms), record, timer)
