"""Unfinished half messages, and when to check them (no I/O).

The half queue is read from front to back. Messages before :attr:`HalfTable.next_offset` were read: they are
pending or finished. A later message may be finished already: usually a transaction ends before the queue was
read up to it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, replace

MAX_REMEMBERED = 100_000
MAX_MARKS = 10_000
_SLACK = 1000


@dataclass(frozen=True, slots=True)
class Half:
    """An unfinished half message.

    Attributes:
        offset: its offset in the half queue.
        physical_offset: its offset in the commit log.
        origin: its own offset, or that of the half message that this one is a copy of.
        unique_id: its UNIQ_KEY; only for log lines, since users may give it twice.
        due_ms: when to check it at a producer.
        topic: the topic it goes to when it is committed.
    """

    offset: int
    physical_offset: int
    origin: int
    unique_id: str
    due_ms: int
    topic: str


class HalfTable:
    """The unfinished half messages of one half queue.

    Args:
        first: the offset from which the queue is read; all half messages before it are finished.

    Attributes:
        by_topic: how many of the half messages that were read are unfinished.
    """

    def __init__(self, first: int) -> None:
        self.next_offset = first
        self._pending: dict[int, Half] = {}
        self.by_topic: Counter[str] = Counter()
        self._ahead: set[int] = set()
        # By origin: the offset of the latest copy that is still pending.
        self._copies: dict[int, int] = {}
        self._due: list[tuple[int, int]] = []
        self._order: list[int] = []
        # The latest finished half messages: a transaction ended twice must not deliver two messages.
        self._finished: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, half: Half) -> bool:
        return self._pending.get(half.offset) is half

    def unfinished(self, end_offset: int) -> int:
        """How many messages of a half queue that ends at ``end_offset`` are not finished."""
        unread = max(0, end_offset - self.next_offset) - len(self._ahead)
        return len(self._pending) + max(0, unread)

    @property
    def progress(self) -> int:
        """The offset before which all half messages are finished."""
        order = self._order
        while order and order[0] not in self._pending:
            heapq.heappop(order)
        return min(order[0], self.next_offset) if order else self.next_offset

    # -- reading the queue -------------------------------------------------------------------------------

    def skip(self) -> bool:
        """Whether the message at :attr:`next_offset` can be skipped: it is finished, or was added before."""
        if self.next_offset in self._ahead:
            self._ahead.discard(self.next_offset)
            return True
        return self.next_offset in self._pending

    def admit(self, half: Half) -> int | None:
        """Add an unfinished half message.

        Returns:
            The offset of the half message that this copy replaces, if that message was unfinished until now:
            its mark, which follows the copy in the log, was lost in a crash. It is finished from now on.
        """
        superseded = None
        if half.origin != half.offset:
            superseded = self._copies.get(half.origin, half.origin)
            if superseded in self._pending:
                self.finish(superseded)
            else:
                superseded = None
            self._copies[half.origin] = half.offset
        self.by_topic[half.topic] += 1
        self._pending[half.offset] = half
        heapq.heappush(self._order, half.offset)
        heapq.heappush(self._due, (half.due_ms, half.offset))
        return superseded

    # -- ending ------------------------------------------------------------------------------------------

    def current(self, offset: int, origin: int) -> int | None:
        """The offset under which the transaction of the half message at ``offset`` is unfinished.

        Args:
            origin: as in :class:`Half`.

        Returns:
            Its own offset, that of its latest copy, or None when it is finished. An old half message that the
            table has forgotten counts as unfinished, as in RocketMQ.
        """
        if offset in self._pending:
            return offset
        copy = self._copies.get(origin)
        if copy is not None:
            return copy
        if offset in self._ahead:
            return None
        if offset >= self.next_offset:
            return offset
        return None if offset in self._finished else offset

    def finish(self, offset: int) -> None:
        """Count a half message as finished: its transaction has ended, or it was moved elsewhere."""
        if offset >= self.next_offset:
            self._ahead.add(offset)
        half = self._pending.pop(offset, None)
        if half is not None:
            self._uncount(half.topic)
            if self._copies.get(half.origin) == offset:
                del self._copies[half.origin]
            self._trim()
        if len(self._finished) >= MAX_REMEMBERED:
            del self._finished[next(iter(self._finished))]
        self._finished[offset] = None

    def _uncount(self, topic: str) -> None:
        self.by_topic[topic] -= 1
        if not self.by_topic[topic]:
            del self.by_topic[topic]

    def replace(self, old: Half, new: Half) -> None:
        """Finish a half message that was copied to the end of the queue, and add ``new``, the copy."""
        self.finish(old.offset)
        self.admit(new)

    def _trim(self) -> None:
        """Forget finished messages that are still in the heaps behind an unfinished one."""
        limit = 2 * len(self._pending) + _SLACK
        if len(self._order) > limit:
            self._order = sorted(self._pending)
        if len(self._due) > limit:
            self._due = sorted((half.due_ms, half.offset) for half in self._pending.values())

    # -- asking ------------------------------------------------------------------------------------------

    def due(self, now_ms: int, limit: int) -> list[Half]:
        """Up to ``limit`` half messages to check now, the longest waiting first.

        The caller has to finish, replace or postpone each.
        """
        found: list[Half] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < limit:
            due_ms, offset = heapq.heappop(self._due)
            half = self._pending.get(offset)
            if half is not None and half.due_ms == due_ms:
                found.append(half)
        return found

    def postpone(self, half: Half, due_ms: int) -> None:
        """Check a half message that :meth:`due` returned later, unless it is finished."""
        if half in self:
            self._pending[half.offset] = replace(half, due_ms=due_ms)
            heapq.heappush(self._due, (due_ms, half.offset))


class MarkProgress:
    """Computes the op offset from which marks must be read to find out which half messages are finished.

    Args:
        first: the first op offset that is read.
    """

    def __init__(self, first: int) -> None:
        self._done = first
        # Runs of op messages: the offset behind the last one, and the highest half offset they mark.
        self._runs: deque[tuple[int, int]] = deque()

    def note(self, op_offset: int, highest: int) -> None:
        """Note that the op message at ``op_offset`` marks half offsets up to ``highest``."""
        self._runs.append((op_offset + 1, highest))
        if len(self._runs) > MAX_MARKS:
            runs = list(self._runs)
            self._runs = deque(
                (later[0], max(earlier[1], later[1]))
                for earlier, later in zip(runs[::2], runs[1::2], strict=False)
            )
            if len(runs) % 2:
                self._runs.append(runs[-1])

    def progress(self, half_progress: int) -> int:
        """The op offset behind all op messages whose marks are below ``half_progress``."""
        while self._runs and self._runs[0][1] < half_progress:
            self._done = self._runs.popleft()[0]
        return self._done
