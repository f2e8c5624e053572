"""A slave's tables equal its master's, also when the master sends them by RocketMQ's request codes only."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import ack, pop
from tests.replicas import ACTING, MASTER, SLAVE, role_of

from orbitmq import Message
from orbitmq.broker.broker import Broker
from orbitmq.broker.delay.progress import DelayProgress, LevelProgress
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.role import Role
from orbitmq.message.model import MessageQueue
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.copies import TableCopies
from orbitmq.replication.state.outbox import MAX_ENTRIES
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import DataVersion, TopicConfig
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


def delays(broker: Broker) -> DelayProgress:
    return broker.part(ScheduleService).delays


def codes(broker: Broker) -> tuple[TableCodes, RemotingClient]:
    client = RemotingClient(broker.runtime)
    return TableCodes(client, broker.services.feed, broker.services.topics), client


@pytest.mark.behaviour("SS-07")
@pytest.mark.orbitmq(brokers=2)
async def test_the_tables_of_a_master_that_tells_none_over_the_link_are_copied(orbitmq_world: World) -> None:
    world = orbitmq_world
    master, slave = (world.brokers[name].services for name in ("broker-a", "broker-b"))
    own, client = codes(world.brokers["broker-b"])
    linked: list[str] = []
    copies = TableCopies(world.clock, own, lambda: linked[0] if linked else None)
    await copies.start()
    for queues in (2, 3):
        master.topics.update(TopicConfig("orders", queues, queues))
    master.groups.update(SubscriptionGroupConfig(group_name="billing", retry_max_times=3))
    master.groups.set_readable("billing", "secrets", False)
    master.offsets.commit("billing", "orders", 1, 77)
    delays(world.brokers["broker-a"]).move(3, LevelProgress(5))
    slave.topics.update(TopicConfig("stale"))
    await world.sleep(20)
    assert "orders" not in slave.topics
    linked.append(world.brokers["broker-a"].address)
    await world.sleep(2)
    assert "orders" not in slave.topics  # a returning master takes the slave's tables first
    await world.sleep(13)
    topic, group = slave.topics.get("orders"), slave.groups.get("billing")
    assert topic is not None
    assert topic.read_queue_nums == 3
    assert "stale" not in slave.topics
    assert group is not None
    assert group.retry_max_times == 3
    assert not slave.groups.may_read("billing", "secrets")
    assert slave.offsets.query("billing", "orders", 1) == 77
    assert delays(world.brokers["broker-b"]).place(3).offset == 5
    assert slave.topics.version == master.topics.version
    master.topics.delete("orders")
    master.groups.set_readable("billing", "secrets", True)
    await world.sleep(10.5)
    assert "orders" not in slave.topics
    assert slave.groups.may_read("billing", "secrets")
    await copies.stop()
    await client.close()


@pytest.mark.behaviour("SS-07")
@pytest.mark.orbitmq(brokers=2)
async def test_such_a_master_is_asked_for_offsets_each_five_seconds_and_for_the_others_each_ten(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = orbitmq_world
    address = world.brokers["broker-a"].address
    own, client = codes(world.brokers["broker-b"])
    asked: dict[RequestCode, list[float]] = defaultdict(list)
    plain = TableCodes._ask

    async def ask(self: TableCodes, address: str, code: RequestCode) -> bytes:
        asked[code].append(world.clock.monotonic())
        return await plain(self, address, code)

    monkeypatch.setattr(TableCodes, "_ask", ask)
    copies = TableCopies(world.clock, own, lambda: address)
    await copies.start()
    await world.sleep(60)
    await copies.stop()
    await client.close()
    assert asked.keys() == {21, 43, 45, 60, 201, 402}
    for code, times in asked.items():
        wanted_s = 5 if code == RequestCode.GET_ALL_CONSUMER_OFFSET else 10
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses == pytest.approx([wanted_s] * len(pauses), abs=0.1)
        assert len(times) >= 50 // wanted_s


@pytest.mark.behaviour("PO-47")
@pytest.mark.orbitmq(brokers=2)
async def test_an_answer_that_comes_when_the_slave_acts_is_not_taken(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of the new master have committed later offsets since the old master responded."""
    world = orbitmq_world
    there, here = (world.brokers[name] for name in ("broker-a", "broker-b"))
    there.services.offsets.commit("g", "T", 0, 10)
    client = RemotingClient(here.runtime)
    follows = [True]
    codes = TableCodes(client, here.services.feed, here.services.topics, takes=lambda: follows[0])
    plain = TableCodes._ask

    async def ask(self: TableCodes, address: str, code: RequestCode) -> bytes:
        answer = await plain(self, address, code)
        follows[0] = False
        here.services.offsets.commit("g", "T", 0, 99)
        return answer

    monkeypatch.setattr(TableCodes, "_ask", ask)
    await codes.offsets(there.address, always=True)
    assert here.services.offsets.query("g", "T", 0) == 99
    await client.close()


