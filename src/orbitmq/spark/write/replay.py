"""Exactly-once as decisions: which rows of a replay are stored already, and does that add up? Does no I/O.

A row is known again by the digest of its content, wherever a replay puts it: in another order, another
partition, among another number of partitions. Messages of *earlier* attempts count: those of other runs of
the query, and of other attempts of the same task. Each task leaves out as many of its equal rows as earlier
messages have that content, and reports them. Equal rows may be in several partitions, whose tasks know
nothing of each other: so all of them may leave out the same message, and the driver adds up.

- Left out more often than stored: the difference was sent by nobody, and the driver sends it.
- Stored more often than left out: messages without a row. The replay gave other rows, or an attempt that was
  thought dead has sent after the tasks looked. Never silent: the batch fails with the counts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from orbitmq.spark.write.task import StoredRow, TaskId


def is_earlier(stored: StoredRow, task: TaskId) -> bool:
    """Whether an attempt before this one sent the message; sisters of the same run are not before it."""
    if stored.run != task.run:
        return True
    return stored.partition == task.partition and stored.attempt != task.attempt_text


class Replay:
    """Matches the rows of one attempt with what earlier attempts have stored.

    Attributes:
        earlier: how many messages earlier attempts have stored.
        matched: the digests of the rows that were left out, one entry a row.
    """

    def __init__(self, task: TaskId) -> None:
        self.earlier = 0
        self.matched = array("Q")
        self._task = task
        self._left: Counter[int] = Counter()

    def found(self, stored: Iterable[StoredRow]) -> None:
        """Take in what a topic holds of the batch; messages of others do not matter."""
        for row in stored:
            if is_earlier(row, self._task):
                self.earlier += 1
                self._left[row.digest] += 1

    def take(self, digest: int) -> bool:
        """Whether a row with this content is left out."""
        if self._left.get(digest, 0) <= 0:
            return False
        self._left[digest] -= 1
        self.matched.append(digest)
        return True


class Reconciliation(NamedTuple):
    """How a replayed batch adds up.

    Attributes:
        earlier: messages that other attempts than the successful ones stored.
        unmatched: of these, the messages that no row was left out for.
        missing: how often each content is still to be sent.
    """

    earlier: int
    unmatched: int
    missing: Counter[int]


def reconcile(
    stored: Iterable[StoredRow], successful: Mapping[int, str], matched: Iterable[int]
) -> Reconciliation:
    """Add up a batch when all its tasks have ended.

    Args:
        stored: all messages of the batch.
        successful: the attempt of each partition whose result counts.
        matched: the digests of all rows that the tasks left out.
    """
    there = Counter(row.digest for row in stored if successful.get(row.partition) != row.attempt)
    left_out = Counter(matched)
    unmatched = there - left_out
    return Reconciliation(there.total(), unmatched.total(), left_out - there)
