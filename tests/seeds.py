"""How many seeds a simulation runs."""

from __future__ import annotations

import os


def seeds(count: int) -> range:
    """The seeds of one simulation: ``count`` of them, or ``ORBITMQ_SEEDS`` times as many (``make chaos``)."""
    return range(count * int(os.environ.get("ORBITMQ_SEEDS", "1")))
