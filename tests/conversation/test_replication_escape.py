"""Deliveries of an acting master go to the masters of other broker groups, in memory and in virtual time."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import pop

from orbitmq.broker.broker import Broker
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.role import Role
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import Record, iter_records
from orbitmq.replication.escape.escape import Escape
from orbitmq.store import NewMessage
from orbitmq.testing import World
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.errors import RemotingError

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
SETTINGS = {"enableRemoteEscape": "true"}
STRICT = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


def stored(broker: Broker, topic: str) -> list[Record]:
    """The messages of a topic at one broker, in the order of the log."""
    store = broker.services.store
    queues = store.find_topic(topic)
    found: list[Record] = []
    for queue_id in range(len(queues.slots) if queues else 0):
        found += iter_records(store.get(topic, queue_id, 0, 1000).body)
    return sorted(found, key=lambda record: record.physical_offset)


def put(world: World, topic: str, count: int, level: int, **properties: str) -> list[bytes]:
    """Store delayed messages at broker-a, as sends of producers do."""
    services = world.brokers["broker-a"].services
    bodies = [f"{number:03d} of {topic}".encode() for number in range(count)]
    for body in bodies:
        each = {"DELAY": str(level), "UNIQ_KEY": body.decode(), **properties}
        message = NewMessage(
            topic, 0, body, encode_properties(each), born_timestamp=services.runtime.clock.now_ms()
        )
        services.append.put(message, each)
    return bodies


def topic(world: World, name: str, *brokers: str) -> None:
    for broker in brokers or ("broker-a", "broker-b"):
        world.brokers[broker].services.topics.create_if_absent(name, 4)


async def lose_master(world: World) -> Broker:
    """Kill the master of broker-a when its slave has the whole log, and let the slave act for it."""
    master, slave = world.brokers["broker-a"].services.store, world.brokers["broker-a-1"]
    await world.until(lambda: slave.services.store.end == master.end)
    for each in world.brokers["broker-a"].services.topics:
        slave.services.topics.create_if_absent(each.topic_name, each.write_queue_nums)
    world.crash("broker-a")
    await slave.change_role(Role.ACTING_MASTER)
    return slave


@pytest.mark.behaviour("ES-01")
@pytest.mark.behaviour("ES-03")
@pytest.mark.behaviour("ES-08")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_delayed_messages_of_a_lost_master_come_from_another_group(orbitmq_world: World) -> None:
    world = orbitmq_world
    topic(world, "orders")
    bodies = put(world, "orders", 5, 2, colour="red")
    slave = await lose_master(world)
    end = slave.services.store.end
    await world.sleep(7)
    there = stored(world.brokers["broker-b"], "orders")
    assert sorted(record.body for record in there) == bodies
    for record in there:
        properties = decode_properties(record.properties)
        assert properties["colour"] == "red"
        assert properties["UNIQ_KEY"]
        assert "WAIT" not in properties
        assert not {"DELAY", "REAL_TOPIC", "REAL_QID"} & properties.keys()
        assert record.store_timestamp - record.born_timestamp < 7000
    assert slave.part(ScheduleService).progress(2) == 5
    assert slave.services.store.end == end


@pytest.mark.behaviour("ES-03")
@pytest.mark.behaviour("ES-08")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings={**SETTINGS, **STRICT})
async def test_progress_waits_for_the_replicas_of_the_other_group(orbitmq_world: World) -> None:
    """If the progress moved when the other master has the message, the loss of that master's disk would lose
    it.
    """
    world = orbitmq_world
    topic(world, "orders")
    bodies = put(world, "orders", 5, 2)
    slave = await lose_master(world)
    await world.sleep(4.8)
    world.partition("broker-b-1")
    other = world.brokers["broker-b"]
    await world.until(lambda: len(stored(other, "orders")) == len(bodies))
    await world.sleep(1)
    assert slave.part(ScheduleService).progress(2) == 0
    await world.sleep(4)
    assert slave.part(ScheduleService).progress(2) == 5
    assert sorted(record.body for record in stored(other, "orders")) == bodies, "not sent again meanwhile"


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_a_returning_master_does_not_wait_for_what_nobody_takes(orbitmq_world: World) -> None:
    """The acting slave settles before it steps down; messages that wait for their next try must not delay
    that.
    """
    world = orbitmq_world
    topic(world, "here", "broker-a")
    put(world, "here", 20, 1)
    slave = await lose_master(world)
    await world.sleep(30)
    elsewhere = slave.services.sink.elsewhere
    assert isinstance(elsewhere, Escape)
    assert len(elsewhere) == 20
    before = world.clock.monotonic()
    await slave.services.sink.settle()
    assert world.clock.monotonic() - before < 0.5
    assert len(elsewhere) == 0


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_services_that_stop_side_by_side_call_the_same_messages_back(orbitmq_world: World) -> None:
    """Seed 2933: a frozen master has messages of two services, and each of them has to stop cleanly."""
    world = orbitmq_world
    topic(world, "orders")
    put(world, "orders", 5, 1)
    slave = await lose_master(world)
    elsewhere = slave.services.sink.elsewhere
    assert isinstance(elsewhere, Escape)
    world.partition("broker-b")
    await world.until(lambda: len(elsewhere) == 5)
    one, other = (asyncio.ensure_future(slave.services.sink.settle()) for _ in range(2))
    await world.sleep(2)
    late = elsewhere.hand(NewMessage("orders", 0, b"late", b"", born_timestamp=1), {}, lambda: None)
    await one
    await other
    assert len(elsewhere) == 0
    with pytest.raises(RemotingError, match="no longer delivers"):
        await late.settled()


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_an_acting_master_whose_disk_refuses_delivers_and_says_so_once(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 344: not twenty lines a second. Progress that is not on the disk is lost with a kill, and its
    messages repeated.
    """
    world = orbitmq_world
    topic(world, "orders")
    bodies = put(world, "orders", 5, 1)
    slave = await lose_master(world)
    slave.services.runtime.files.fail("pwrite", "tables.journal", error=errno.ENOSPC, times=-1)
    await world.sleep(8)
    assert sorted(record.body for record in stored(world.brokers["broker-b"], "orders")) == bodies
    assert caplog.text.count("progress of deliveries is not on the disk, it is tried again") == 1


