"""Plans of the one simulation: the faults of a seed, and the faults that matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.simulation.plan import (
    APART_MS,
    BROKERS,
    LONGEST_S,
    MOST_MORE_FAULTS,
    NEEDS,
    Kind,
    Mode,
    Plan,
    make_plan,
)
from tools.simulation.shrink import smallest

THIRD = {"broker-a-2", "broker-b-2"}


def test_a_seed_makes_one_plan() -> None:
    plans = [make_plan(seed) for seed in range(50)]
    assert plans == [make_plan(seed) for seed in range(50)]
    assert len({(plan.mode.name_servers, plan.mode.quorum, plan.mode.sync_flush) for plan in plans}) == 8
    assert {plan.mode.apart_ms for plan in plans} == set(APART_MS)
    assert {plan.mode.need for plan in plans} == set(NEEDS)
    assert all(plan.mode.quorum for plan in plans if plan.mode.need)
    assert len({(plan.mode.rolls, plan.mode.strict_locks) for plan in plans}) == 4
    assert len({(plan.mode.expires, plan.mode.changes) for plan in plans}) == 4
    assert {fault.kind for plan in plans for fault in plan.faults} == set(Kind)
    for plan in plans:
        assert 1 <= len(plan.faults) <= 7 + (plan.mode.replicas > 2) * MOST_MORE_FAULTS
        assert list(plan.faults) == sorted(plan.faults, key=lambda fault: fault.at_s)
        for fault in plan.faults:
            assert 0 <= fault.at_s < 20
            assert 0 <= fault.lasts_s <= LONGEST_S
            assert fault.other != fault.target
            assert not set(fault.machines) & THIRD or plan.mode.replicas == 3
            assert "nameserver-1" not in fault.machines or plan.mode.name_servers == 2


def test_groups_of_three_meet_faults_of_their_own() -> None:
    plans = [plan for plan in map(make_plan, range(150)) if plan.mode.replicas == 3]
    assert 30 < len(plans) < 70
    faults = [fault for plan in plans for fault in plan.faults]
    assert {name for fault in faults for name in fault.machines} >= {*BROKERS, *THIRD}
    assert {fault.kind for fault in faults if fault.target in THIRD} >= {Kind.LOSE_DISK, Kind.CUT, Kind.KILL}
    assert any({"broker-a-1", "broker-a-2"} == set(fault.machines) for fault in faults)


@pytest.mark.parametrize("kind", Kind)
def test_only_the_kinds_asked_for(kind: Kind) -> None:
    faults = [fault for seed in range(20) for fault in make_plan(seed, [kind]).faults]
    assert {fault.kind for fault in faults} == {kind}
    assert all(str(fault).startswith(kind.value) for fault in faults)


def test_without_kinds_there_are_no_faults() -> None:
    assert make_plan(3, ()).faults == ()


@given(st.integers(0, 500), st.data())
def test_what_does_not_matter_is_left_out(seed: int, data: st.DataObject) -> None:
    plan = make_plan(seed)
    matter = set(data.draw(st.lists(st.sampled_from(plan.faults), min_size=1, unique=True)))
    runs = 0

    def fails(smaller: Plan) -> bool:
        nonlocal runs
        runs += 1
        return matter <= set(smaller.faults)

    found = smallest(plan, fails)
    assert set(found.faults) == matter
    assert (found.seed, found.mode) == (plan.seed, plan.mode)
    assert runs <= 60


def test_a_plan_that_fails_without_faults_has_none_left() -> None:
    assert smallest(make_plan(5), lambda _: True).faults == ()


def test_a_mode_can_be_given() -> None:
    mode = Mode(name_servers=1, quorum=True, sync_flush=True)
    assert make_plan(9, mode=mode).mode == mode
    assert str(mode) == "SYNC_FLUSH, quorum of 2, 1 name server"
    assert mode.brokers == BROKERS
    three = replace(mode, replicas=3)
    assert three.brokers[:3] == ("broker-a", *three.slaves("broker-a")) == (*BROKERS[:2], "broker-a-2")
    assert str(three) == "SYNC_FLUSH, quorum of 2, 1 name server, three replicas"
    degrading = replace(mode, need="enableAutoInSyncReplicas", strict_locks=True)
    assert str(degrading) == "SYNC_FLUSH, quorum of 2, enableAutoInSyncReplicas, 1 name server, strict locks"


def test_who_loses_its_disk_keeps_a_quorum_whatever_happens() -> None:
    plans = [make_plan(seed) for seed in range(200)]
    lose = [plan for plan in plans if any(fault.kind is Kind.LOSE_DISK for fault in plan.faults)]
    assert lose
    assert all(plan.mode.keeps_two for plan in lose)