@pytest.mark.behaviour("MO-08")
@pytest.mark.orbitmq(replicas=2)
async def test_a_slave_has_its_masters_tables_within_a_fifth_of_a_second(orbitmq_world: World) -> None:
    world = orbitmq_world
    master, slave = (world.brokers[name].services for name in (MASTER, SLAVE))
    await world.sleep(2)
    master.topics.update(TopicConfig("orders", 3, 3))
    master.offsets.commit("billing", "orders", 1, 77)
    delays(world.brokers[MASTER]).move(3, LevelProgress(5))
    await world.sleep(0.2)
    assert "orders" in slave.topics
    assert slave.offsets.query("billing", "orders", 1) == 77
    assert delays(world.brokers[SLAVE]).place(3).offset == 5


@pytest.mark.behaviour("PO-08")
@pytest.mark.behaviour("PO-10")
@pytest.mark.behaviour("DL-12")
@pytest.mark.orbitmq(brokers=2)
async def test_what_is_older_is_not_taken_back(orbitmq_world: World) -> None:
    world = orbitmq_world
    here, there = (world.brokers[name] for name in ("broker-a", "broker-b"))
    there.services.offsets.commit("g", "T", 0, 9)
    delays(there).move(1, LevelProgress(4))
    own, client = codes(here)
    here.services.offsets.version = DataVersion(1, 0, 0)
    delays(here).version = DataVersion(1, 0, 0)
    delays(here).move(2, LevelProgress(7))
    version = delays(here).version
    delays(there).move(2, LevelProgress(6))
    delays(there).move(20, LevelProgress(3))
    await own.take_back(there.address)
    assert here.services.offsets.query("g", "T", 0) is None
    # Deliveries from the common log count as done, although RocketMQ's version does not show the last ones.
    assert delays(here).place(1).offset == 4
    assert delays(here).place(2).offset == 7
    assert delays(here).place(20).offset == 3
    assert delays(here).version == version
    there.services.offsets.version = DataVersion(2, 0, 0)
    delays(there).version = DataVersion(2, 0, 0)
    here.services.offsets.commit("g", "mine", 0, 1)
    await own.take_back(there.address)
    assert here.services.offsets.query("g", "T", 0) == 9
    assert here.services.offsets.query("g", "mine", 0) == 1
    assert delays(here).place(1).offset == 4
    assert here.services.offsets.version == DataVersion(2, 0, 0)
    await client.close()


@pytest.mark.orbitmq(brokers=2, settings={"timerWheelEnable": "false"})
async def test_each_question_of_a_returning_master_is_answered(orbitmq_world: World) -> None:
    """A master of RocketMQ stays isolated as long as one of its requests is refused."""
    client = RemotingClient(orbitmq_world.runtime)
    address = orbitmq_world.brokers["broker-b"].address
    for code in (21, 43, 45, 60, 201, 402):
        answer = await client.request(address, Command(code), 3000)
        assert answer.code == 0, (code, answer.remark)
        if code == RequestCode.GET_TIMER_CHECK_POINT:
            assert bytes(answer.body) == bytes(56)
        else:
            assert bytes(answer.body).startswith(b"{")
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            assert set(json.loads(bytes(answer.body))) == {"dataVersion", "offsetTable"}
    await client.close()


@pytest.mark.orbitmq(brokers=1)
async def test_a_slave_of_rocketmq_is_told_how_many_timers_are_pending(orbitmq_world: World) -> None:
    """That is code 61 of its SlaveSynchronize. OrbitMQ's slave counts the timers in its own log instead."""
    client = RemotingClient(orbitmq_world.runtime)
    address = orbitmq_world.brokers["broker-a"].address
    answer = await client.request(address, Command(RequestCode.GET_TIMER_METRICS), 3000)
    assert answer.code == 0, answer.remark
    assert json.loads(bytes(answer.body)).keys() == {"dataVersion", "timingCount"}
    await client.close()


