"""The plan of a seed for gRPC clients and their brokers: faults, each with its time. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.testing.machine.simulated import seeded
from tools.simulation.plan import (
    CLIENTS,
    LOAD_S,
    LONGEST_S,
    MOST_STEPS,
    NAME_SERVERS,
    Fault,
    Kind,
    Mode,
    Plan,
    partner,
)

if TYPE_CHECKING:
    from collections.abc import Collection

# Brokers without slaves that flush before they answer: everything answered with OK stays true, so that no
# promise needs an excuse.
MODE: Final = Mode(name_servers=1, quorum=False, sync_flush=True, replicas=1)
# Brokers with a slave each, which has all messages and acts while its master is away. The slave may not know
# the master's last work: such messages are delivered again.
SLAVES: Final = Mode(name_servers=1, quorum=True, sync_flush=True)
# One seed out of this many has slaves.
SLAVES_ONE_IN: Final = 3
KINDS: Final = (
    Kind.KILL,
    Kind.POWER,
    Kind.STOP,
    Kind.FREEZE,
    Kind.CUT,
    Kind.ONE_WAY,
    Kind.ISOLATE,
    Kind.RESET,
    Kind.SLOW_LINK,
    Kind.FLAKY_LINK,
    Kind.CLIENT,
)
MOST_FAULTS: Final = 6
# The share of faults that hit a consumer for so long that its broker may regard it as gone.
LONG: Final = 0.15
LONG_S: Final = 50.0


def make_grpc_plan(seed: int, kinds: Collection[Kind] = KINDS) -> Plan:
    """The plan of a seed; no kinds make a run without faults."""
    dice = seeded(11 * seed + 7)
    mode = SLAVES if seed % SLAVES_ONE_IN == SLAVES_ONE_IN - 1 else MODE
    wanted = [kind for kind in KINDS if kind in kinds]
    faults = []
    for _ in range(dice.randint(1, MOST_FAULTS) if wanted else 0):
        kind = dice.choice(wanted)
        lasts_s = dice.choice((0.3, 2.0, 6.0, LONGEST_S)) * dice.random()
        target, other = dice.choice(mode.brokers if dice.random() < 0.7 else CLIENTS), ""
        if kind in (Kind.KILL, Kind.POWER, Kind.STOP, Kind.FREEZE):
            target = dice.choice(mode.brokers)
        elif kind is Kind.CLIENT:
            target = dice.choice(CLIENTS)
        elif kind in (Kind.CUT, Kind.ONE_WAY):
            target = dice.choice(mode.brokers)
            others = CLIENTS if mode.replicas == 1 else (*CLIENTS, *NAME_SERVERS[:1], partner(target))
            other = dice.choice(others)
            if dice.random() < 0.5:
                target, other = other, target
            if dice.random() < LONG:
                lasts_s = LONG_S * dice.random()
        at_s, steps, detail = dice.random() * LOAD_S, dice.randrange(MOST_STEPS), dice.random()
        faults.append(Fault(at_s, lasts_s, kind, target, other, steps, detail))
    return Plan(seed, mode, tuple(sorted(faults, key=lambda fault: fault.at_s)))
