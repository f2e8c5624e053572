"""Ranges: parts of queues that are read."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The queue offsets ``[low, high)`` of one queue."""

    queue: MessageQueue
    low: int
    high: int

    @property
    def rows(self) -> int:
        return self.high - self.low