@pytest.mark.orbitmq(brokers=1)
async def test_a_refusal_and_garbage_are_told(orbitmq_world: World) -> None:
    own, client = codes(orbitmq_world.brokers["broker-a"])
    with pytest.raises(ExchangeError, match="refuses GET_ALL_DELAY_OFFSET"):
        await own.take_back(orbitmq_world.name_server)
    await client.close()


@pytest.mark.behaviour("LK-09")
@pytest.mark.orbitmq(brokers=1, replicas=2, settings={"enableSlaveActingMaster": "true"})
async def test_a_queue_lock_holds_when_the_master_changes(orbitmq_world: World) -> None:
    world = orbitmq_world
    await world.until(lambda: world.brokers[MASTER].services.role.role is Role.MASTER)
    await world.until(lambda: world.brokers[SLAVE].services.role.role is Role.SLAVE)
    await world.sleep(3)
    client = RemotingClient(world.runtime)

    async def lock(name: str, client_id: str) -> set[int]:
        queues = {MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)}
        body = LockBatchRequestBody("g", client_id, only_this_broker=False, mq_set=queues)
        command = Command(RequestCode.LOCK_BATCH_MQ, body=body.encode())
        answer = await client.request(world.brokers[name].address, command, 3000)
        held = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        return {queue.queue_id for queue in held}

    assert await lock(MASTER, "one") == {0, 1, 2}
    world.crash(MASTER)
    await world.until(lambda: world.brokers[SLAVE].services.role.role is Role.ACTING_MASTER)
    assert await lock(SLAVE, "two") == set()
    assert await lock(SLAVE, "one") == {0, 1, 2}
    await client.close()


@pytest.mark.behaviour("PO-19")
@pytest.mark.orbitmq(brokers=1, replicas=2, settings={**ACTING, "slaveReadEnable": "true"})
async def test_a_master_that_serves_takes_only_what_is_news_of_the_slave_that_acted(
    orbitmq_world: World,
) -> None:
    """Offsets that were committed at the master while it was fenced must not be replaced by older ones of its
    slave.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    await world.until(lambda: role_of(world, SLAVE) is Role.SLAVE)
    async with world.admin() as admin:
        await admin.topics.create("orders", queues=1)
    await world.sleep(5)
    master, slave = (world.brokers[name].services.offsets for name in (MASTER, SLAVE))
    here = Clients(world, world.brokers[MASTER].address)
    async with world.producer() as producer, here.peer:
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number))
        assert await here.handled() == [b"0", b"1", b"2"]
        await world.sleep(1)
        names, master_host = (world.machines[name].host for name in ("nameserver", MASTER))
        world.runtime.network.partition([names], [master_host])
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        await here.sent(b"3")
        master.commit("billing", "orders", 0, 4)
        slave.commit("billing", "orders", 0, 2)
        for queue_id in range(3 * MAX_ENTRIES):
            slave.commit("audit", "wide", queue_id, 7)
        # No broker reaches a name server: the slave steps down, and the fenced master gets no requests.
        world.partition("nameserver")
        await world.until(lambda: role_of(world, SLAVE) is Role.SLAVE)
        await world.sleep(5)
        assert (master.query("billing", "orders", 0), slave.query("billing", "orders", 0)) == (4, 4)
        told = master.queues("audit", "wide")
        assert told == dict.fromkeys(range(3 * MAX_ENTRIES), 7), len(told)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        assert await here.handled() == [b"3"]
        await world.sleep(60)
        assert await here.handled() == []


class Clients:
    """A client that sends to one broker and pops from it, whatever name servers say."""

    def __init__(self, world: World, address: str) -> None:
        self.peer = BrokerPeer(world.runtime, address)

    async def sent(self, body: bytes) -> None:
        await self.peer.sent(body, topic="orders")

    async def handled(self) -> list[bytes]:
        """Pop the available messages and acknowledge them; returns their bodies."""
        popped = await pop(self.peer, topic="orders")
        for index in range(len(popped.records)):
            answer = await ack(self.peer, popped.receipt(index), topic="orders")
            assert answer.code == 0, answer.remark
        return popped.bodies
