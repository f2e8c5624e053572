"""The checkers find bugs that are planted where one of their rules (excuses.py) could excuse them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from tests.simulation.test_everything import ASYNC, EXPIRING, SAFE, found
from tools.simulation import site
from tools.simulation.plan import Fault, Kind, Plan
from tools.simulation.run import simulate
from tools.simulation.traffic import REMADE

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.pop.in_flight import InFlight, PopDelivery, PopQueue, Receipt
from orbitmq.broker.pop.state import PopState
from orbitmq.broker.timers.pending import PendingTimers
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import QueuePuller
from orbitmq.message import property_names
from orbitmq.message.properties import encode_properties
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.message.sysflag import COMPRESSED
from orbitmq.store import MessageStore, NewMessage

# Long before the planted bug, at the same broker.
LONG_AGO = Fault(0.5, 0.3, Kind.RESET, "broker-b")
AWAY = Fault(10.0, 9.0, Kind.KILL, "broker-a")


def test_a_topic_whose_offsets_outlive_it_is_found_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerOffsets, "drop_topic", lambda *_: None)
    monkeypatch.setattr(InFlight, "drop", lambda *_, **__: None)
    # A seed in which the new topic gets fewer messages than the old one had.
    said = simulate(Plan(3, SAFE, (LONG_AGO,))).violations
    assert "at least once for every group" in {violation.checker for violation in said}


def test_a_delay_level_that_is_early_is_found_beside_a_wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DelayLevels.delay_ms
    monkeypatch.setattr(DelayLevels, "delay_ms", lambda self, level: max(0, whole(self, level) - 4000))
    wrong = Fault(1.0, 10.0, Kind.CLOCK, "producers", detail=0.0)
    assert "no delayed message early" in found(SAFE, wrong)


def test_an_acknowledgement_of_what_had_failed_before_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acknowledge = InFlight.acknowledge

    def forgets(self: InFlight, queue: PopQueue, receipt: Receipt, offsets: Iterable[int]) -> set[int]:
        if queue.topic.startswith(RETRY_PREFIX):
            return set(offsets)
        return acknowledge(self, queue, receipt, offsets)

    monkeypatch.setattr(InFlight, "acknowledge", forgets)
    assert "what is done does not come again" in found(SAFE)


def test_what_comes_again_right_after_its_acknowledgement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: InFlight, queue: PopQueue, receipt: Receipt, offsets: Iterable[int]) -> set[int]:
        delivery = self.delivery(queue, receipt)
        if delivery is not None and not queue.topic.startswith(RETRY_PREFIX):
            self.again(queue, delivery, delivery.pop_time_ms)
        return set(offsets)

    monkeypatch.setattr(InFlight, "acknowledge", at_once)
    assert "what is done does not come again" in found(SAFE)


def test_the_end_of_a_redelivery_that_is_not_told_is_found_when_a_slave_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = PopState._delivery_changed

    def forgets(self: PopState, queue: PopQueue, delivery: PopDelivery) -> None:
        if delivery.left or not queue.topic.startswith(RETRY_PREFIX):
            changed(self, queue, delivery)

    monkeypatch.setattr(PopState, "_delivery_changed", forgets)
    # Whether a redelivery ends shortly before the master is killed differs by seed: the first that shows it
    # ends the search.
    runs = (simulate(Plan(number, SAFE, (AWAY,))).violations for number in range(1, 13))
    assert any("the slave's tables are the master's" in {each.checker for each in said} for said in runs)


def test_a_setting_that_is_forgotten_is_found_where_no_broker_took_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SubscriptionGroups, "update", lambda *_: None)
    near = Fault(0.0, 14.0, Kind.CUT, "broker-a", "consumers-1")
    said = [str(one) for one in simulate(Plan(1, SAFE, (near,))).violations]
    assert any("broker-a took" in text for text in said)


def test_a_reset_that_is_forgotten_is_found_while_producers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerOffsets, "reset", lambda *_: None)
    assert "a reset is done once" in found(SAFE, Fault(0.0, 20.0, Kind.SLOW_LINK, "producers", detail=0.1))


def test_what_a_member_had_not_handled_when_it_was_killed_is_not_excused_by_a_lost_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessQueue, "committable", lambda self: self.next_offset + 2)
    killed = [
        Fault(at_s, 0.5, Kind.CLIENT, name)
        for at_s in (4.0, 6.0, 8.0)
        for name in ("consumers-1", "consumers-2")
    ]
    power = Fault(6.0, 0.5, Kind.POWER, "broker-b")
    assert "at least once for every group" in found(ASYNC, *killed, power)


def test_messages_that_expire_too_early_are_found_though_a_disk_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site, "RESERVED_S", 1.0)
    away = [Fault(6.0, 5.0, Kind.CLIENT, name) for name in ("consumers-1", "consumers-2")]
    fails = Fault(1.0, 0.1, Kind.FAIL_DISK, "broker-b", detail=0.7)
    assert "no acknowledged message is lost" in found(EXPIRING, *away, fails)


def test_an_error_at_one_broker_is_found_while_the_disk_of_another_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> bool:
        raise OSError("planted")

    monkeypatch.setattr(PendingTimers, "is_recalled", fails)
    disk = Fault(1.0, 14.0, Kind.FAIL_DISK, "broker-a-1", detail=0.7)
    assert "nothing crashes" in found(SAFE, disk)


def test_an_offset_of_a_slave_that_nobody_committed_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ConsumerOffsets._apply_offset

    def ahead(self: ConsumerOffsets, key: str, offset: int | None) -> None:
        apply(self, key, None if offset is None else offset + 1)

    monkeypatch.setattr(ConsumerOffsets, "_apply_offset", ahead)
    assert "the slave's tables are the master's" in found(SAFE)


def test_locks_that_a_slave_does_not_know_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueLocks, "_apply", lambda *_: None)
    assert "the slave's tables are the master's" in found(SAFE)


def test_queues_of_a_slave_that_end_elsewhere_are_found_after_a_power_loss_in_another_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_of = MessageStore.max_offset

    def wrong(self: MessageStore, topic: str, queue_id: int) -> int:
        return end_of(self, topic, queue_id) + (topic == REMADE and self.config.root.endswith("broker-a-1"))

    monkeypatch.setattr(MessageStore, "max_offset", wrong)
    assert "the slave's log is the master's" in found(SAFE, Fault(0.5, 0.3, Kind.POWER, "broker-b"))


@pytest.fixture
def changed_on_the_way(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A delayed message lacks a property, or the end of its body, when it is delivered."""
    hand, lacks = DeliverySink.hand, request.param

    def changed(self: DeliverySink, message: NewMessage, properties: Mapping[str, str]) -> PendingDelivery:
        left = {name: value for name, value in properties.items() if name != lacks}
        body = message.body if lacks or message.sys_flag & COMPRESSED else message.body[:-1]
        return hand(self, replace(message, body=body, properties=encode_properties(left)), left)

    monkeypatch.setattr(DeliverySink, "hand", changed)


@pytest.mark.usefixtures("changed_on_the_way")
@pytest.mark.parametrize(
    "changed_on_the_way", ["", property_names.KEYS, property_names.TAGS, "colour"], indirect=True
)
def test_a_delivered_message_that_is_not_as_it_was_sent_is_found() -> None:
    assert "messages are as they were sent" in found(SAFE)


def test_a_member_that_begins_again_after_a_lost_connection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = QueuePuller._recover

    async def again(self: QueuePuller, error: Exception) -> None:
        self.process_queue = self._anew(self.process_queue, max(0, self.process_queue.next_offset - 3))
        await recover(self, error)

    monkeypatch.setattr(QueuePuller, "_recover", again)
    resets = [Fault(at_s, 0.0, Kind.RESET, "broker-b") for at_s in (4.0, 6.0, 8.0)]
    assert "a living group handles each message once" in found(SAFE, *resets)
