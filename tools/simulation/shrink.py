"""Finds the faults of a failing run that matter. No I/O except the runs."""

from __future__ import annotations

from collections.abc import Callable

from tools.simulation.plan import Plan


def smallest(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A plan that still fails, of which no single fault can be left out.

    Halves are left out first, then smaller pieces: a run takes a second.

    Args:
        plan: a plan that fails.
        fails: runs a plan; returns whether it fails.
    """
    piece = max(1, len(plan.faults) // 2)
    while True:
        smaller = _without_a_piece(plan, piece, fails)
        if smaller is not None:
            plan = smaller
            piece = max(1, min(piece, len(plan.faults) // 2))
        elif piece > 1:
            piece //= 2
        else:
            return plan


def _without_a_piece(plan: Plan, piece: int, fails: Callable[[Plan], bool]) -> Plan | None:
    for at in range(0, len(plan.faults), piece):
        smaller = plan.only(plan.faults[:at] + plan.faults[at + piece :])
        if fails(smaller):
            return smaller
    return None
