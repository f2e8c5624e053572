"""The rows of `make bench-spark`: each is a pure function of its number, so that every system holds the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

QUEUES = 8
PROPERTIES = ("kind", "shard", "trace")


@dataclass(frozen=True)
class Rows:
    """A number of rows with bodies of this size, in a topic with this many queues."""

    count: int
    body: int
    queues: int = QUEUES
    name: str = "rows"

    @property
    def topic(self) -> str:
        return f"{self.name}-{self.body}-{self.queues}"

    @property
    def title(self) -> str:
        size = f"{self.body // 1024} KiB" if self.body >= 1024 else f"{self.body} B"
        return f"{self.count:,} x {size}"


def bodies(first: int, count: int, size: int) -> Iterator[bytes]:
    """Bodies that cannot be compressed."""
    words = -(-size // 8)
    with np.errstate(over="ignore"):
        places = np.arange(first * words, (first + count) * words, dtype=np.uint64)
        mixed = places * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        data = (mixed ^ (mixed >> np.uint64(31))).tobytes()
    step = words * 8
    return (data[at : at + size] for at in range(0, count * step, step))


def key(number: int) -> str:
    """The key of a row: 16 characters."""
    return f"{number:016x}"


def properties(number: int) -> tuple[str, str, str]:
    """The values of :data:`PROPERTIES` for a row."""
    return str(number % 16), str(number % 97), f"{number * 2654435761 % (1 << 32):08x}"
