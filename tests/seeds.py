"""How many seeds a simulation runs."""

from __future__ import annotations

import os


def seeds(count: int) -> range:
    """The seeds of one simulation: ``count`` of them, or ``ORBITMQ_SEEDS`` times as many.

    ``make chaos`` asks for more. The second run of ``make test``, uncompiled, asks for a part: one at least.
    """
    return range(max(1, int(count * float(os.environ.get("ORBITMQ_SEEDS", "1")))))


def seed_blocks(count: int, *, of: int) -> list[range]:
    """The seeds of ``count`` tests, as :func:`seeds` counts, that run ``of`` short ones each."""
    return [range(block * of, (block + 1) * of) for block in seeds(count)]
