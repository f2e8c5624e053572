"""Judges which data of a broker group survives a loss at its master: slaves may have it, and give it back."""

from __future__ import annotations

from math import inf

from tools.simulation.history import History
from tools.simulation.plan import FORGETS, NAME_SERVERS, Fault, Kind, Plan, group_of

# Data written this long before a loss of power may not have been synced (flushIntervalCommitLog).
UNSYNCED_S = 2.0
# This long after a fault a slave is in sync again.
IN_SYNC_S = 10.0
# This long after a record was written, a slave in sync has it.
COPIED_S = 0.1

# The kinds of faults that separate the brokers of a group.
_PARTS = frozenset(Kind) - {Kind.CLOCK, Kind.CLIENT, Kind.SLOW_LINK, Kind.SLOW_DISK, Kind.RESET}


def may_forget(plan: Plan, history: History, fault: Fault, acked_s: float = inf) -> bool:
    """Whether, by its mode, a master may permanently lose the data that this fault destroys.

    Args:
        fault: a fault of a master.
        acked_s: the time at which the data was acknowledged; infinity if it is not known.
    """
    if plan.mode.sync_flush and fault.kind is not Kind.LOSE_DISK:
        return False
    two = plan.mode.keeps_two or (plan.mode.quorum and not _alone(plan, fault))
    return not (two and _given_back(plan, history, fault, acked_s))


def unsynced_since_s(plan: Plan, fault: Fault) -> float:
    """The time from which a broker's writes may not have been on its device when this fault began.

    A frozen process syncs nothing.
    """
    since_s = fault.at_s - UNSYNCED_S
    for other in sorted(plan.faults, key=lambda each: each.at_s, reverse=True):
        stands = other.kind is Kind.FREEZE and other.target == fault.target
        if stands and other.at_s < fault.at_s and since_s < other.end_s:
            since_s -= min(other.end_s, fault.at_s) - other.at_s
    return since_s


def _alone(plan: Plan, fault: Fault) -> bool:
    """Whether possibly no slave was in sync before this fault, and the master went on without slaves."""
    slaves = plan.mode.slaves(fault.target)
    return all(_disturbed(plan, fault, slave, fault.at_s - IN_SYNC_S, fault.end_s) for slave in slaves)


def _disturbed(plan: Plan, fault: Fault, slave: str, begin_s: float, end_s: float) -> bool:
    """Whether another fault hit this slave or its master in this time."""
    return any(
        other is not fault
        and _meets(other, fault.target, slave)
        and other.at_s <= end_s
        and begin_s <= other.end_s
        for other in plan.faults
    )


def _meets(fault: Fault, master: str, slave: str) -> bool:
    """Whether a fault concerns one of the two; a fault between the master and another slave does not."""
    if fault.other and {group_of(name) for name in fault.machines} == {master}:
        return slave in fault.machines
    return bool({master, slave} & set(fault.machines))


def _reaches(fault: Fault, master: str, slave: str) -> bool:
    """Whether a fault concerns one of the two, or a name server, through which they find each other."""
    return _meets(fault, master, slave) or fault.target in NAME_SERVERS or fault.other in NAME_SERVERS


def _given_back(plan: Plan, history: History, fault: Fault, acked_s: float) -> bool:
    """Whether the slaves of the group could give back the data that its master lost.

    The data is on at least one slave, but it is unknown on which. So either all slaves could give it back, or
    one that was in sync at the acknowledgement could, which has the data soon in any case.
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
    """Whether this slave could give back its data."""
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
    """Whether this slave had lost the data before the master lost its disk, and may not have copied it again.

    Only the loss of a disk destroys data that is this old, see :func:`unsynced_since_s`.
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
    """Whether master and slave are undisturbed for long enough to bring the slave in sync."""
    for other in sorted(plan.faults, key=lambda each: each.at_s):
        if other is fault or not _reaches(other, fault.target, slave):
            continue
        if free_s + IN_SYNC_S <= min(other.at_s, fault.at_s):
            return True
        free_s = max(free_s, other.end_s)
    return free_s + IN_SYNC_S <= fault.at_s
