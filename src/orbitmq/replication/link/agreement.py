"""Finding the last record that two logs have in common, with few questions. Pure.

Two logs that differ at one place differ at all later ones: a record says when it was stored. So the last
common place is searched by halves, or rather by many places at once, first anywhere in the log, at the end at
borders of records.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.replication.link.hello import BLOCK_BYTES

PLACES = 64
NEAR_BYTES = 64 * 1024


class Agreement:
    """The search of one follower.

    Args:
        begin, end: of its log; ``end`` is behind a whole record.

    Attributes:
        low: the logs agree up to here at least.
        high: they do not agree up to here, nor up to any later place; ``None`` before the first answer.
        common: the end of the last common record, -1: not found yet.
    """

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.low = begin
        self.high: int | None = None
        self.common = -1
        self._asked: Sequence[int] = ()
        self._at_borders = False

    @property
    def near(self) -> bool:
        """Whether the next places to ask for are the borders of records from :attr:`low` to :attr:`high`."""
        return self.high is not None and self.high - self.low <= NEAR_BYTES

    def places(self) -> list[int]:
        """Where to compare next, the last place first."""
        if self.high is None:
            wanted = [self.end]
            distance = NEAR_BYTES
            while self.end - distance > self.begin:
                wanted.append(self.end - distance)
                distance *= 4
        else:
            step = -(-(self.high - self.low) // PLACES)
            wanted = [self.high - step * number for number in range(1, PLACES)]
        self._asked = [place for place in wanted if place > self.low]
        return list(self._asked)

    def borders(self, starts: Sequence[int]) -> list[int]:
        """Ask for borders of records: ``starts``, ascending, the first one not above :attr:`low`."""
        assert self.high is not None
        self._at_borders = True
        self._asked = [place for place in reversed(starts) if place < self.high]
        return list(self._asked)

    def answered(self, matched: int) -> None:
        """The other log has the place number ``matched`` of those asked for, and none before it; -1: none."""
        none = not 0 <= matched < len(self._asked)
        if self._at_borders:
            self.common = self.begin if none else self._asked[matched]
        elif none:
            self.high = self._asked[-1]
        elif self._asked[matched] == self.end:
            self.common = self.end
        else:
            self.low = self._asked[matched]
            if matched > 0:
                self.high = self._asked[matched - 1]

    def block(self, place: int) -> tuple[int, int]:
        """What is compared to know whether the logs agree up to a place."""
        return max(self.begin, place - BLOCK_BYTES), place
