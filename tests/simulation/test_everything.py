"""The one simulation with everything: seeds keep every promise, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.seeds import seeds

from orbitmq.broker.messaging.outlet import _InOwnStore
from orbitmq.replication.escape.escape import Escaping
from orbitmq.replication.gate import ReplicaGate
from orbitmq.replication.members.fence import Terms
from orbitmq.replication.replicas import EVERYTHING
from orbitmq.store.raw_append import RawAppend
from orbitmq.testing.simulation.plan import Kind, Mode, make_plan
from orbitmq.testing.simulation.run import Outcome, simulate

QUORUM = Mode(name_servers=1, quorum=True, sync_flush=False)
ASYNC = Mode(name_servers=1, quorum=False, sync_flush=False)
SAFE = Mode(name_servers=1, quorum=False, sync_flush=True)
FEW = 12


def shown(outcome: Outcome) -> str:
    """What a failing test prints: the seed's own words."""
    seed, broken = outcome.plan.seed, "; ".join(map(str, outcome.violations))
    return f"orbitmq simulate --seed {seed}: {broken}"


@pytest.mark.parametrize("seed", seeds(4))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = simulate(make_plan(seed))
    assert not outcome.violations, shown(outcome)
    assert outcome.acknowledged > 50
    assert outcome.delivered > outcome.acknowledged


def test_a_run_repeats_exactly() -> None:
    assert simulate(make_plan(7)) == simulate(make_plan(7))


def test_without_faults_everything_is_acknowledged() -> None:
    outcome = simulate(make_plan(1, ()))
    assert not outcome.violations, shown(outcome)
    assert outcome.acknowledged == outcome.sent


# -- the test of the checkers: each planted bug is found within a few seeds --------------------------------


def found(checkers: Iterable[str], kinds: Iterable[Kind], mode: Mode) -> list[int]:
    """The first of a few seeds in which one of these checkers says something."""
    for seed in range(FEW):
        outcome = simulate(make_plan(seed, tuple(kinds), mode))
        if any(violation.checker in checkers for violation in outcome.violations):
            return [seed]
    return []


def test_an_answer_before_the_replicas_have_the_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ReplicaGate._take

    def early(self: ReplicaGate) -> None:
        take(self)
        self.safe, self.refusal = EVERYTHING, None

    monkeypatch.setattr(ReplicaGate, "_take", early)
    kinds = (Kind.POWER, Kind.SLOW_LINK, Kind.CUT, Kind.FREEZE)
    assert found(["no acknowledged message is lost"], kinds, QUORUM)


def test_progress_before_the_delivery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = property(lambda _self: True)
    monkeypatch.setattr(_InOwnStore, "stored", stored)
    monkeypatch.setattr(Escaping, "stored", stored)
    kinds = (Kind.POWER, Kind.KILL, Kind.SLOW_DISK)
    assert found(["no acknowledged message is lost"], kinds, SAFE)


def test_a_promotion_without_a_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terms, "patience_s", 0.0)
    kinds = (Kind.ISOLATE, Kind.CUT, Kind.FREEZE, Kind.NAME_SERVER)
    assert found(["special services on one member"], kinds, ASYNC)


def test_a_truncation_in_memory_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_memory(self: Any, to: int, end: int) -> None:
        queues = self._queues_behind(to, end)
        for slot, offset in queues.items():
            self._queues.truncate(slot, offset)
        self._log.cut(to)
        self._flusher.begin(to)

    monkeypatch.setattr(RawAppend, "_cut", in_memory)
    kinds = (Kind.POWER, Kind.KILL)
    checkers = ["the slave's log is the master's", "everything recovers", "nothing crashes"]
    assert found(checkers, kinds, ASYNC)
