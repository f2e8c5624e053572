"""Judges what a broker group keeps of what its master forgets: its slaves may have it, and give it back."""

from __future__ import annotations

from math import inf

from tools.simulation.history import History
from tools.simulation.plan import FORGETS, NAME_SERVERS, Fault, Kind, Plan, group_of

# What was written so long before a machine lost power may not have been synced (flushIntervalCommitLog).
UNSYNCED_S = 2.0
# So long after a fault a slave is surely in sync again.
IN_SYNC_S = 10.0
# So long after it was written a slave that is in sync has it.
COPIED_S = 0.1

# What keeps the brokers of a group from each other.
_PARTS = frozenset(Kind) - {Kind.CLOCK, Kind.CLIENT, Kind.SLOW_LINK, Kind.SLOW_DISK, Kind.RESET}


def may_forget(plan: Plan, history: History, fault: Fault, acked_s: float = inf) -> bool:
    """Whether the mode lets a master forget for good what this fault takes from it.

    Args:
        fault: of a master.
        acked_s: when what it takes was acknowledged; infinity: that is not known.
    """
    if plan.mode.sync_flush and fault.kind is not Kind.LOSE_DISK:
        return False
    two = plan.mode.keeps_two or (plan.mode.quorum and not _alone(plan, fault))
    return not (two and _given_back(plan, history, fault, acked_s))


def unsynced_since_s(plan: Plan, fault: Fault) -> float:
    """From when on what a broker wrote may not have been on its device when this fault came.

    While its process stood still it synced nothing.
    """
    since_s = fault.at_s - UNSYNCED_S
    for other in sorted(plan.faults, key=lambda each: each.at_s, reverse=True):
        stands = other.kind is Kind.FREEZE and other.target == fault.target
        if stands and other.at_s < fault.at_s and since_s < other.end_s:
            since_s -= min(other.end_s, fault.at_s) - other.at_s
    return since_s


def _alone(plan: Plan, fault: Fault) -> bool:
    """Whether no slave may have been in sync before this fault, and its master gone on without them."""
    slaves = plan.mode.slaves(fault.target)
    return all(_disturbed(plan, fault, slave, fault.at_s - IN_SYNC_S, fault.end_s) for slave in slaves)


def _disturbed(plan: Plan, fault: Fault, slave: str, begin_s: float, end_s: float) -> bool:
    """Whether another fault met this slave or its master in this time."""
    return any(
        other is not fault
        and _meets(other, fault.target, slave)
        and other.at_s <= end_s
        and begin_s <= other.end_s
        for other in plan.faults
    )


def _meets(fault: Fault, master: str, slave: str) -> bool:
    """Whether a fault is about one of the two; one between the master and another slave is not."""
    if fault.other and {group_of(name) for name in fault.machines} == {master}:
        return slave in fault.machines
    return bool({master, slave} & set(fault.machines))


def _reaches(fault: Fault, master: str, slave: str) -> bool:
    """Whether a fault is about one of the two, or a name server, which shows them each other."""
    return _meets(fault, master, slave) or fault.target in NAME_SERVERS or fault.other in NAME_SERVERS


def _given_back(plan: Plan, history: History, fault: Fault, acked_s: float) -> bool:
    """Whether the slaves of the group could give back what its master has lost.

    That is on one slave at least, and nobody said on which: so either all of them could, or one that was in
    sync when it was acknowledged, and has it soon, whoever else has it.
    """
    slaves = plan.mode.slaves(fault.target)
    able = [
        slave
        for slave in slaves
        if _gives(plan, history, fault, slave) and not _lost_before(plan, fault, slave, acked_s)
    ]
    return len(able) == len(slaves) or any(
        acked_s + COPIED_S <= fault.at_s
        and not _disturbed(plan, fault, slave, acked_s - IN_SYNC_S, fault.at_s)
        for slave in able
    )


def _gives(plan: Plan, history: History, fault: Fault, slave: str) -> bool:
    """Whether this slave could give back what it has."""
    back_s = history.leads_again_s(fault.target, fault.end_s)
    for other in plan.faults:
        if other is fault:
            continue
        reaches, meets = _reaches(other, fault.target, slave), _meets(other, fault.target, slave)
        if reaches and other.kind in _PARTS and other.at_s <= back_s and other.end_s >= fault.end_s:
            return False
        if meets and other.kind in FORGETS and other.end_s >= unsynced_since_s(plan, fault):
            return False
    return True


def _lost_before(plan: Plan, fault: Fault, slave: str, acked_s: float) -> bool:
    """Whether this slave had lost it before the master lost its disk, and may not have copied it again.

    What loses less than a disk takes from a master nothing that is so old, see :func:`unsynced_since_s`.
    """
    if fault.kind is not Kind.LOSE_DISK or plan.mode.sync_flush:
        return False
    return any(
        other.kind in FORGETS
        and other.target == slave
        and other.at_s < fault.at_s
        and (acked_s == inf or unsynced_since_s(plan, other) <= acked_s <= other.end_s)
        and not _copies_again(plan, fault, slave, other.end_s)
        for other in plan.faults
    )


def _copies_again(plan: Plan, fault: Fault, slave: str, free_s: float) -> bool:
    """Whether nothing comes between master and slave for so long that the slave is surely in sync."""
    for other in sorted(plan.faults, key=lambda each: each.at_s):
        if other is fault or not _reaches(other, fault.target, slave):
            continue
        if free_s + IN_SYNC_S <= min(other.at_s, fault.at_s):
            return True
        free_s = max(free_s, other.end_s)
    return free_s + IN_SYNC_S <= fault.at_s
