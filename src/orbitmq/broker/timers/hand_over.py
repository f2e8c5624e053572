"""Writes the files that a clean stop leaves for a Java broker: the wheel, without delivered messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orbitmq.broker.timers import units
from orbitmq.broker.timers.timer_log import TimerLog
from orbitmq.broker.timers.units import Unit
from orbitmq.runtime.seam import Files


def write_wheel(files: Files, path: str, slots: Iterable[tuple[int, int, int]]) -> None:
    """Write ``timerwheel`` anew (TimerWheel, Slot).

    Args:
        slots: for each slot its number, its newest unit, and how many messages wait in it. The slot's first
            unit is not known: Apache's broker uses it only where the timer log is shorter than the wheel
            says.

    Raises:
        OSError: the disk refused. The file is then missing or in part zeros, which Apache's broker mends with
            the timer log.
    """
    files.remove(path)
    segment = files.open_segment(path, units.WHEEL_BYTES, create=True, durable=False)
    try:
        for slot, last, number in slots:
            place = slot % units.WHEEL_SLOTS * units.SLOT.size
            segment.pwrite(units.SLOT.pack(slot, last, last, number, 0), place)
        segment.sync()
    finally:
        segment.close()


def without_delivered(
    timer_log: TimerLog,
    tail: int,
    units_down: Iterable[Unit],
    is_delivered: Callable[[Unit], bool],
    past_ms: int,
) -> tuple[int, int]:
    """Take the delivered units out of a slot that has begun; returns its newest unit, and how many messages
    wait in it.

    Args:
        tail: the position of its newest unit so far.
        units_down: all its units, newest first.

    Raises:
        OSError: as for :func:`take_out`.
    """
    chain, position = [], tail
    for unit in units_down:
        chain.append((position, unit))
        position = unit.below
    gone = {at for at, unit in chain if is_delivered(unit)}
    left = sum(-1 if unit.magic & units.DELETE else 1 for at, unit in chain if at not in gone)
    return take_out(timer_log, chain, gone, past_ms) if gone else tail, max(0, left)


def take_out(timer_log: TimerLog, chain: list[tuple[int, Unit]], delivered: set[int], past_ms: int) -> int:
    """Take the delivered units of a slot out of its chain, for a broker that reads whole slots.

    They become units of a past slot, so that no reader puts them back.

    Args:
        chain: positions and units, newest first.
        delivered: positions.

    Returns:
        The newest unit that is left, -1 for none.

    Raises:
        OSError: the disk refused; the chain is whole, maybe with delivered units in it.
    """
    below = -1
    for position, unit in reversed(chain):
        if position in delivered:
            timer_log.rewrite(position, unit._replace(below=-1, delay_ms=past_ms - unit.written_ms))
        else:
            if unit.below != below:
                timer_log.rewrite(position, unit._replace(below=below))
            below = position
    return below
