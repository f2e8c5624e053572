"""Timer messages that were handed over and are not known to be stored."""

from __future__ import annotations

from collections import deque

from orbitmq.broker.messaging.outlet import Handed
from orbitmq.broker.timers.progress import MAX_ALONE, Progress


class Unsettled:
    """They are handed over in the order of their marks, but for those that come too late for their time.

    Attributes:
        handed, settled: how many were handed over, and how many of the first ones are stored.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Handed, int]] = deque()
        self.handed = self.settled = 0

    def __len__(self) -> int:
        """How many are kept: from the oldest on that is not stored."""
        return len(self._waiting)

    @property
    def none(self) -> bool:
        """Whether all that was handed over is stored."""
        return self.settled == self.handed

    def add(self, handed: Handed, mark: int) -> None:
        """A message was handed over."""
        self._waiting.append((handed, mark))
        self.handed += 1

    def settle(self) -> None:
        """Count what is stored by now."""
        while self._waiting and self._waiting[0][0].stored:
            self._waiting.popleft()
            self.settled += 1

    def clear(self) -> None:
        """Begin anew."""
        self._waiting.clear()
        self.handed = self.settled = 0

    @property
    def first(self) -> int | None:
        """The lowest mark that is not stored."""
        return min((mark for handed, mark in self._waiting if not handed.stored), default=None)

    def delivered(self, first: int, taken: int, before: int) -> Progress:
        """What is delivered while the message with the mark ``first`` waits: the later ones one by one.

        Of more than :data:`MAX_ALONE` the last ones are left out; they come again.
        """
        later = sorted(mark for handed, mark in self._waiting if mark > first and handed.stored)
        return Progress(first - 1, taken, before, alone=frozenset(later[:MAX_ALONE]))
