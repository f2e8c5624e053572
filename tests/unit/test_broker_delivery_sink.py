"""Targets of deliveries: a master's own store; for an acting master, the masters of other broker groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.messaging.delivering import UNKNOWN_TOPIC_WAITS_MS
from orbitmq.broker.messaging.delivery_sink import is_not_now
from orbitmq.broker.role import Role
from orbitmq.message import reserved
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import iter_records
from orbitmq.store import NewMessage, PutStatus
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

MIB = 1024 * 1024


@pytest.fixture
def broker(orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime) -> Broker:
    config = BrokerConfig(listen_port=10911, store_path_root_dir="/store", mapped_file_size_commit_log=MIB)
    made = orbitmq_loop.enter(Broker(orbitmq_runtime, config))
    made.services.topics.create_if_absent("T", 4)
    return made


@dataclass
class OnTheWay:
    message: NewMessage
    on_stored: Callable[[], None]
    stored: bool = False
    end: int = 0

    async def settled(self) -> PutStatus:
        return PutStatus.OK

    def arrive(self) -> None:
        self.stored = True
        self.on_stored()


class OtherMasters:
    """A scripted way to other masters, on which messages stay until the test ends it."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.sent: list[OnTheWay] = []

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> OnTheWay:
        assert decode_properties(message.properties) == properties
        if len(self.sent) >= self.room:
            raise RemotingError(ResponseCode.SYSTEM_BUSY, "full")
        self.sent.append(OnTheWay(message, on_stored))
        return self.sent[-1]

    async def settle(self) -> None:
        pass


class Timers(OtherMasters):
    """The same for timers, which leave with the properties that they had while waiting."""

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> OnTheWay:
        self.sent.append(OnTheWay(message, on_stored))
        return self.sent[-1]


def stored(broker: Broker, topic: str = "T") -> list[bytes]:
    store = broker.services.store
    return [r.body for queue in range(4) for r in iter_records(store.get(topic, queue, 0, 100).body)]


def delayed(broker: Broker, body: bytes, topic: str = "T") -> None:
    """Store a message of delay level 1, which waits for a second."""
    services = broker.services
    properties = {"DELAY": "1"}
    message = NewMessage(topic, 0, body, encode_properties(properties))
    services.append.put(message, properties)


@pytest.mark.behaviour("ES-02")
async def test_a_master_puts_into_its_own_store(broker: Broker) -> None:
    sink = broker.services.sink
    message = NewMessage("T", 1, b"x", encode_properties({"DELAY": "3"}))
    assert await sink.put(message, {"DELAY": "3"}) is PutStatus.OK
    handed = sink.hand(message, {"DELAY": "3"})
    assert not handed.stored
    await sink.settle()
    assert handed.stored
    assert stored(broker) == [b"x", b"x"]
    assert broker.services.store.max_offset(reserved.SCHEDULE_TOPIC, 2) == 0  # no hook delays it again


async def test_another_role_refuses_for_now_when_there_is_no_way(broker: Broker) -> None:
    await broker.change_role(Role.SLAVE)
    with pytest.raises(RemotingError) as refused:
        await broker.services.sink.put(NewMessage("T", 0, b"x", b""), {})
    assert is_not_now(refused.value)
    assert stored(broker) == []


async def test_without_the_right_to_lead_nothing_is_delivered(broker: Broker) -> None:
    broker.services.role.may_lead = lambda: False
    with pytest.raises(RemotingError, match="no right to lead") as refused:
        await broker.services.sink.put(NewMessage("T", 0, b"x", b""), {})
    assert is_not_now(refused.value)
    assert stored(broker) == []


async def act(broker: Broker) -> None:
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.ACTING_MASTER)


