"""The units of the timer log and the slots of the timer wheel, as bytes (TimerLog, Slot). Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

UNIT_BYTES = 52
# size, position of the unit below in the slot, magic, time of writing, slot time relative to that, place of
# the message in the commit log, its size, hash of its topic, reserved.
UNIT = struct.Struct(">iqiqiqiiQ")
BLANK = struct.Struct(">iqi")
BLANK_MAGIC = ((0xBBCCDDEE ^ (1880681586 + 8)) + (1 << 31)) % (1 << 32) - (1 << 31)
# Time of the slot divided by the precision, first and last position, number of messages, magic.
SLOT = struct.Struct(">qqqii")
DEFAULT, ROLL, DELETE = 1, 2, 4
# Apache's wheel: seven days of slots, twice.
WHEEL_SLOTS = 2 * 7 * 86400
# How many slots ahead of the present one a wait may reach in it (TIMER_WHEEL_TTL_DAY, TIMER_BLANK_SLOTS).
MAX_AHEAD_SLOTS = 7 * 86400 - 60
WHEEL_BYTES = WHEEL_SLOTS * SLOT.size
# The longest slot that timerPrecisionMs allows. All other lengths divide it, so no slot crosses the end of
# its second, whatever the precision was when a message was stored.
SECOND_MS = 1000

# OrbitMQ's use of bytes that Apache reserves and writes as 0: this mark, how many ms after its slot's time
# the message is due, and the hash of the key that a recall would name.
_MARK = 0x4F4D


class Unit(NamedTuple):
    """One message or recall in the timer log. Times are milliseconds since the epoch.

    Attributes:
        below: position of the previous unit of its slot, -1 for none.
        physical: where the message's record begins in the commit log.
        extra: the reserved bytes, see :func:`reserved_bytes`.
    """

    size: int
    below: int
    magic: int
    written_ms: int
    delay_ms: int
    physical: int
    record_bytes: int
    topic_hash: int
    extra: int

    @property
    def out_ms(self) -> int:
        """The time of its slot."""
        return self.written_ms + self.delay_ms

    @property
    def valid(self) -> bool:
        """Whether these bytes were written as a unit: zeros are not a unit."""
        return self.size == UNIT_BYTES and 0 < self.magic <= 15 and self.physical >= 0


def unit_bytes(
    below: int,
    magic: int,
    now_ms: int,
    out_ms: int,
    physical: int,
    record_bytes: int,
    topic_hash: int,
    extra: int,
) -> bytes:
    """The bytes of one unit. A delay beyond 24 days does not fit; the wheel is shorter than that."""
    return UNIT.pack(
        UNIT_BYTES, below, magic, now_ms, out_ms - now_ms, physical, record_bytes, topic_hash, extra
    )


def reserved_bytes(behind_ms: int, key_hash: int) -> int:
    """The reserved bytes of OrbitMQ's units, which Apache's broker ignores."""
    return _MARK << 48 | behind_ms << 32 | key_hash


def latest_ms(out_ms: int) -> int:
    """The latest due time of a message in the slot of this time."""
    return (out_ms // SECOND_MS + 1) * SECOND_MS


def due_ms(out_ms: int, extra: int) -> int:
    """The due time of a unit's message in ms; for a unit of Apache's broker the latest possible one."""
    return out_ms + (extra >> 32 & 0xFFFF) if extra >> 48 == _MARK else latest_ms(out_ms)


def hash_of(extra: int) -> int | None:
    """The hash of the key; ``None`` in a unit of Apache's broker."""
    return extra & 0xFFFFFFFF if extra >> 48 == _MARK else None


def roll_ms(out_ms: int, now_ms: int, window_ms: int, precision_ms: int) -> int:
    """The slot in which a message due beyond the window waits first (TimerMessageStore.doEnqueue).

    If little would be left for the next wait, it is cut at half a window, so that the last wait is not short.
    """
    now = now_ms // precision_ms * precision_ms
    if out_ms - now - window_ms < window_ms // 3:
        return (now + window_ms // 2) // precision_ms * precision_ms
    return (now + window_ms) // precision_ms * precision_ms
