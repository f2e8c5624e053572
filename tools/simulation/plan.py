"""The plan of a seed: the mode of the brokers and the faults, each with its time. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from orbitmq.testing.machine.simulated import seeded
from tools.simulation.traffic import draw_absent

if TYPE_CHECKING:
    from random import Random

GROUPS = ("broker-a", "broker-b")
BROKERS = ("broker-a", "broker-a-1", "broker-b", "broker-b-1")
NAME_SERVERS = ("nameserver", "nameserver-1")
CLIENTS = ("producers", "consumers-1", "consumers-2")
OPERATOR = "operator"
# Faults begin within this time after all servers serve; the last one may end a little later.
LOAD_S = 14.0
MOST_FAULTS = 7
LONGEST_S = 10.0
# A fault that meets another one begins at most this long after the other's begin, while the other lasts.
MEETS_S = 4.0
MOST_SKEW_MS = 3000
# The longest time that data on a slow link takes, even if the link recovers meanwhile.
SLOWEST_LINK_S = 0.8
# How far clocks differ from the beginning; in most runs not at all.
APART_MS = (0, 0, 0, 20, 1000)
# With ``rolls``, timers of at least this delay are stored again while they wait: the shortest window has 60
# slots.
ROLLS_S, ROLLS_SLOT_MS = 6.0, 100
# What a quorum does if a slave is not in sync: usually it refuses, otherwise it continues with the master
# alone.
NEEDS = ("", "", "enableAutoInSyncReplicas", "allAckInSyncStateSet")
STRICT_LOCKS = 0.25
EXPIRES, CHANGES, PERMITS = 0.25, 0.25, 0.25
# The share of runs with a quorum and groups of three in which all three brokers have acknowledged messages.
ALL_THREE = 0.3
# The share of runs with a second slave in each group; such runs have up to this many more faults.
THREE_REPLICAS = 1 / 3
MOST_MORE_FAULTS = 3
# The share of client faults that kill the clients.
HARD = 0.6
# A fault begins up to this many steps of the event loop after its time: at any await.
MOST_STEPS = 60


class Kind(Enum):
    """The kinds of faults; the values are the words of ``python -m tools.simulation --faults``."""

    KILL = "kill"  # a process ends at any await; its writes stay
    POWER = "power"  # a machine loses power: unsynced writes are lost or torn
    # a machine loses power and its disk; at most once, and only if a quorum has all messages
    LOSE_DISK = "lose-disk"
    STOP = "stop"  # a clean stop
    FREEZE = "freeze"  # a process freezes, then continues
    CUT = "cut"  # two machines cannot reach each other
    ONE_WAY = "one-way"  # nothing passes from one machine to another
    ISOLATE = "isolate"  # one machine cannot reach any other
    RESET = "reset"  # all connections of a machine are reset
    SLOW_LINK = "slow-link"  # everything that leaves or reaches a machine takes long
    FLAKY_LINK = "flaky-link"  # a slow link whose connections are also reset again and again
    SLOW_DISK = "slow-disk"  # each operation of a disk takes long
    FAIL_DISK = "fail-disk"  # some operations of a disk fail
    CLOCK = "clock"  # the wall clock of a machine steps, and stays wrong or steps back
    NAME_SERVER = "name-server"  # a name server is killed and starts again without its tables
    CLIENT = "client"  # the clients of a machine are killed or closed, and started again


# Kinds of faults that destroy data of a broker.
FORGETS = frozenset({Kind.POWER, Kind.LOSE_DISK, Kind.FAIL_DISK})
# Kinds of faults that other faults are meant to meet: these last longer.
CONDITIONS = frozenset({Kind.SLOW_LINK, Kind.FLAKY_LINK, Kind.SLOW_DISK, Kind.CLOCK})


@dataclass(frozen=True, slots=True)
class Mode:
    """How the brokers of a run are set up.

    Attributes:
        name_servers: one or two.
        quorum: an acknowledged message is on two brokers (SYNC_MASTER, inSyncReplicas=2).
        sync_flush: an acknowledged message is on the master's device (SYNC_FLUSH).
        apart_ms: the largest difference between the wall clocks of two machines from the beginning.
        rolls: timers with a long delay are stored again while they wait (TW-17).
        need: for a quorum, the setting that accepts fewer brokers while fewer are in sync; empty for none.
        strict_locks: more than half of the brokers of a group have to grant a queue lock (LK-05).
        expires: log files are deleted some seconds after they are full, during the run.
        changes: each start of a broker has different values of settings on which no promise depends.
        replicas: number of brokers in each group, two or three.
        permits: an operator removes topics' permissions to read or write, and restores them.
        in_sync: for a quorum, the number of brokers that have an acknowledged message (inSyncReplicas).
        absent: topics without producers, and consumer groups without members.
    """

    name_servers: int
    quorum: bool
    sync_flush: bool
    apart_ms: int = 0
    rolls: bool = False
    need: str = ""
    strict_locks: bool = False
    expires: bool = False
    changes: bool = False
    replicas: int = 2
    permits: bool = False
    in_sync: int = 2
    absent: frozenset[str] = frozenset()

    @property
    def keeps_two(self) -> bool:
        """Whether every acknowledged message is on two brokers in any case."""
        return self.quorum and not self.need

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, each group's master first."""
        return tuple(name for group in GROUPS for name in (group, *self.slaves(group)))

    def slaves(self, group: str) -> tuple[str, ...]:
        """The slaves of a group, by their ids."""
        return tuple(f"{group}-{number}" for number in range(1, self.replicas))

    def __str__(self) -> str:
        flush = "SYNC_FLUSH" if self.sync_flush else "ASYNC_FLUSH"
        copies = f"quorum of {self.in_sync}" if self.quorum else "asynchronous slaves"
        clocks = f", clocks {self.apart_ms} ms apart" if self.apart_ms else ""
        rolls = ", long timers roll" if self.rolls else ""
        servers = f"{self.name_servers} name server{'s'[: self.name_servers - 1]}"
        need = f", {self.need}" if self.need else ""
        locks = ", strict locks" if self.strict_locks else ""
        expires = ", messages expire" if self.expires else ""
        changes = ", settings change at starts" if self.changes else ""
        permits = ", permissions change" if self.permits else ""
        three = ", three replicas" if self.replicas > 2 else ""
        without = f", without {', '.join(sorted(self.absent))}" if self.absent else ""
        more = f"{clocks}{rolls}{locks}{expires}{changes}{permits}{three}{without}"
        return f"{flush}, {copies}{need}, {servers}{more}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at_s: the time of its begin, in seconds after all servers serve.
        lasts_s: the time until the process is started again, or the connection or the disk is restored.
        target: the machine.
        other: the second machine of a cut.
        steps: number of steps of the event loop by which it begins later.
        detail: selects a variant of the fault, 0.0 to 1.0.
    """

    at_s: float
    lasts_s: float
    kind: Kind
    target: str
    other: str = ""
    steps: int = 0
    detail: float = 0.0

    @property
    def end_s(self) -> float:
        return self.at_s + self.lasts_s

    @property
    def machines(self) -> tuple[str, ...]:
        return (self.target, self.other) if self.other else (self.target,)

    @property
    def is_hard(self) -> bool:
        """For a fault of clients: whether they are killed, otherwise they close."""
        return self.detail < HARD

    @property
    def skew_ms(self) -> int:
        """For a fault of a clock: by how much the clock is wrong."""
        return round((self.detail * 2 - 1) * MOST_SKEW_MS)

    def __str__(self) -> str:
        names = " - ".join(self.machines)
        if self.kind is Kind.CLIENT:
            names += " killed" if self.is_hard else " closed"
        if self.kind is Kind.ONE_WAY:
            names = f"{self.target} to {self.other}"
        more = f" by {self.skew_ms:+} ms" if self.kind is Kind.CLOCK else ""
        return f"{self.kind.value} {names}{more} for {self.lasts_s:.2f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run draws from its seed in advance; leaving out faults does not change the rest of
    the run.
    """

    seed: int
    mode: Mode
    faults: tuple[Fault, ...]

    @property
    def wrong_s(self) -> float:
        """The largest possible difference between two clocks."""
        skews = [fault.skew_ms / 1000 for fault in self.faults if fault.kind is Kind.CLOCK]
        return max([0.0, *skews]) - min([0.0, *skews]) + self.mode.apart_ms / 1000

    def only(self, faults: Sequence[Fault]) -> Plan:
        """The same plan with only these of its faults."""
        return Plan(self.seed, self.mode, tuple(faults))


