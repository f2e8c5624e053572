"""The one simulation with everything: seeds keep every promise, and planted bugs are found."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.seeds import seeds
from tools.simulation import site
from tools.simulation.plan import GROUPS, Fault, Kind, Mode, Plan, make_plan
from tools.simulation.run import Outcome, simulate
from tools.simulation.traffic import ORDERED_GROUP
from tools.simulation.watch import SPECIAL

from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.in_flight import InFlight
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.timers.pending import PendingTimers
from orbitmq.message.reserved import PERM_READ, PERM_WRITE
from orbitmq.replication.gate import ReplicaGate
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.queue_locks import ReplicatedLocks
from orbitmq.replication.replicas import EVERYTHING
from orbitmq.store import MessageStore, NewMessage, PutStatus
from orbitmq.store.log import commit_log
from orbitmq.store.upkeep.background import Upkeep
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.errors import RemotingError

QUORUM = Mode(name_servers=1, quorum=True, sync_flush=False)
ASYNC = Mode(name_servers=1, quorum=False, sync_flush=False)
SAFE = Mode(name_servers=1, quorum=False, sync_flush=True)
EXPIRING = replace(SAFE, expires=True)

# One consumer and the producers reach the master only, the other consumer all else; locks live 60 s.
LONG_CUT = [
    Fault(3.0, 90.0, Kind.CUT, one, other)
    for one in ("broker-a", "consumers-1", "producers")
    for other in ("nameserver", "broker-a-1", "broker-b", "broker-b-1", "consumers-2")
]
# The brokers that it does not reach see at once that the first consumer is gone.
LONG_CUT.append(Fault(3.1, 0.0, Kind.RESET, "consumers-1"))


def shown(outcome: Outcome) -> str:
    """What a failing test prints: the seed's own words."""
    seed, broken = outcome.plan.seed, "; ".join(map(str, outcome.violations))
    return f"python -m tools.simulation --seed {seed}: {broken}"


@pytest.mark.parametrize("seed", seeds(2))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = simulate(make_plan(seed))
    assert not outcome.violations, shown(outcome)
    assert outcome.acknowledged > 50
    assert outcome.delivered > outcome.acknowledged


def test_a_run_with_faults_repeats_exactly() -> None:
    plan = make_plan(4)
    assert simulate(plan) == simulate(plan)


def test_a_run_repeats_exactly_and_without_faults_all_is_acknowledged() -> None:
    outcome = simulate(make_plan(7, ()))
    assert not outcome.violations, shown(outcome)
    assert outcome.acknowledged == outcome.sent
    assert simulate(make_plan(7, ())) == outcome


def test_a_disk_that_fails_can_be_lost() -> None:
    fails = Fault(1.0, 6.0, Kind.FAIL_DISK, "broker-a", detail=0.99)
    assert found(QUORUM, fails, Fault(2.0, 1.0, Kind.LOSE_DISK, "broker-a")) == set()


# -- the test of the checkers: a planted bug of each kind is found ------------------------------------------


def found(mode: Mode, *faults: Fault) -> set[str]:
    """The checkers that say something about a run with these faults."""
    return {violation.checker for violation in simulate(Plan(1, mode, faults)).violations}


def test_an_answer_before_the_replicas_have_the_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ReplicaGate._take

    def early(self: ReplicaGate) -> None:
        take(self)
        self.safe, self.refusal = EVERYTHING, None

    monkeypatch.setattr(ReplicaGate, "_take", early)
    slow = Fault(2.0, 6.0, Kind.SLOW_LINK, "broker-a-1", detail=1.0)
    lost = Fault(6.0, 1.0, Kind.POWER, "broker-a")
    assert "no acknowledged message is lost" in found(QUORUM, slow, lost)


class Promised:
    """A message that was handed over counts as stored at once (see ``PendingDelivery``)."""

    end = 0
    stored = True

    async def settled(self) -> PutStatus:
        return PutStatus.OK


