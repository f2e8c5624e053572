"""Messages in flight when the broker's role changes: which broker redelivers them, and to which topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import ack, pop
from tests.conversation.test_replication_escape import stored
from tests.replicas import ESCAPING

from orbitmq import Message, MessageQueue, ReceivedMessage, SimpleConsumer
from orbitmq.broker.broker import Broker
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.role import Role
from orbitmq.store import NewMessage, PutStatus
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


class SentElsewhere:
    """A message on its way to the master of another group (see ``delivery_sink.PendingDelivery``)."""

    def __init__(self, message: NewMessage, on_stored: Callable[[], None]) -> None:
        self.message = message
        self.on_stored = on_stored
        self.stored = False

    async def settled(self) -> PutStatus:
        return PutStatus.OK

    def arrive(self) -> None:
        self.stored = True
        self.on_stored()


class Elsewhere:
    """The way to other masters, on which messages stay until :meth:`SentElsewhere.arrive`."""

    def __init__(self) -> None:
        self.sent: list[SentElsewhere] = []

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> SentElsewhere:
        self.sent.append(SentElsewhere(message, on_stored))
        return self.sent[-1]

    async def settle(self) -> None:
        """Call nobody back: messages stay on their way."""


@pytest.mark.behaviour("PE-05", "PE-08")
async def test_an_acting_master_redelivers_through_another_group_and_once(
    broker: Broker, peer: BrokerPeer
) -> None:
    await peer.sent(b"one")
    assert (await pop(peer, invisible_time=5000)).bodies == [b"one"]
    in_flight = broker.part(PopRevive).state.in_flight
    await broker.change_role(Role.SLAVE)
    await asyncio.sleep(30)
    assert len(in_flight) == 1, "a slave redelivers nothing"
    refused = await pop(peer)
    assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert "its master" in (refused.remark or "")
    elsewhere = broker.services.sink.elsewhere = Elsewhere()
    await broker.change_role(Role.ACTING_MASTER)
    await asyncio.sleep(30)
    [sent] = elsewhere.sent
    assert (sent.message.topic, sent.message.queue_id) == ("%RETRY%cg_T", 0)
    assert (sent.message.body, sent.message.reconsume_times) == (b"one", 1)
    assert len(in_flight) == 1, "until it is stored there"
    sent.arrive()
    await asyncio.sleep(1)
    assert len(in_flight) == 0
    await asyncio.sleep(60)
    assert len(elsewhere.sent) == 1


@pytest.mark.behaviour("PE-08")
async def test_a_redelivery_that_no_master_takes_holds_up_no_other(broker: Broker, peer: BrokerPeer) -> None:
    """A message that another broker group has stored leaves the table, so that a returning master does not
    deliver it again.
    """
    await peer.sent(b"one")
    await peer.sent(b"two")
    for body in (b"one", b"two"):
        assert (await pop(peer, max_msg_nums=1, invisible_time=5000)).bodies == [body]
    in_flight = broker.part(PopRevive).state.in_flight
    await broker.change_role(Role.SLAVE)
    elsewhere = broker.services.sink.elsewhere = Elsewhere()
    await broker.change_role(Role.ACTING_MASTER)
    await asyncio.sleep(30)
    first, second = elsewhere.sent
    second.arrive()
    await asyncio.sleep(1)
    assert len(in_flight) == 1
    first.arrive()
    await asyncio.sleep(1)
    assert len(in_flight) == 0


@pytest.mark.behaviour("ES-16")
async def test_redeliveries_behind_too_many_that_are_not_stored_wait(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is a pause, not a loop that takes all of one processor."""
    monkeypatch.setattr("orbitmq.broker.pop.revive.MAX_ON_THE_WAY", 1)
    for body in (b"one", b"two"):
        await peer.sent(body)
    for body in (b"one", b"two"):
        assert (await pop(peer, max_msg_nums=1, invisible_time=5000)).bodies == [body]
    await broker.change_role(Role.SLAVE)
    elsewhere = broker.services.sink.elsewhere = Elsewhere()
    await broker.change_role(Role.ACTING_MASTER)
    with monkeypatch.context() as few:
        few.setattr("orbitmq.broker.pop.revive.TAKEN_PER_TURN", 1)
        await asyncio.sleep(30)
        [first] = elsewhere.sent
        first.arrive()
        await asyncio.sleep(1)
    assert [sent.message.body for sent in elsewhere.sent] == [b"one", b"two"]