@pytest.mark.behaviour("ES-10")
async def test_an_acting_master_delivers_elsewhere_and_counts_what_arrived(broker: Broker) -> None:
    services, schedule = broker.services, broker.part(ScheduleService)
    away = services.sink.elsewhere = OtherMasters()
    for number in range(3):
        delayed(broker, b"%d" % number, "T" if number != 1 else "OnlyThere")
    await act(broker)
    end = services.store.end
    await broker.runtime.clock.sleep(2)
    assert [each.message.body for each in away.sent] == [b"0", b"1", b"2"]
    assert [each.message.topic for each in away.sent] == ["T", "OnlyThere", "T"]
    assert schedule.progress(1) == 0
    away.sent[1].arrive()
    await broker.runtime.clock.sleep(0.01)
    assert schedule.progress(1) == 0  # the first message is not stored yet
    away.sent[0].arrive()
    await broker.runtime.clock.sleep(0.01)
    assert schedule.progress(1) == 2
    assert services.store.end == end


async def test_one_level_does_not_hold_up_the_progress_of_another(broker: Broker) -> None:
    services, schedule = broker.services, broker.part(ScheduleService)
    away = services.sink.elsewhere = OtherMasters()
    delayed(broker, b"stuck")
    message = NewMessage("T", 0, b"goes", encode_properties({"DELAY": "2"}))
    services.append.put(message, {"DELAY": "2"})
    await act(broker)
    await broker.runtime.clock.sleep(6)
    away.sent[1].arrive()
    await broker.runtime.clock.sleep(0.01)
    assert (schedule.progress(1), schedule.progress(2)) == (0, 1)


@pytest.mark.behaviour("ES-12")
async def test_without_a_way_nothing_is_delivered_and_nothing_skipped(broker: Broker) -> None:
    services, schedule = broker.services, broker.part(ScheduleService)
    delayed(broker, b"one")
    await act(broker)
    await broker.runtime.clock.sleep(10)
    assert schedule.progress(1) == 0
    services.sink.elsewhere = away = OtherMasters(room=0)
    await broker.runtime.clock.sleep(2)
    assert away.sent == []
    away.room = 1
    await broker.runtime.clock.sleep(2)
    assert [each.message.body for each in away.sent] == [b"one"]


async def test_a_service_that_starts_again_begins_at_its_progress(broker: Broker) -> None:
    services, schedule = broker.services, broker.part(ScheduleService)
    services.sink.elsewhere = away = OtherMasters()
    delayed(broker, b"one")
    await act(broker)
    await broker.runtime.clock.sleep(2)
    assert len(away.sent) == 1  # the message is on its way, and its result never comes
    await broker.change_role(Role.MASTER)
    await broker.runtime.clock.sleep(2)
    assert stored(broker) == [b"one"]
    assert schedule.progress(1) == 1


async def test_a_due_message_of_an_unknown_topic_waits_for_it_after_a_change_of_role(broker: Broker) -> None:
    services, schedule = broker.services, broker.part(ScheduleService)
    delayed(broker, b"early", "Later")
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.MASTER)
    await broker.runtime.clock.sleep(5)
    assert schedule.progress(1) == 0
    services.topics.create_if_absent("Later", 4)
    await broker.runtime.clock.sleep(2)
    assert stored(broker, "Later") == [b"early"]
    delayed(broker, b"lost", "Never")
    delayed(broker, b"next")
    await broker.runtime.clock.sleep(UNKNOWN_TOPIC_WAITS_MS / 1000)
    assert stored(broker) == [b"next"]


@pytest.mark.behaviour("ES-15")
async def test_timers_behind_too_many_that_wait_for_the_first_one_wait_as_well(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is a pause, not a loop that takes all of one processor."""
    monkeypatch.setattr("orbitmq.broker.messaging.delivering.MAX_UNSETTLED", 3)
    services = broker.services
    for number in range(5):
        properties = {"TIMER_DELAY_MS": "1000"}
        message = NewMessage("T", 0, b"%d" % number, encode_properties(properties))
        services.append.put(message, properties)
    await broker.change_role(Role.SLAVE)
    away = services.sink.elsewhere = Timers()
    await broker.change_role(Role.ACTING_MASTER)
    await broker.runtime.clock.sleep(5)
    assert len(away.sent) == 3
    away.sent[1].arrive()
    await broker.runtime.clock.sleep(1)
    assert len(away.sent) == 3
    away.sent[0].arrive()
    await broker.runtime.clock.sleep(1)
    assert [each.message.body for each in away.sent] == [b"0", b"1", b"2", b"3", b"4"]