def test_progress_before_the_delivery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = DeliverySink.hand

    def later(self: DeliverySink, message: NewMessage, properties: Mapping[str, str]) -> PendingDelivery:
        asyncio.get_running_loop().call_later(2.0, put, self, message, properties)
        return Promised()

    def put(sink: DeliverySink, message: NewMessage, properties: Mapping[str, str]) -> None:
        with suppress(RemotingError):
            hand(sink, message, properties)

    monkeypatch.setattr(DeliverySink, "hand", later)
    killed = Fault(8.0, 4.0, Kind.KILL, "broker-a")
    assert "no acknowledged message is lost" in found(SAFE, killed)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delivery is handed over twice."""
    hand = DeliverySink.hand

    def again(self: DeliverySink, message: NewMessage, properties: Mapping[str, str]) -> PendingDelivery:
        hand(self, message, properties)
        return hand(self, message, properties)

    monkeypatch.setattr(DeliverySink, "hand", again)


@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize(
    "fault",
    [Fault(4.0, 0.3, Kind.RESET, "broker-b"), Fault(4.0, 2.0, Kind.KILL, "broker-b")],
    ids=lambda fault: str(fault.kind.value),
)
def test_what_is_delivered_twice_is_found_in_spite_of_a_fault(fault: Fault) -> None:
    """Also at the group with the fault, which may not do so either."""
    outcome = simulate(Plan(1, SAFE, (fault,)))
    again = [str(one) for one in outcome.violations if one.checker == "nothing is stored twice"]
    assert all(any(f"{group}:" in text for text in again) for group in GROUPS)


def test_a_timer_that_comes_though_it_was_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingTimers, "is_recalled", lambda _self, _timer: False)
    assert found(SAFE) == {"what is recalled does not come"}


def test_a_promotion_without_a_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timing, "patience_s", 0.0)
    alone = Fault(3.0, 6.0, Kind.ISOLATE, "broker-a")
    reset = Fault(4.0, 0.0, Kind.RESET, "broker-a")
    broken = simulate(Plan(1, SAFE, (alone, reset))).violations
    (said,) = (each for each in broken if each.checker == "special services on one member")
    assert [part for part in SPECIAL if part not in said.text] == []


def test_an_offset_that_goes_back_for_a_moment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end all is committed again."""
    keep, calls = ConsumerOffsets.keep, 0

    def forgets(self: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int) -> None:
        nonlocal calls
        calls += group == ORDERED_GROUP
        back = 2 if group == ORDERED_GROUP and calls % 20 == 0 else 0
        keep(self, group, topic, queue_id, max(0, offset - back))

    monkeypatch.setattr(ConsumerOffsets, "keep", forgets)
    said = simulate(Plan(1, SAFE, ())).violations
    assert {violation.checker for violation in said} == {"offsets never go back"}
    assert all("while it leads" in violation.text for violation in said)


def test_a_truncation_in_memory_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "wipe", lambda *_: None)
    monkeypatch.setattr(Upkeep, "lower", lambda *_: None)
    lost = Fault(5.0, 1.0, Kind.POWER, "broker-a")

    # The slave cuts its log when the network is whole again; milliseconds later new bytes stand in the same
    # place on the device. The checker looks five times a second.
    def lost_again(lasts_s: float) -> set[str]:
        apart = Fault(5.01, lasts_s, Kind.CUT, "broker-a", "broker-a-1")
        return found(ASYNC, lost, apart, Fault(apart.end_s + 0.01, 1.0, Kind.POWER, "broker-a-1"))

    assert any("the slave's log is the master's" in lost_again(14.0 + 0.03 * step) for step in range(20))


def test_a_lock_that_is_granted_without_the_right_to_lead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicatedLocks, "_check_decides", lambda _self: None)
    assert "one holder of a queue lock" in found(SAFE, *LONG_CUT)


@pytest.mark.behaviour("LK-12")
def test_in_a_long_cut_a_queue_has_one_holder() -> None:
    # A transaction is asked for more often than the faults of a seed last.
    assert found(SAFE, *LONG_CUT) <= {"everything is bounded"}


def test_a_reset_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerOffsets, "reset", lambda *_: None)
    assert found(SAFE) == {"a reset is done once"}


def test_a_reset_that_is_told_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take, told = ConsumerOffsets.take_reset, set[tuple[str, int, int]]()

    def again(self: ConsumerOffsets, group: str, topic: str, queue_id: int) -> int | None:
        offset = take(self, group, topic, queue_id)
        if offset is not None and (topic, queue_id, offset) not in told:
            told.add((topic, queue_id, offset))
            asyncio.get_running_loop().call_later(3.0, self._pend, group, topic, queue_id, offset)
        return offset

    monkeypatch.setattr(ConsumerOffsets, "take_reset", again)
    assert found(SAFE) == {"a reset is done once"}


def test_a_setting_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubscriptionGroups, "update", lambda *_: None)
    assert found(SAFE) == {"settings are kept"}


def test_permissions_that_are_forgotten_are_found_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    update, forgotten = TopicConfigs.update, set[str]()

    def forgets(self: TopicConfigs, config: TopicConfig) -> None:
        known = self.get(config.topic_name)
        gives_back = known is not None and known.perm != config.perm == PERM_READ | PERM_WRITE
        if gives_back and config.topic_name not in forgotten:
            forgotten.add(config.topic_name)
        else:
            update(self, config)

    monkeypatch.setattr(TopicConfigs, "update", forgets)
    assert found(replace(SAFE, permits=True)) == {"settings are kept"}


def test_messages_that_come_back_with_their_topic_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageStore, "drop_topic", lambda *_: None)
    assert "what is deleted does not come back" in found(SAFE)


def test_a_queue_that_is_dealt_out_while_something_is_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderedPops, "blocked_until", lambda *_: None)
    assert "order in each queue" in found(SAFE)


def test_an_acknowledgement_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "acknowledge", lambda _self, _queue, _receipt, offsets: set(offsets))
    assert "what is done does not come again" in found(SAFE)


def test_messages_that_expire_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "RESERVED_S", 1.0)
    away = [Fault(6.0, 5.0, Kind.CLIENT, name) for name in ("consumers-1", "consumers-2")]
    assert "no acknowledged message is lost" in found(EXPIRING, *away)
