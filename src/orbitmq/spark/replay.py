"""What an earlier attempt of a task has stored, matched against the rows of this attempt. Does no I/O.

A row is known again by the digest of its content, not by its place: a replay may give the rows of a partition
in another order. Rows that moved to another partition cannot be known again, which is an error with counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# A row's number in the attempt that sent it, and the digest of its content.
Stored = tuple[int, str]


class Counts(NamedTuple):
    """How a replay stands: stored messages that a row was found for, and those without one."""

    matched: int
    unmatched: int


class Replay:
    """Matches rows with stored messages, each message once.

    Args:
        stored: the messages of the task that are in the topic.
    """

    def __init__(self, stored: Iterable[Stored]) -> None:
        self._rows: dict[str, list[int]] = {}
        for row, digest in stored:
            self._rows.setdefault(digest, []).append(row)
        self._taken: Counter[Stored] = Counter()
        self._unmatched = sum(map(len, self._rows.values()))

    @property
    def counts(self) -> Counts:
        return Counts(self._taken.total(), self._unmatched)

    def take(self, digest: str) -> bool:
        """Whether a message with this content is stored that no other row was matched with."""
        rows = self._rows.get(digest)
        if not rows:
            return False
        self._taken[rows.pop(), digest] += 1
        self._unmatched -= 1
        return True

    def new_among(self, stored: Iterable[Stored], wanted: set[Stored]) -> set[Stored]:
        """Which of the ``wanted`` rows of this attempt are stored, by what was found after a lost answer.

        A message that an earlier attempt stored under the same number is not taken for this attempt's.
        """
        found = Counter(entry for entry in stored if entry in wanted)
        return {entry for entry, count in found.items() if count > self._taken[entry]}
