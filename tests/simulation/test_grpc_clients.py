"""gRPC clients through faults: seeds keep every promise, and planted bugs are found."""

from __future__ import annotations

import pytest
from tests.seeds import seeds
from tools.simulation.grpc_plan import MODE, SLAVES, make_grpc_plan
from tools.simulation.grpc_run import simulate_grpc
from tools.simulation.plan import Fault, Kind, Mode, Plan

from orbitmq.broker.pop.in_flight import InFlight
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.gateway import incoming, schema, transactions
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.held import HeldMessages
from orbitmq.gateway.peer import GrpcPeer
from orbitmq.gateway.schema import TransactionResolution
from orbitmq.message import sysflag

KILLED = Fault(4.0, 1.0, Kind.KILL, "broker-a")


# The last of three seeds has slaves.
@pytest.mark.parametrize("seed", seeds(3))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = simulate_grpc(make_grpc_plan(seed))
    broken = "; ".join(map(str, outcome.violations))
    assert not outcome.violations, f"python -m tools.simulation --grpc --seed {seed}: {broken}"
    assert outcome.acknowledged > 50
    assert outcome.delivered > outcome.acknowledged


def test_a_run_repeats_exactly() -> None:
    assert simulate_grpc(make_grpc_plan(3)) == simulate_grpc(make_grpc_plan(3))


# -- the test of the checkers: a planted bug of each kind is found -----------------------------------------


def found(*faults: Fault, mode: Mode = MODE) -> set[str]:
    """The checkers that say something about a run with these faults."""
    return {violation.checker for violation in simulate_grpc(Plan(1, mode, faults)).violations}


def test_an_acknowledgement_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "acknowledge", lambda _self, _queue, _receipt, offsets: set(offsets))
    assert "what is done does not come again" in found(KILLED)


def test_a_takeover_long_before_excuses_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Fault(0.5, 0.5, Kind.KILL, "broker-a")
    assert not found(early, mode=SLAVES)
    monkeypatch.setattr(InFlight, "acknowledge", lambda _self, _queue, _receipt, offsets: set(offsets))
    assert "what is done does not come again" in found(early, mode=SLAVES)


def test_a_roll_back_that_commits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(transactions._STATES, TransactionResolution.ROLLBACK, sysflag.TRANSACTION_COMMIT)
    assert "each half message ends once" in found()


def test_a_delayed_message_that_comes_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    in_order = incoming._deliver_at

    def early(system: schema.SystemProperties, now_ms: int, max_delay_ms: int) -> str:
        return in_order(system, now_ms, max_delay_ms) and str(now_ms + 100)

    monkeypatch.setattr(incoming, "_deliver_at", early)
    assert "no delayed message early" in found()


def test_a_queue_in_order_that_is_never_blocked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderedPops, "blocked_until", lambda *_: None)
    assert "order in each queue" in found()


def test_what_stays_with_a_dead_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrpcPeer, "is_gone", lambda *_: False)
    assert "nothing is left behind" in found(Fault(4.0, 8.0, Kind.CLIENT, "consumers-1"))


def test_messages_that_are_not_given_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldMessages, "give_back", lambda *_: None)
    hard = [Fault(2.0 + at, 0.5, Kind.CLIENT, f"consumers-{1 + at % 2}") for at in range(8)]
    assert "nothing stays with a dead client" in found(*hard)


def test_a_client_that_is_not_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrpcClients, "leave", lambda *_: None)
    assert "nothing is left behind" in found()