@pytest.mark.behaviour("ES-06", "PE-01", "PE-02")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ESCAPING)
async def test_what_is_in_flight_stays_with_the_group_and_only_messages_escape(orbitmq_world: World) -> None:
    """RocketMQ's acting master sends check points and acknowledgements to one queue of another group, so that
    they meet. OrbitMQ's has its master's messages in flight and applies acknowledgements and longer times
    itself.
    """
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
    world.brokers["broker-b"].services.topics.create_if_absent("%RETRY%billing_orders", 1)
    async with world.producer() as producer:
        for number in range(6):
            await producer.send(
                Message("orders", b"%d" % number), queue=MessageQueue("orders", "broker-a", 0)
            )
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        messages = sorted(await taken(consumer, 6), key=lambda message: message.body)
        await consumer.ack(messages[0])
        await world.sleep(1)
        world.crash("broker-a")
        slave = world.brokers["broker-a-1"]
        await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
        await world.sleep(2)
        await consumer.ack(messages[1])
        await consumer.change_invisible(messages[2], 60)
        await world.sleep(30)
        assert there(world) == [b"3", b"4", b"5"]
        await world.sleep(45)
        assert there(world) == [b"2", b"3", b"4", b"5"]
    for broker in world.brokers.values():
        store = broker.services.store
        assert [store.max_offset("rmq_sys_REVIVE_LOG_DefaultCluster", queue) for queue in range(8)] == [0] * 8


@pytest.mark.behaviour("PP-02", "PP-03")
@pytest.mark.parametrize("loss", ["the master", "the master and its disk", "both machines"])
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true"})
async def test_what_is_in_flight_outlives_its_broker_beside_timer_messages(
    orbitmq_world: World, loss: str
) -> None:
    """Timer messages resemble a Java broker's check points; they must not make the new master drop its own
    table.
    """
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    queue = MessageQueue("orders", "broker-a", 0)
    async with world.producer() as producer:
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number), queue=queue)
        await producer.send(Message("orders", b"later", delay=3600))
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        messages = sorted(await taken(consumer, 3), key=lambda message: message.body)
        await consumer.ack(messages[2])
        await world.sleep(1)
        world.crash("broker-a", keep=Keep.NOTHING)
        if loss == "the master and its disk":
            world.machines["broker-a"].disk.remove_tree("/")
        if loss == "both machines":
            world.crash("broker-a-1")
        else:
            slave = world.brokers["broker-a-1"]
            await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
        await world.start_broker("broker-a")
        await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
        again = await taken(consumer, 2)
        assert sorted(message.body for message in again) == [b"0", b"1"]
        await consumer.ack_all(again)
        assert await consumer.receive(8, wait=40) == []


async def taken(consumer: SimpleConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.receive(count, invisible_for=20)
    return found


def there(world: World) -> list[bytes]:
    """The messages that were redelivered by way of the other broker group."""
    return sorted(record.body for record in stored(world.brokers["broker-b"], "%RETRY%billing_orders"))


@pytest.mark.behaviour("PE-06")
async def test_a_redelivery_that_is_refused_is_tried_again_later_and_later(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.sent(b"one")
    first = await pop(peer, invisible_time=1000)
    assert first.header is not None
    times: list[int] = []

    def refuse(*_: object) -> None:
        times.append(peer.now())
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "as a record it is too large")

    monkeypatch.setattr(broker.services.sink, "hand", refuse)
    await asyncio.sleep(200)
    deadline = first.header.pop_time + 1000
    assert [round((time - deadline) / 1000) for time in times] == [0, 10, 30, 60, 120]
    monkeypatch.undo()
    assert (await pop(peer, poll_time=60_000)).bodies == [b"one"]


async def test_messages_in_flight_travel_to_a_slave(orbitmq_runtime: SimulatedRuntime) -> None:
    async with World(orbitmq_runtime, brokers=1, replicas=2) as world:
        async with world.producer() as producer:
            for number in range(3):
                await producer.send(Message("orders", str(number)))
        async with world.simple_consumer("billing") as consumer:
            consumer.subscribe("orders")
            messages = await consumer.receive(3, invisible_for=60)
            while len(messages) < 3:
                messages += await consumer.receive(3, invisible_for=60)
            master, slave = (
                world.brokers[name].part(PopRevive).state.in_flight for name in ("broker-a", "broker-a-1")
            )

            def same() -> bool:
                kept, copied = (
                    {q.key: (q.next, q.floor) for q in each if q.next} for each in (master, slave)
                )
                return kept == copied

            await world.until(lambda: len(slave) == 3 and same())
            await consumer.ack_all(messages)
            await world.until(lambda: len(slave) == 0 and same())


@pytest.mark.behaviour("PE-02")
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"})
async def test_what_the_acting_slave_saw_done_does_not_come_again_from_the_returning_master(
    orbitmq_world: World,
) -> None:
    """The master's disk holds the message as in flight; the acting slave's table has to replace the master's,
    not add to it.
    """
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
    async with world.producer() as producer:
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number))
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        messages = await taken(consumer, 3)
        await world.sleep(10)
        world.crash("broker-a", keep=Keep.ANY)
        slave = world.brokers["broker-a-1"]
        await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
        await world.sleep(2)
        await consumer.ack_all(messages)
        await world.start_broker("broker-a")
        await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
        assert len(world.brokers["broker-a"].part(PopRevive).state.in_flight) == 0
        assert await consumer.receive(8, wait=40) == []


