"""The one simulation with three replicas in each group: a planted bug of each kind is found there too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tools.simulation.plan import Fault, Kind, Mode, Plan
from tools.simulation.run import simulate

from orbitmq.replication.gate import ReplicaGate
from orbitmq.replication.members.other_slaves import OtherSlaves
from orbitmq.replication.members.pre_online import PreOnlinePlan, Task
from orbitmq.replication.members.view import MemberViews
from orbitmq.replication.replicas import EVERYTHING

SAFE = Mode(name_servers=1, quorum=False, sync_flush=True, replicas=3)
QUORUM = replace(SAFE, quorum=True, sync_flush=False)

MASTER_IS_AWAY = Fault(3.0, 9.0, Kind.KILL, "broker-a")
# What is sent between the two is on the master and the second slave only.
APART = Fault(3.0, 3.0, Kind.CUT, "broker-a", "broker-a-1")
DISK_IS_LOST = Fault(5.5, 1.5, Kind.LOSE_DISK, "broker-a")


def found(mode: Mode, *faults: Fault) -> set[str]:
    """The checkers that say something about a run with these faults."""
    return {violation.checker for violation in simulate(Plan(1, mode, faults)).violations}


@pytest.fixture
def acting_slave_is_stopped() -> tuple[Fault, ...]:
    """The first slave acts, the second one after it; then the master is back."""
    return MASTER_IS_AWAY, Fault(7.0, 1.5, Kind.STOP, "broker-a-1")


@pytest.fixture
def acting_slave_is_cut_off() -> tuple[Fault, ...]:
    """Out of the routes at once, while its right to lead lasts."""
    return (
        MASTER_IS_AWAY,
        Fault(5.0, 4.0, Kind.ISOLATE, "broker-a-1"),
        Fault(5.01, 0.0, Kind.RESET, "broker-a-1"),
    )


@pytest.mark.parametrize("mode", [SAFE, QUORUM], ids=str)
def test_with_three_replicas_every_promise_is_kept(
    mode: Mode, acting_slave_is_stopped: tuple[Fault, ...], acting_slave_is_cut_off: tuple[Fault, ...]
) -> None:
    assert found(mode, *acting_slave_is_stopped) == set()
    assert found(mode, *acting_slave_is_cut_off) == set()


def test_a_disk_that_is_lost_behind_a_slave_that_lacks_something_loses_nothing() -> None:
    assert found(QUORUM, APART, DISK_IS_LOST) == set()


def test_a_master_that_asks_one_slave_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = PreOnlinePlan.next

    def one_only(self: PreOnlinePlan, members: Mapping[int, str] | None) -> Task:
        return visit(self, members and {number: at for number, at in members.items() if number != 2})

    monkeypatch.setattr(PreOnlinePlan, "next", one_only)
    assert "no acknowledged message is lost" in found(QUORUM, APART, DISK_IS_LOST)


def test_an_answer_before_a_slave_has_the_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ReplicaGate._take

    def early(self: ReplicaGate) -> None:
        take(self)
        self.safe, self.refusal = EVERYTHING, None

    monkeypatch.setattr(ReplicaGate, "_take", early)
    apart = [Fault(5.0, 1.5, Kind.CUT, "broker-a", f"broker-a-{number}") for number in (1, 2)]
    assert "no acknowledged message is lost" in found(QUORUM, *apart, Fault(6.0, 1.0, Kind.POWER, "broker-a"))


def test_two_slaves_that_act_at_once_are_found(
    monkeypatch: pytest.MonkeyPatch, acting_slave_is_cut_off: tuple[Fault, ...]
) -> None:
    monkeypatch.setattr(MemberViews, "stand_ins", lambda _self, _now_s: [])
    assert "special services on one member" in found(SAFE, *acting_slave_is_cut_off)


def test_a_slave_that_repeats_what_another_one_did_is_found(
    monkeypatch: pytest.MonkeyPatch, acting_slave_is_stopped: tuple[Fault, ...]
) -> None:
    async def nothing(_self: OtherSlaves, _members: Mapping[int, str]) -> None:
        pass

    monkeypatch.setattr(OtherSlaves, "ask", nothing)
    monkeypatch.setattr(OtherSlaves, "go", nothing)
    assert "nothing is stored twice" in found(SAFE, *acting_slave_is_stopped)
