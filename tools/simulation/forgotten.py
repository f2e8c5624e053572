"""Judges whether a broker group may have forgotten the work of an acting slave.

The slave tells its master about its work when the master is back. With three replicas the slave that acts
next asks the slave that acted before, or is told before a clean stop (PO-41). A slave that is killed, frozen
or cut off can tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.broker.role import Role
from tools.simulation.history import History
from tools.simulation.plan import CLIENTS, NAME_SERVERS, Fault, Kind, Plan, group_of

# The interval of the watch's looks, and of the writes before a log ends.
LOOK_S = 0.05
# The longest time until an answer, if no fault slows it down.
ANSWER_S = 0.1
# How long a slave asks the other slaves.
ASKING_S = 0.3
# The time after which all brokers have registered again, counted from the restart of a name server or broker.
REGISTERED_S = 2.0

# The kinds of faults that can destroy a slave's knowledge of its deliveries, or keep its master from
# requesting it. A failing disk stores no record of them, and its process is restarted.
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
    """Whether the broker that continued a group's work may not have known an acting slave's earlier work.

    Args:
        since_s, by_s: the acting slave did its work between these times.
        until_s: the other broker had continued by this time.
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
    """Whether a fault concerns one of these machines, and not only their connections to clients."""
    return bool(set(machines) & set(fault.machines)) and not set(CLIENTS) & set(fault.machines)


def _untold(plan: Plan, home: str, at_s: float, stops: Sequence[Fault]) -> bool:
    """Whether the slaves of a group may have been unable to reach each other at this time, for as long as
    they wait.

    Args:
        stops: clean stops of the telling slave, which tells the others before it stops.
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
    """Whether a fault separates two of these brokers."""
    if fault.kind is Kind.ISOLATE:
        return fault.target in brokers
    return len(set(brokers) & set(fault.machines)) > 1
