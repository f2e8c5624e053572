"""Estimates when the disks of brokers will be full, from the growth of their logs while pages were shown.

It needs no requests: the runtime information of a broker has the ends of its log and the free space. Pure.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.message.numbers import whole_number

# The least time of observation: a shorter one is no basis for an estimate of a day.
LEAST_MS: Final = 10 * 60_000
# Observations are kept for six hours, one a minute.
STEP_MS: Final = 60_000
MOST_LOOKS: Final = 360
MOST_BROKERS: Final = 500
# The used share of a disk from which on a broker refuses messages.
REFUSES_AT: Final = 0.9
_CAPACITY: Final = re.compile(r"Total : ([\d.,]+) ([KMGTPE]?)i?B, Free : ([\d.,]+) ([KMGTPE]?)i?B")
_UNITS: Final = " KMGTPE"


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a disk will be full.

    Attributes:
        seconds: the time until then; ``None`` if it is unknown, or the disk will not be full soon.
        is_known: whether the log was observed for long enough.
    """

    seconds: float | None = None
    is_known: bool = False


class Disks:
    """The growth of the brokers' logs, by address."""

    def __init__(self) -> None:
        # By broker address: times (ms) and the log's end offsets at those times.
        self._looks: dict[str, deque[tuple[int, int]]] = {}

    def note(self, at_ms: int, address: str, status: Mapping[str, str]) -> Outlook:
        """Record the state of a broker; returns when its disk will be full."""
        end = whole_number(status.get("commitLogMaxOffset", ""))
        space = _room(status.get("commitLogDirCapacity", ""))
        if end is None or space is None:
            return Outlook()
        looks = self._looks.setdefault(address, deque(maxlen=MOST_LOOKS))
        while len(self._looks) > MOST_BROKERS:
            del self._looks[next(iter(self._looks))]
        if looks and end < looks[-1][1]:
            looks.clear()  # the broker has a new log
        first_ms, first = looks[0] if looks else (at_ms, end)
        if not looks or at_ms - looks[-1][0] >= STEP_MS:
            looks.append((at_ms, end))
        if at_ms - first_ms < LEAST_MS:
            return Outlook()
        rate = (end - first) / (at_ms - first_ms) * 1000
        if rate <= 0 or _is_steady(rate, end, at_ms, space, status):
            return Outlook(None, True)
        return Outlook(space / rate, True)


def _is_steady(rate: float, end: int, at_ms: int, space: float, status: Mapping[str, str]) -> bool:
    """Whether old messages are deleted before the disk is full: the broker deletes already, and the disk has
    room for the messages of the whole retention time.
    """
    begin = whole_number(status.get("commitLogMinOffset", ""))
    oldest_ms = whole_number(status.get("earliestMessageTimeStamp", ""))
    if not begin or not oldest_ms or not 0 < oldest_ms < at_ms:
        return False
    return rate * (at_ms - oldest_ms) / 1000 - (end - begin) < space


def _room(text: str) -> float | None:
    """How many bytes are left until the broker refuses messages; ``None`` if the text does not have them."""
    found = _CAPACITY.search(text)
    if found is None:
        return None
    try:
        total, free = _size(found[1], found[2]), _size(found[3], found[4])
    except ValueError:
        return None
    return max(0.0, free - (1 - REFUSES_AT) * total)


def _size(number: str, unit: str) -> float:
    return float(number.replace(",", ".")) * 1024.0 ** _UNITS.index(unit or " ")