@pytest.mark.behaviour("PE-02")
@pytest.mark.parametrize("end", ["acknowledged", "made invisible for longer", "redelivered again"])
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"})
async def test_the_end_of_a_popped_redelivery_is_told_to_the_slave(orbitmq_world: World, end: str) -> None:
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    async with world.producer() as producer:
        await producer.send(Message("orders", b"one"))
    slave = world.brokers["broker-a-1"]
    async with world.simple_consumer("billing") as consumer:
        consumer.subscribe("orders")
        await taken(consumer, 1)
        [again] = await taken(consumer, 1)
        assert again.reconsume_times == 1
        await world.sleep(1)
        assert len(slave.part(PopRevive).state.in_flight) == 1
        if end == "acknowledged":
            await consumer.ack(again)
        elif end == "made invisible for longer":
            await consumer.change_invisible(again, 40)
            await world.sleep(1)
            await consumer.ack(again)
        else:
            [third] = await taken(consumer, 1)
            assert third.reconsume_times == 2
            await world.sleep(1)
            await consumer.ack(third)
        await world.sleep(1)
        assert len(slave.part(PopRevive).state.in_flight) == 0
        world.crash("broker-a", keep=Keep.NOTHING)
        world.machines["broker-a"].disk.remove_tree("/")
        await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
        await world.start_broker("broker-a")
        await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
        assert await consumer.receive(8, wait=90) == []


@pytest.mark.behaviour("PE-09")
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true", "slaveReadEnable": "true"})
async def test_a_slave_passes_acknowledgements_on_to_its_master(
    orbitmq_world: World, orbitmq_runtime: SimulatedRuntime
) -> None:
    """RocketMQ's clients fetch routes every 30 s and send an acknowledgement once, here to the slave that
    acted. Its refusal would redeliver the message.
    """
    world = orbitmq_world
    await world.until(lambda: world.brokers["broker-a"].services.role.role is Role.MASTER)
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
    async with world.producer() as producer:
        for number in range(4):
            await producer.send(Message("T", b"%d" % number))
    await world.sleep(1)
    world.crash("broker-a")
    slave = world.brokers["broker-a-1"]
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER)
    async with BrokerPeer(orbitmq_runtime, slave.services.address) as peer:
        first = await pop(peer, max_msg_nums=1, invisible_time=20_000)
        popped = await pop(peer, max_msg_nums=3, invisible_time=20_000)
        assert (first.bodies, popped.bodies) == ([b"0"], [b"1", b"2", b"3"])
        starting = asyncio.ensure_future(world.start_broker("broker-a"))
        await world.until(lambda: slave.services.role.role is Role.SLAVE)
        # The returning master does not lead yet.
        assert (await ack(peer, popped.receipt(0))).code == ResponseCode.SUCCESS
        await starting
        master = world.brokers["broker-a"]
        await world.until(lambda: master.services.role.role is Role.MASTER)
        for index in (1, 2):
            assert (await ack(peer, popped.receipt(index))).code == ResponseCode.SUCCESS
        used = await ack(peer, popped.receipt(1))
        assert used.code == ResponseCode.NO_MESSAGE
        assert "not in flight" in (used.remark or "")
        assert (await pop(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE, "its master deals messages out"
        # A slave that cannot reach its master refuses.
        world.partition("broker-a")
        alone = await ack(peer, popped.receipt())
        assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert "does not answer" in (alone.remark or "")
        world.heal()
        await world.until(lambda: master.services.role.role is Role.MASTER)
    async with world.simple_consumer("cg") as consumer:
        consumer.subscribe("T")
        [again] = await taken(consumer, 1)
        assert again.body == b"0"
        await consumer.ack(again)
        assert await consumer.receive(8, wait=40) == []
