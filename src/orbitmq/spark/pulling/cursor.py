"""The parts of one range of a queue that are still to be pulled, and the size of parts. Does no I/O."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.message.record_scan import scan_range
from orbitmq.runtime.seam import Buffer
from orbitmq.spark.pulling.ranges import QueueRange

# Most bytes of an answer from OrbitMQ's brokers, unless one message is larger. A Java broker ignores this
# limit and sends 32 messages at most, or 8 if it reads them from its disk.
PULL_BYTES = 512 << 10
# The first number of offsets per pull if the broker filters: it returns fewer messages than it examines.
FILTERED_STEP = 2048
LONGEST_FILTERED_STEP = 64 << 10
# Messages requested in addition to the expected number after a filter, so that a part is seldom cut short.
SPARE_MESSAGES = 8


class Part(NamedTuple):
    """The offsets ``[low, high)`` of one pull, which requests at most ``limit`` messages."""

    low: int
    high: int
    limit: int


class PartSize:
    """The length of parts: the number of offsets that one answer of the broker covers, learned from its
    answers.

    Args:
        most: most messages of one pull.
        strict: whether the broker applies no filter, so that a part has as many messages as offsets.
    """

    def __init__(self, most: int, *, strict: bool) -> None:
        self._most = most
        self._strict = strict
        self.step = most if strict else FILTERED_STEP
        self.is_known = False
        # For a filtered queue: messages per offset, and bytes per message.
        self._density = 1.0
        self._mean_bytes = 0.0

    @property
    def limit(self) -> int:
        """The number of messages to request for a part of :attr:`step` offsets."""
        if self._strict:
            return self.step
        if not self.is_known:
            return min(32, self._most)
        return max(1, min(self._most, round(self.step * self._density) + SPARE_MESSAGES))

    def answered(self, part: Part, reached: int, records: int, size_bytes: int) -> None:
        """Learn from an answer with ``records`` messages that ended before offset ``reached``."""
        self.is_known = True
        if self._strict:
            self._learn(part, reached, records, size_bytes)
        elif reached > part.low:
            self._learn_filtered(part, reached, records, size_bytes)

    def _learn(self, part: Part, reached: int, records: int, size_bytes: int) -> None:
        if reached < part.high:
            # The limit in bytes cut the part short: request fewer offsets, so that larger messages do not cut
            # each part.
            self.step = max(1, records * 7 // 8 if 2 * size_bytes > PULL_BYTES else records)
        elif 2 * size_bytes <= PULL_BYTES and part.high - part.low >= self.step:
            # The broker may have more room: after one large message, parts must not keep the length of one.
            self.step = min(2 * self.step, self._most)

    def _learn_filtered(self, part: Part, reached: int, records: int, size_bytes: int) -> None:
        looked_at = reached - part.low
        self._density = (self._density + records / looked_at) / 2
        if records:
            self._mean_bytes = size_bytes / records
        if reached < part.high and records < part.limit and 2 * size_bytes < PULL_BYTES:
            self.step = looked_at  # the broker examines no more offsets at a time
            return
        wanted = PULL_BYTES / 2 / max(self._mean_bytes, 1.0) / max(self._density, 1e-6)
        self.step = max(1, min(round(wanted), 2 * self.step, LONGEST_FILTERED_STEP))


class Cursor:
    """The state of one range: the parts still to be pulled, and records that arrived before their turn.

    Args:
        wanted: the range.
        size: the length of the parts; similar ranges share it.
        strict: whether every offset of the range must arrive, since the broker applies no filter.
    """

    def __init__(self, wanted: QueueRange, size: PartSize, *, strict: bool) -> None:
        self.wanted = wanted
        self.strict = strict
        self._size = size
        self._asked = wanted.low
        # Parts are requested in order: the first one is handed out first, and later ones wait in memory for
        # it.
        self._holes: list[tuple[int, int]] = []
        self._early: dict[int, tuple[Buffer, int, int]] = {}
        self._emitted = wanted.low
        self.settled = 0  # number of offsets that arrived or were given up; grows with all progress
        self.held_bytes = 0  # bytes of records that arrived and were not handed out yet

    @property
    def is_done(self) -> bool:
        """Whether all records were handed out."""
        return self._emitted >= self.wanted.high

    def next_part(self) -> Part | None:
        """The next part to request, or ``None`` if there is none at present.

        Until an answer shows how much the broker sends at a time, only one part is requested.
        """
        if self._holes:
            low, end = self._holes.pop(0)
        elif self._asked < self.wanted.high and (self._size.is_known or self._asked == self.wanted.low):
            low = end = self._asked
        else:
            return None
        limit = self._size.limit
        high = min(low + self._size.step, end if end > low else self.wanted.high)
        if high < end:
            self._holes.insert(0, (high, end))
        self._asked = max(self._asked, high)
        return Part(low, high, min(limit, high - low))

    def retry(self, part: Part) -> None:
        """Request a part again, because its answer was empty or unusable."""
        insort(self._holes, (part.low, part.high))

    def is_next(self, part: Part) -> bool:
        """Whether the records of ``part`` are the next ones, so that they can be handed out at once."""
        return part.low == self._emitted

    def found(self, part: Part, body: Buffer, progress: int) -> tuple[int, int] | None:
        """Store the answer for one part.

        Args:
            part: the requested part.
            body: the records in the answer.
            progress: the broker's next offset; used if it filters.

        Returns:
            For a gap, the expected offset and the offset that arrived instead.

        Raises:
            RecordError: the body is damaged.
        """
        low, high, _ = part
        scan = scan_range(body, low, high, self.strict)
        reached = scan.next_offset
        if not self.strict and scan.found < 0:
            # The broker sent records from after the part, so it has examined all of it.
            reached = high if scan.end_position < len(body) else max(reached, min(progress, high))
        if reached > low:
            self._keep(low, reached, body[: scan.end_position], scan.records)
        if reached < high:
            insort(self._holes, (max(reached, low), high))
        self._size.answered(part, reached, scan.records, scan.end_position)
        return (scan.next_offset, scan.found) if scan.found >= 0 else None

    def skip(self, low: int, to: int) -> None:
        """Give up the offsets from ``low`` up to ``to``; the rest of the gap is still requested."""
        for i, (start, high) in enumerate(self._holes):
            if start == low:
                cut = min(max(to, low + 1), high)
                self._keep(low, cut, b"", 0)
                if cut < high:
                    self._holes[i] = (cut, high)
                else:
                    del self._holes[i]
                return

    def _keep(self, low: int, high: int, body: Buffer, records: int) -> None:
        self.settled += high - low
        self.held_bytes += len(body)
        self._early[low] = (body, high, records)

    def ready(self) -> Iterator[tuple[Buffer, int]]:
        """The records that follow without a gap, in order and each once, with their number."""
        while (entry := self._early.pop(self._emitted, None)) is not None:
            body, self._emitted, records = entry
            self.held_bytes -= len(body)
            if records:
                yield body, records
