"""The wheel: for each slot of time its newest unit in the timer log and its count of messages. Pure."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

SLOTS_IN_BLOCK = 60
NONE = -1


class _Block:
    """Sixty consecutive slots: 720 bytes, however many messages wait in them."""

    __slots__ = ("last", "number", "used")

    def __init__(self) -> None:
        self.last = array("q", [NONE]) * SLOTS_IN_BLOCK
        self.number = array("i", [0]) * SLOTS_IN_BLOCK
        self.used = 0


class Wheel:
    """Slots by number: time divided by the precision.

    A slot names the newest of its units; each unit names the one before it. So the memory does not grow with
    the number of messages, but with the number of minutes in which messages are due.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        # Numbers of blocks, lowest first; a number may stay after its block is gone.
        self._order: list[int] = []

    def add(self, slot: int, position: int, count: int = 1) -> int:
        """Put a unit into a slot as its newest; returns the previous one, -1 for none.

        Args:
            count: 1 for a message, -1 for a recall, which takes a message of the slot away.
        """
        number, place = divmod(slot, SLOTS_IN_BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block()
            heapq.heappush(self._order, number)
        below = block.last[place]
        block.used += below == NONE
        block.last[place] = position
        block.number[place] += count
        return below

    def last(self, slot: int) -> int:
        """The newest unit of a slot, -1 for none."""
        number, place = divmod(slot, SLOTS_IN_BLOCK)
        block = self._blocks.get(number)
        return NONE if block is None else block.last[place]

    def number(self, slot: int) -> int:
        """How many messages wait in a slot."""
        number, place = divmod(slot, SLOTS_IN_BLOCK)
        block = self._blocks.get(number)
        return 0 if block is None else max(0, block.number[place])

    def take(self, slot: int) -> int:
        """Empty a slot; returns its newest unit, -1 for none."""
        number, place = divmod(slot, SLOTS_IN_BLOCK)
        block = self._blocks.get(number)
        if block is None or block.last[place] == NONE:
            return NONE
        last = block.last[place]
        block.last[place] = NONE
        block.number[place] = 0
        block.used -= 1
        if not block.used:
            del self._blocks[number]
        return last

    def next_slot(self) -> int | None:
        """The earliest slot with a unit, ``None`` when the wheel is empty."""
        while self._order:
            number = self._order[0]
            block = self._blocks.get(number)
            if block is not None:
                for place, last in enumerate(block.last):
                    if last != NONE:
                        return number * SLOTS_IN_BLOCK + place
            heapq.heappop(self._order)
        return None

    def numbers(self, first: int, ends: Sequence[int]) -> list[int]:
        """How many messages wait before each slot of ``ends``, from the end before it or ``first`` on."""
        found = [0] * len(ends)
        for number in range(first // SLOTS_IN_BLOCK, ends[-1] // SLOTS_IN_BLOCK + 1):
            block = self._blocks.get(number)
            if block is None:
                continue
            begin = number * SLOTS_IN_BLOCK
            at = bisect_right(ends, begin)
            if begin >= first and at < len(ends) and begin + SLOTS_IN_BLOCK <= ends[at]:
                found[at] += sum(block.number)
                continue
            for slot, messages in enumerate(block.number, begin):
                at = bisect_right(ends, slot)
                if slot >= first and at < len(ends):
                    found[at] += messages
        return [max(0, messages) for messages in found]

    def slots(self) -> Iterator[tuple[int, int, int]]:
        """Every used slot in order of time, with its newest unit and the number of its messages."""
        for number in sorted(self._blocks):
            block = self._blocks[number]
            for place, last in enumerate(block.last):
                if last != NONE:
                    yield number * SLOTS_IN_BLOCK + place, last, max(0, block.number[place])
