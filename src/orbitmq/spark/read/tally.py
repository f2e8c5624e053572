"""What a task has done so far, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts that only grow.

    Attributes:
        pulled_bytes: of answers to pulls.
        retries: pauses because a broker was away, busy or behind.
        skipped: offsets that were promised and are gone.
    """

    pulled_bytes: int = 0
    retries: int = 0
    skipped: int = 0

    def add(self, other: Tally) -> None:
        self.pulled_bytes += other.pulled_bytes
        self.retries += other.retries
        self.skipped += other.skipped
