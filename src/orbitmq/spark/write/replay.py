"""The decisions of exactly-once: which rows of a replay are already stored, and whether rows and messages
match. No I/O.

A row is identified by the digest of its content, even if a replay has another order or number of partitions.
Only messages of *earlier* attempts count: of other runs of the query, and of other attempts of the same task.
A task skips as many of its equal rows as there are earlier messages with that content, and reports them.
Equal rows may be in several partitions, and several tasks may skip a row for the same message; therefore the
driver adds up.

- More rows skipped than messages stored: no task has sent the difference, so the driver sends it.
- More messages stored than rows skipped: there are messages without a row. The replay gave other rows, or an
  attempt that was assumed dead has sent after the tasks searched. The batch fails, and the error has the
  counts.
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
    """Matches the rows of one attempt with the messages that earlier attempts have stored.

    Attributes:
        earlier: the number of messages that earlier attempts have stored.
        matched: the digests of the skipped rows, one entry per row.
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
        """Whether to skip a row with this content; counts it as matched if so."""
        if self._left.get(digest, 0) <= 0:
            return False
        self._left[digest] -= 1
        self.matched.append(digest)
        return True


class Reconciliation(NamedTuple):
    """The sums of a replayed batch.

    Attributes:
        earlier: the number of messages that unsuccessful attempts have stored.
        unmatched: the number of these messages for which no row was skipped.
        missing: for each content, the number of messages still to be sent.
    """

    earlier: int
    unmatched: int
    missing: Counter[int]


def reconcile(
    stored: Iterable[StoredRow], successful: Mapping[int, str], matched: Iterable[int]
) -> Reconciliation:
    """Add up a batch after all its tasks have ended.

    Args:
        stored: all messages of the batch.
        successful: for each partition, the attempt whose result counts.
        matched: the digests of all rows that the tasks skipped.
    """
    there = Counter(row.digest for row in stored if successful.get(row.partition) != row.attempt)
    left_out = Counter(matched)
    unmatched = there - left_out
    return Reconciliation(there.total(), unmatched.total(), left_out - there)
