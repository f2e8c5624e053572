"""Cases that the checkers of the one simulation excuse with three replicas, and cases that they do not."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from tools.simulation.again import transactions, twice
from tools.simulation.checks import may_be_lost
from tools.simulation.forgotten import forgotten
from tools.simulation.history import History, Sent, Stored, Takeover
from tools.simulation.kept import may_forget
from tools.simulation.plan import Fault, Kind, Mode, Plan

from orbitmq.broker.role import Role
from orbitmq.message.model import MessageQueue
from orbitmq.testing.machine.virtual_loop import VirtualClock

MODE = Mode(name_servers=1, quorum=True, sync_flush=False, replicas=3)
ONE, OTHER = "broker-b-1", "broker-b-2"
LOST = Fault(20.0, 3.0, Kind.LOSE_DISK, "broker-b")


def history(*roles: tuple[float, str, Role]) -> History:
    made = History(VirtualClock())
    made.roles = [*roles, (25.0, "broker-b", Role.MASTER)]
    return made


@pytest.mark.parametrize(
    ("fault", "acked_s", "excused"),
    [
        (None, inf, False),
        # The message may be on the unreachable slave, when the other one cannot have it yet.
        (Fault(22.0, 9.0, Kind.ISOLATE, ONE), 19.95, True),
        (Fault(22.0, 9.0, Kind.ISOLATE, ONE), inf, True),
        (Fault(22.0, 9.0, Kind.ISOLATE, ONE), 19.5, False),
        (Fault(19.0, 9.0, Kind.POWER, ONE), 18.0, False),
        (Fault(19.0, 9.0, Kind.CUT, "broker-b", ONE), 18.0, False),
        (Fault(19.0, 9.0, Kind.CUT, "broker-b", "broker-a"), 18.0, True),
        # The fault begins and ends before the master is back.
        (Fault(19.0, 2.0, Kind.ISOLATE, ONE), 19.95, False),
    ],
)
def test_what_a_master_loses_is_given_back_by_a_slave_that_has_it(
    fault: Fault | None, acked_s: float, excused: bool
) -> None:
    faults = (LOST,) if fault is None else (LOST, fault)
    assert may_forget(Plan(1, MODE, faults), history(), LOST, acked_s) == excused


def test_a_slave_that_was_away_lately_may_not_have_what_the_other_one_has() -> None:
    faults = (LOST, Fault(22.0, 9.0, Kind.ISOLATE, ONE), Fault(7.0, 1.0, Kind.FREEZE, OTHER))
    assert may_forget(Plan(1, MODE, faults), history(), LOST, 15.0)
    assert not may_forget(Plan(1, MODE, faults), history(), LOST, 19.0)


@pytest.mark.parametrize("names", [(ONE,), (ONE, OTHER)])
def test_a_quorum_that_goes_on_alone_does_so_without_both_slaves(names: tuple[str, ...]) -> None:
    mode = replace(MODE, need="enableAutoInSyncReplicas")
    frozen = [Fault(15.0, 1.0, Kind.FREEZE, name) for name in names]
    assert may_forget(Plan(1, mode, (*frozen, LOST)), history(), LOST, 19.0) == (len(names) == 2)


@pytest.mark.parametrize(
    ("acked_s", "froze", "excused"),
    [
        (19.0, (), True),
        (17.0, (), False),
        (17.0, ((17.5, 0.4),), False),
        (17.0, ((17.5, 2.0),), True),
        (17.0, ((17.1, 0.8), (18.5, 2.0)), True),
        (17.0, ((12.0, 4.0),), False),
    ],
)
def test_a_master_that_stood_still_has_synced_nothing(
    acked_s: float, froze: tuple[tuple[float, float], ...], *, excused: bool
) -> None:
    """Seed 17458: one slave has lost its disk, the other was away, and their master loses power."""
    power = Fault(20.0, 0.3, Kind.POWER, "broker-b")
    away = (Fault(4.0, 30.0, Kind.KILL, OTHER), Fault(18.0, 9.0, Kind.LOSE_DISK, ONE))
    frozen = [Fault(at_s, lasts_s, Kind.FREEZE, "broker-b") for at_s, lasts_s in froze]
    sent = Sent(
        b"one", "ordered", "ordered", acked_s, acked_s, MessageQueue("ordered", "broker-b", 0), place=500
    )
    made = history()
    made.shorter = [Takeover(25.0, "broker-b", end=0)]
    assert bool(may_be_lost(Plan(1, MODE, (*away, *frozen, power)), made, sent)) == excused


ACTS = (5.0, ONE, Role.ACTING_MASTER)
NEXT = (8.0, OTHER, Role.ACTING_MASTER)
STOPPED = Fault(8.0, 2.0, Kind.STOP, ONE)


@pytest.mark.parametrize(
    ("faults", "excused"),
    [
        ((), False),
        ((STOPPED,), False),
        ((STOPPED, Fault(7.0, 2.0, Kind.SLOW_LINK, OTHER)), True),
        ((STOPPED, Fault(4.0, 1.0, Kind.SLOW_LINK, OTHER)), False),
        ((STOPPED, Fault(7.0, 2.0, Kind.SLOW_LINK, "broker-a")), False),
        ((replace(STOPPED, kind=Kind.KILL),), True),
        ((Fault(7.0, 2.0, Kind.CUT, ONE, "nameserver"),), True),
        ((Fault(7.0, 2.0, Kind.CUT, ONE, "consumers-1"),), False),
        ((Fault(9.0, 0.0, Kind.KILL, OTHER),), False),
        # The fault has to come before that slave acts.
        ((Fault(7.5, 0.3, Kind.NAME_SERVER, "nameserver"),), True),
        ((Fault(4.0, 3.0, Kind.KILL, "broker-b"),), False),
    ],
)
def test_what_one_slave_did_the_next_one_knows(faults: tuple[Fault, ...], excused: bool) -> None:
    """The first slave makes the delivery at 6 s, and the second one repeats it at 9 s."""
    assert forgotten(Plan(1, MODE, faults), history(ACTS, NEXT), "broker-b", 6.0, 6.0, 9.0) == excused


@pytest.mark.parametrize(("kind", "excused"), [(Kind.KILL, True), (Kind.STOP, False)])
def test_the_next_slave_may_hand_a_half_message_on_again(kind: Kind, excused: bool) -> None:
    """The group that took it twice also checks it twice."""
    made = history(ACTS, NEXT)
    sent = made.send(Sent(b"trade-1", "trades", "trade", 1.0, commits=True))
    sent.queue, sent.asked = MessageQueue("trades", "broker-b", 0), [(6.0, "broker-a"), (9.0, "broker-a")]
    made.takeovers = [Takeover(5.0, "broker-b", 550), Takeover(8.0, "broker-b", 550)]
    transactions(Plan(1, MODE, (replace(STOPPED, kind=kind),)), made)
    assert (not made.violations) == excused


def test_when_something_was_written_is_between_two_looks() -> None:
    """The other broker group was idle before the next slave passed the message on again."""
    made = history(ACTS, (8.02, OTHER, Role.ACTING_MASTER))
    made.takeovers = [Takeover(5.0, "broker-b", 550), Takeover(8.02, "broker-b", 550)]
    made.send(Sent(b"delayed-1", "later", "delayed", 1.0, queue=MessageQueue("later", "broker-b", 0)))
    made.stored = {
        "later": [Stored(b"delayed-1", "broker-a", "later", 0, n, 100 * n) for n in (6, 8)],
    }
    made.log_ends = {"broker-a": [(0.0, 0), (5.9, 600), (6.0, 800), (8.04, 900)]}
    assert (made.second_of("broker-a", 800), made.seen_s("broker-a", 800)) == (6.0, 8.04)
    twice(Plan(1, MODE, (Fault(8.0, 2.0, Kind.POWER, ONE),)), made)
    assert not made.violations
    twice(Plan(1, MODE, (Fault(8.5, 2.0, Kind.POWER, ONE),)), made)
    assert made.violations


def test_who_acted_when() -> None:
    made = history(
        ACTS, (7.0, ONE, Role.SLAVE), (8.0, OTHER, Role.ACTING_MASTER), (8.5, "broker-a", Role.MASTER)
    )
    assert made.acted("broker-b", 0.0, 9.0) == (ONE, OTHER)
    assert made.acted("broker-b", 7.5, 9.0) == (OTHER,)
    assert made.acted("broker-b", 6.0, 7.5) == (ONE,)
    assert made.acted("broker-a", 0.0, 9.0) == ()