@pytest.mark.behaviour("ES-07")
@pytest.mark.behaviour("ES-12")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_without_another_master_messages_wait_with_growing_pauses(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    topic(world, "here", "broker-a")
    bodies = put(world, "here", 20, 1)
    slave = await lose_master(world)
    with caplog.at_level(logging.WARNING):
        await world.sleep(150)
    lines = [record for record in caplog.records if "waiting for another master" in record.getMessage()]
    assert 2 <= len(lines) <= 4
    assert slave.part(ScheduleService).progress(1) == 0
    topic(world, "here", "broker-b")
    await world.sleep(8)
    assert sorted(record.body for record in stored(world.brokers["broker-b"], "here")) == sorted(bodies)
    assert slave.part(ScheduleService).progress(1) == 20


@pytest.mark.behaviour("ES-10")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_what_waits_is_all_tried_when_a_master_comes_back(orbitmq_world: World) -> None:
    """A message stored out of order would be delivered twice if its own master returns meanwhile."""
    world = orbitmq_world
    topic(world, "orders")
    bodies = put(world, "orders", 20, 1)
    await lose_master(world)
    await world.stop_broker("broker-b")
    await world.sleep(60)  # a pause between tries is 5 s long
    await world.start_broker("broker-b")
    other = world.brokers["broker-b"]
    await world.until(lambda: bool(stored(other, "orders")))
    assert await world.until(lambda: len(stored(other, "orders")) == len(bodies)) < 0.1


@pytest.mark.orbitmq(brokers=3, replicas=2, settings=SETTINGS)
async def test_a_master_that_does_not_answer_is_not_tried_twice_in_a_row(orbitmq_world: World) -> None:
    world = orbitmq_world
    topic(world, "orders", "broker-a", "broker-b", "broker-c")
    bodies = put(world, "orders", 30, 1)
    await lose_master(world)
    world.crash("broker-b")
    await world.sleep(5)
    assert sorted(record.body for record in stored(world.brokers["broker-c"], "orders")) == sorted(bodies)


@pytest.mark.behaviour("ES-12")
@pytest.mark.orbitmq(brokers=2, replicas=2)
async def test_without_escape_messages_wait_for_their_master(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = orbitmq_world
    topic(world, "orders")
    put(world, "orders", 5, 1)
    slave = await lose_master(world)
    with caplog.at_level(logging.WARNING):
        await world.sleep(130)
    lines = [record for record in caplog.records if "enableRemoteEscape" in record.getMessage()]
    assert 1 <= len(lines) <= 3
    assert stored(world.brokers["broker-b"], "orders") == []
    assert slave.part(ScheduleService).progress(1) == 0


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_a_retry_message_that_was_delivered_too_often_is_a_dead_letter_there(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    retry = "%RETRY%billing"
    topic(world, retry)
    broker = world.brokers["broker-a"].services
    slave_groups = world.brokers["broker-a-1"].services.groups
    for groups in (broker.groups, slave_groups):
        found = groups.find("billing")
        assert found is not None
        found.retry_max_times = 2
    properties = {"DELAY": "1"}
    for times in (1, 3):
        message = NewMessage(retry, 0, b"%d" % times, encode_properties(properties), reconsume_times=times)
        broker.append.put(message, properties)
    await lose_master(world)
    await world.sleep(5)
    there = world.brokers["broker-b"]
    assert [record.body for record in stored(there, retry)] == [b"1"]
    assert [record.body for record in stored(there, "%DLQ%billing")] == [b"3"]


@pytest.mark.behaviour("TX-05")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_a_half_message_that_cannot_be_handed_on_holds_up_no_other(orbitmq_world: World) -> None:
    world = orbitmq_world
    topic(world, "orders")
    append = world.brokers["broker-a"].services.append
    append.put_many([NewMessage(HALF, 0, b"of no topic", encode_properties({"PGROUP": "shop"}))])
    put(world, "orders", 1, 0, TRAN_MSG="true", PGROUP="shop")
    await lose_master(world)
    await world.sleep(30)
    assert [record.body for record in stored(world.brokers["broker-b"], HALF)][:1] == [b"000 of orders"]


@pytest.mark.behaviour("PE-03")
@pytest.mark.behaviour("PP-13")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
async def test_a_long_message_that_was_popped_is_taken_by_another_master(orbitmq_world: World) -> None:
    """The other master adds properties of its own, too."""
    world = orbitmq_world
    topic(world, "T")
    topic(world, "%RETRY%cg_T")
    peer = BrokerPeer(world.runtime, world.brokers["broker-a"].address)
    for each in ("broker-a", "broker-b"):
        world.brokers[each].services.groups.update(SubscriptionGroupConfig(group_name="cg"))
    await peer.sent(b"big", properties={"a": "x" * 32_660})
    assert (await pop(peer, invisible_time=10_000)).bodies == [b"big"]
    await world.sleep(1)
    await lose_master(world)
    await world.sleep(30)
    other = world.brokers["broker-b"]
    [record] = stored(other, "%RETRY%cg_T")
    assert (record.body, record.reconsume_times) == (b"big", 1)
    assert decode_properties(record.properties)["a"] == "x" * 32_660