def make_plan(seed: int, kinds: Collection[Kind] = tuple(Kind), mode: Mode | None = None) -> Plan:
    """The plan of a seed.

    Args:
        kinds: the kinds of faults; empty for a run without faults.
        mode: the mode, in place of the seed's.
    """
    dice = seeded(seed)
    drawn = Mode(dice.choice((1, 2)), dice.random() < 0.5, dice.random() < 0.6)
    given, mode = mode, mode or drawn
    wanted = [kind for kind in Kind if kind in kinds]
    count = dice.randint(1, MOST_FAULTS) if wanted else 0
    # Faults that meet matter most: therefore most faults of a plan hit one group, and many begin soon after
    # another.
    focus = dice.choice(GROUPS)
    faults: list[Fault] = []
    for _ in range(count):
        faults.append(_next_fault(dice, mode, wanted, focus, faults))
    first = next((fault for fault in faults if fault.kind is Kind.LOSE_DISK), None)
    if first is not None:
        faults = [fault for fault in faults if fault.kind is not Kind.LOSE_DISK or fault is first]
        mode = replace(mode, quorum=True)
    if given is None:
        # Drawn last, so that each seed keeps its faults when more is drawn.
        mode = replace(mode, apart_ms=dice.choice(APART_MS), rolls=dice.random() < 0.5)
        need, strict_locks = dice.choice(NEEDS), dice.random() < STRICT_LOCKS
        need = need if mode.quorum and first is None else ""
        mode = replace(mode, need=need, strict_locks=strict_locks)
        mode = replace(mode, expires=dice.random() < EXPIRES, changes=dice.random() < CHANGES)
        dice = seeded(~seed)  # a separate source, independent of the other draws
        if dice.random() < THREE_REPLICAS:
            mode = replace(mode, replicas=3)
            more = [kind for kind in wanted if kind is not Kind.LOSE_DISK]
            for _ in range(dice.randint(1, MOST_MORE_FAULTS) if more else 0):
                faults.append(_next_fault(dice, mode, more, focus, faults))
            faults = [_among_three(dice, fault) for fault in faults]
        dice = seeded(7 * seed + 5)
        mode = replace(mode, absent=draw_absent(dice), permits=dice.random() < PERMITS)
        if mode.replicas > 2 and mode.quorum and dice.random() < ALL_THREE:
            mode = replace(mode, in_sync=3)
    return Plan(seed, mode, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _next_fault(dice: Random, mode: Mode, wanted: Sequence[Kind], focus: str, faults: list[Fault]) -> Fault:
    met = dice.choice(faults) if faults and dice.random() < 0.6 else None
    at_s = dice.random() * LOAD_S
    if met is not None:
        at_s = met.at_s + dice.random() * min(MEETS_S, met.lasts_s, LOAD_S - met.at_s)
    return _fault(dice, mode, dice.choice(wanted), at_s, focus)


def _fault(dice: Random, mode: Mode, kind: Kind, at_s: float, focus: str) -> Fault:
    lasts_s = dice.choice((0.3, 2.0, 6.0, LONGEST_S)) * dice.random()
    if kind in CONDITIONS:
        lasts_s = dice.uniform(2.0, LONGEST_S)
    steps, detail = dice.randrange(MOST_STEPS), dice.random()
    servers = NAME_SERVERS[: mode.name_servers]
    pair = (focus, partner(focus))
    target, other = dice.choice(pair if dice.random() < 0.8 else BROKERS), ""
    match kind:
        case Kind.CUT | Kind.ONE_WAY:
            other = dice.choice([name for name in (*BROKERS, *servers, *CLIENTS) if name != target])
            # The two brokers of a group matter most to each other.
            if dice.random() < 0.4:
                other = partner(target)
            if dice.random() < 0.5:
                target, other = other, target
        case Kind.ISOLATE | Kind.RESET | Kind.SLOW_LINK if dice.random() < 0.3:
            target = dice.choice((*servers, *CLIENTS))
        case Kind.NAME_SERVER:
            target = dice.choice(servers)
        case Kind.CLIENT:
            target = dice.choice(CLIENTS)
        case Kind.CLOCK | Kind.FLAKY_LINK:
            target = dice.choice((*BROKERS, *servers, *CLIENTS))
        case _:
            pass
    return Fault(at_s, lasts_s, kind, target, other, steps, detail)


def _among_three(dice: Random, fault: Fault) -> Fault:
    """A fault for groups of two, adapted to groups of three: half of the slaves' faults hit the
    second slave.
    """
    moved = {f"{group}-1": f"{group}-{dice.choice((1, 2))}" for group in GROUPS}
    target, other = (moved.get(name, name) for name in (fault.target, fault.other))
    if other and group_of(target) == group_of(other) and dice.random() < 0.25:
        target, other = (f"{group_of(target)}-{number}" for number in dice.sample((1, 2), 2))
    return replace(fault, target=target, other=other)


def partner(broker: str) -> str:
    """The other broker of a group of two."""
    return broker.removesuffix("-1") if broker.endswith("-1") else f"{broker}-1"


def group_of(broker: str) -> str:
    """The brokerName of a broker, which names its group."""
    return broker.removesuffix("-1").removesuffix("-2")
