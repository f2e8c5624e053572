"""Judges whether a broker group may have forgotten what a slave did that acted for its master.

Its master is told when it is back. With three replicas the slave that acts next asks the one that acted
before it, or is told by it before a clean stop (PO-41); who is killed, frozen or cut off tells nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.broker.role import Role
from tools.simulation.history import History
from tools.simulation.plan import CLIENTS, NAME_SERVERS, Fault, Kind, Plan, group_of

# A look of the watch, and what a log is written before it ends there.
LOOK_S = 0.05
# So long after its cause an answer is there, when nothing is slow.
ANSWER_S = 0.1
# So long a slave asks the other ones.
ASKING_S = 0.3
# So long after a name server began anew, or a broker, all have registered again.
REGISTERED_S = 2.0

# What can end a slave's knowledge of what it delivered (a disk that fails keeps no note of it, and its
# process begins anew), or keep its master from asking it.
_SILENCES = frozenset(
    {
        Kind.KILL,
        Kind.POWER,
        Kind.LOSE_DISK,
        Kind.FAIL_DISK,
        Kind.STOP,
        Kind.FREEZE,
        Kind.CUT,
        Kind.ONE_WAY,
        Kind.ISOLATE,
        Kind.FLAKY_LINK,
    }
)


def forgotten(plan: Plan, history: History, home: str, since_s: float, by_s: float, until_s: float) -> bool:
    """Whether who went on may not have known what an acting slave of a group did first.

    Args:
        since_s, by_s: it was done between these times.
        until_s: the other one had gone on by then.
    """
    silences = [
        fault
        for fault in plan.faults
        if fault.kind in _SILENCES and fault.at_s <= until_s and since_s <= fault.end_s
    ]
    slaves = plan.mode.slaves(home)
    if len(slaves) == 1:
        return any(fault.target in slaves or _between(fault, (home, *slaves)) for fault in silences)
    acted = history.acted(home, since_s, until_s)
    did = history.acted(home, since_s - LOOK_S, by_s)
    stops = [fault for fault in silences if fault.kind is Kind.STOP and fault.target in did]
    if any(
        _is_about(fault, did) or _between(fault, (home, *acted)) for fault in silences if fault not in stops
    ):
        return True
    tells_s = [fault.at_s for fault in stops]
    tells_s += [
        at_s
        for at_s, name, role in history.roles
        if role is Role.ACTING_MASTER and group_of(name) == home and name not in did and since_s <= at_s
    ]
    return any(_untold(plan, home, at_s, stops) for at_s in tells_s if at_s <= until_s)


def _is_about(fault: Fault, machines: Sequence[str]) -> bool:
    """Whether a fault is one of these machines', and not only between them and clients."""
    return bool(set(machines) & set(fault.machines)) and not set(CLIENTS) & set(fault.machines)


def _untold(plan: Plan, home: str, at_s: float, stops: Sequence[Fault]) -> bool:
    """Whether the slaves of a group may not have reached each other then, in the time that they wait.

    Args:
        stops: clean stops of who tells; it does so before it goes.
    """
    machines = (*plan.mode.slaves(home), *NAME_SERVERS)
    return any(
        fault not in stops
        and fault.kind is not Kind.CLOCK
        and _is_about(fault, machines)
        and fault.at_s <= at_s + ASKING_S
        and at_s <= fault.end_s + REGISTERED_S
        for fault in plan.faults
    )


def _between(fault: Fault, brokers: Sequence[str]) -> bool:
    """Whether a fault keeps two of these from each other."""
    if fault.kind is Kind.ISOLATE:
        return fault.target in brokers
    return len(set(brokers) & set(fault.machines)) > 1
