"""Counts and times of a task's sends, which the driver adds up and writes into the commit file. Does
no I/O.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SendMetrics:
    """Counts of one task, or of several.

    Attributes:
        rows: number of messages that brokers accepted.
        size_bytes: bytes of their batch items.
        retries: number of requests that were sent again.
        late_flushes: number of answers for stored messages whose flush or replication was late.
        times: for each ``n``, the number of requests that took about ``1.2 ** n - 1`` milliseconds.
    """

    rows: int = 0
    size_bytes: int = 0
    retries: int = 0
    late_flushes: int = 0
    times: Counter[int] = field(default_factory=Counter)

    def took(self, milliseconds: float) -> None:
        """Count an answered request."""
        self.times[round(math.log(milliseconds + 1, 1.2))] += 1

    def p99_ms(self) -> float:
        """The 99th percentile of the request times, to about a tenth."""
        left = self.times.total() * 0.01
        for bucket in sorted(self.times, reverse=True):
            left -= self.times[bucket]
            if left < 0:
                return round(1.2**bucket - 1, 1)
        return 0.0

    def facts(self) -> dict[str, Any]:
        """The form in the commit file."""
        return {
            "sent": self.rows,
            "bytes": self.size_bytes,
            "retries": self.retries,
            "lateFlushes": self.late_flushes,
            "p99Ms": self.p99_ms(),
        }


def added_up(parts: Iterable[SendMetrics]) -> SendMetrics:
    """The sum of all parts."""
    total = SendMetrics()
    for part in parts:
        total.rows += part.rows
        total.size_bytes += part.size_bytes
        total.retries += part.retries
        total.late_flushes += part.late_flushes
        total.times += part.times
    return total
