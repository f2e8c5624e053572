"""The decisions of exactly-once: which rows of a replay are stored already, and whether they add up. No I/O.

A row is recognised by the digest of its content, even if a replay has another order or number of partitions.
Only messages of *earlier* attempts count: those of other runs of the query, and of other attempts of the same
task. A task leaves out as many of its equal rows as there are earlier messages with that content, and reports
them. Equal rows may be in several partitions, and each of their tasks may leave out a row for the same
message: so the driver adds up.

- Left out more often than stored: no task has sent the difference, so the driver sends it.
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
    """Whether an earlier attempt sent the message; other tasks of the same run are not earlier."""
    if stored.run != task.run:
        return True
    return stored.partition == task.partition and stored.attempt != task.attempt_text


class Replay:
    """Matches the rows of one attempt with what earlier attempts have stored.

    Attributes:
        earlier: the number of messages that earlier attempts have stored.
        matched: the digests of the rows that were left out, one entry a row.
    """

    def __init__(self, task: TaskId) -> None:
        self.earlier = 0
        self.matched = array("Q")
        self._task = task
        self._left: Counter[int] = Counter()

    def found(self, stored: Iterable[StoredRow]) -> None:
        """Add the messages of the batch that a topic holds; those of later attempts are ignored."""
        for row in stored:
            if is_earlier(row, self._task):
                self.earlier += 1
                self._left[row.digest] += 1

    def take(self, digest: int) -> bool:
        """Whether to leave out a row with this content."""
        if self._left.get(digest, 0) <= 0:
            return False
        self._left[digest] -= 1
        self.matched.append(digest)
        return True


class Reconciliation(NamedTuple):
    """The sums of a replayed batch.

    Attributes:
        earlier: the number of messages that unsuccessful attempts have stored.
        unmatched: the number of these for which no row was left out.
        missing: for each content, how often it is still to be sent.
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
