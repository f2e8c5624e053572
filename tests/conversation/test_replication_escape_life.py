"""A master is lost and returns: its slave's deliveries meanwhile were made once, and are not repeated."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conversation.test_replication_escape import stored
from tests.replicas import ESCAPING, MASTER, OTHER, SLAVE

from orbitmq import BrokerError, Message, ReceivedMessage, TransactionState
from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.broker.timers.progress import due_of
from orbitmq.broker.timers.service import TimerService
from orbitmq.broker.transactions.acting import HalfEscape
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

pytestmark = pytest.mark.orbitmq(brokers=2, replicas=2, settings=ESCAPING)


async def ready(world: World, topic: str) -> None:
    """Wait until all brokers serve and both broker groups have the topic."""
    for name in (MASTER, OTHER):
        await world.until(lambda name=name: world.brokers[name].services.role.role is Role.MASTER)  # type: ignore[misc]
        world.brokers[name].services.topics.create_if_absent(topic, 4)
    await world.until(lambda: topic in world.brokers[SLAVE].services.topics, timeout_s=1)


def put(broker: Broker, topic: str, body: bytes, **properties: str) -> None:
    """Store a message as the send of a producer does."""
    services = broker.services
    born = services.runtime.clock.now_ms()
    message = NewMessage(topic, 0, body, encode_properties(properties), born_timestamp=born)
    services.append.put(message, properties)


async def copied(world: World) -> None:
    master, slave = (world.brokers[name].services.store for name in (MASTER, SLAVE))
    await world.until(lambda: slave.max_commit_log_offset == master.end == master.flushed_offset)


async def lose(world: World) -> Broker:
    """Kill the master when its slave has the whole log; returns when the slave acts."""
    await copied(world)
    world.crash(MASTER, keep=Keep.ANY)
    slave = world.brokers[SLAVE]
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER, timeout_s=5)
    return slave


async def come_back(world: World) -> Broker:
    await world.start_broker(MASTER)
    master = world.brokers[MASTER]
    await world.until(lambda: master.services.role.role is Role.MASTER)
    return master


@asynccontextmanager
async def committing(world: World) -> AsyncIterator[list[tuple[bytes, float]]]:
    """A producer of the group "shop", known to all masters, that commits at each check; gives the bodies and
    times of its checks.
    """
    asked: list[tuple[bytes, float]] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append((message.body, world.clock.monotonic()))
        return TransactionState.COMMIT

    async with world.transaction_producer("shop", check=check) as producer:
        for _ in range(8):
            await producer.send(Message("beats", b"so that all masters know this producer"))
        yield asked


def handed_on(world: World, name: str) -> list[int]:
    """The half messages that a broker records as passed on to another broker group."""
    return list(world.brokers[name].part(HalfEscape)._escaped)


def times(asked: list[tuple[bytes, float]]) -> Counter[bytes]:
    """The number of checks of each message."""
    return Counter(body for body, _ in asked)


def everywhere(world: World, topic: str) -> Counter[bytes]:
    return Counter(record.body for name in (MASTER, OTHER) for record in stored(world.brokers[name], topic))


@pytest.mark.behaviour("SS-02")
async def test_each_delayed_message_comes_once_whoever_delivers_it(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    master = world.brokers[MASTER]
    for number in range(60):
        put(master, "orders", b"level %d" % number, DELAY=str(1 + number % 4), UNIQ_KEY=f"L{number}")
        await world.sleep(0.02)
    await world.sleep(3)
    slave = await lose(world)
    before = len(stored(slave, "orders"))
    assert before > 10
    await world.sleep(12)
    assert len(stored(slave, "orders")) == before
    assert len(stored(world.brokers[OTHER], "orders")) > 20
    await come_back(world)
    await world.sleep(40)
    found = everywhere(world, "orders")
    assert len(found) == 60
    assert {body: count for body, count in found.items() if count != 1} == {}


@pytest.mark.behaviour("DL-09")
async def test_a_slave_whose_clock_is_behind_knows_what_its_master_delivered(orbitmq_world: World) -> None:
    """Seed 469: the slave's clock says that the message is not due, so the slave has to find the delivery in
    the log.
    """
    world = orbitmq_world
    await ready(world, "orders")
    world.machines[MASTER].skew_ms = 4000
    put(world.brokers[MASTER], "orders", b"once", DELAY="2", UNIQ_KEY="K")
    slave = world.brokers[SLAVE]
    await world.until(lambda: len(stored(slave, "orders")) == 1, timeout_s=10)
    world.crash(MASTER)
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER, timeout_s=5)
    await world.sleep(10)
    assert stored(world.brokers[OTHER], "orders") == []
    await come_back(world)
    await world.sleep(10)
    assert everywhere(world, "orders") == Counter({b"once": 1})


@pytest.mark.parametrize("delay", [{"DELAY": "2"}, {"TIMER_DELAY_MS": "6000"}], ids=["level", "timer"])
async def test_a_slave_that_makes_way_does_not_complain_of_what_its_master_delivers(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture, delay: dict[str, str]
) -> None:
    world = orbitmq_world
    await world.until(lambda: world.brokers[MASTER].services.role.role is Role.MASTER)
    # No other broker group has the topic, so the message waits.
    world.brokers[MASTER].services.topics.create_if_absent("lonely", 4)
    put(world.brokers[MASTER], "lonely", b"waits", UNIQ_KEY="W", **delay)
    await lose(world)
    await world.sleep(10)
    master = await come_back(world)
    await world.until(lambda: len(stored(master, "lonely")) == 1)
    await world.sleep(10)
    assert not [line for line in caplog.messages if "no right to lead" in line]


@pytest.mark.behaviour("ES-14")
@pytest.mark.behaviour("ES-15")
@pytest.mark.parametrize("killed", [False, True], ids=["called back", "slave killed"])
@pytest.mark.parametrize("delay", [{"DELAY": "2"}, {"TIMER_DELAY_MS": "6000"}], ids=["level", "timer"])
async def test_a_message_that_overtook_a_refused_one_comes_once(
    orbitmq_world: World, *, delay: dict[str, str], killed: bool
) -> None:
    """Seed 196: the progress of a level, or of timers, is one offset; a message that passed it must not be
    repeated.
    """
    world = orbitmq_world
    await ready(world, "orders")
    master = world.brokers[MASTER]
    master.services.topics.create_if_absent("here", 4)
    await world.until(lambda: "here" in world.brokers[SLAVE].services.topics, timeout_s=1)
    for number, topic in enumerate(["orders", "here", "orders", "orders", "here", "orders"]):
        put(master, topic, b"%d of %s" % (number, topic.encode()), UNIQ_KEY=f"K{number}", **delay)
    await lose(world)
    await world.until(lambda: len(stored(world.brokers[OTHER], "orders")) == 4, timeout_s=10)
    await world.sleep(3)
    if killed:
        world.crash(SLAVE, keep=Keep.ANY)
        await world.start_broker(SLAVE)
    await come_back(world)
    await world.sleep(10)
    assert everywhere(world, "orders") == Counter({b"%d of orders" % number: 1 for number in (0, 2, 3, 5)})
    assert everywhere(world, "here") == Counter({b"%d of here" % number: 1 for number in (1, 4)})


@pytest.mark.behaviour("ES-11")
async def test_timer_messages_escape_as_well(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    for number in range(20):
        body, delay = b"timer %d" % number, str(1000 + 500 * number)
        put(world.brokers[MASTER], "orders", body, TIMER_DELAY_MS=delay, UNIQ_KEY=f"T{number}")
    await world.sleep(2)
    await lose(world)
    begin = len(stored(world.brokers[OTHER], "orders"))
    await world.sleep(12)
    there = stored(world.brokers[OTHER], "orders")
    assert len(there) - begin >= 15
    assert not any("TIMER_DELAY_MS" in decode_properties(record.properties) for record in there)
    await come_back(world)
    await world.sleep(20)
    assert everywhere(world, "orders") == Counter({b"timer %d" % number: 1 for number in range(20)})


@pytest.mark.behaviour("ES-11")
async def test_timers_that_escaped_in_the_moment_in_which_a_slave_acted_are_known(
    orbitmq_world: World,
) -> None:
    """Seed 217: the timer log was not on the device, but the deliveries have to be recorded all the same."""
    world = orbitmq_world
    await ready(world, "orders")
    put(world.brokers[MASTER], "orders", b"timer", TIMER_DELAY_MS="5000", UNIQ_KEY="T")
    due_ms = world.clock.now_ms() + 5000
    slave = await lose(world)
    await world.sleep((due_ms - world.clock.now_ms()) / 1000)
    for _ in range(10_000):
        if stored(world.brokers[OTHER], "orders"):
            break
        await world.sleep(0.0001)
    await slave.change_role(Role.SLAVE)
    assert due_of(slave.part(TimerService).written.saved.done) >= due_ms


@pytest.mark.behaviour("TW-10")
@pytest.mark.orbitmq(
    brokers=2,
    replicas=2,
    settings={**ESCAPING, "timerRollWindowSlot": "60", "recallMessageEnable": "true"},
)
async def test_a_long_timer_that_was_taken_back_does_not_go_to_another_group(orbitmq_world: World) -> None:
    """The recall waits at this broker for the same second, and the other master does not know it."""
    world = orbitmq_world
    await ready(world, "orders")
    async with world.producer() as producer:
        queue = next(each for each in await producer.queues("orders") if each.broker_name == MASTER)
        sent = [
            await producer.send(Message("orders", body, delay=90), queue=queue)
            for body in (b"wanted", b"taken back")
        ]
        await producer.recall("orders", sent[1].recall_handle)
    await lose(world)
    await world.sleep(95)
    assert [record.body for record in stored(world.brokers[OTHER], "orders")] == [b"wanted"]
    await come_back(world)
    await world.sleep(10)
    assert everywhere(world, "orders") == Counter({b"wanted": 1})


@pytest.mark.behaviour("TW-11")
@pytest.mark.orbitmq(
    brokers=2,
    replicas=2,
    settings={**ESCAPING, "timerRollWindowSlot": "60", "recallMessageEnable": "true"},
)
async def test_a_long_timer_that_went_to_another_group_is_not_taken_back(orbitmq_world: World) -> None:
    """Seed 232: other long timers wait, but the recall must not report success."""
    world = orbitmq_world
    await ready(world, "orders")
    async with world.producer() as producer:
        queue = next(each for each in await producer.queues("orders") if each.broker_name == MASTER)
        sent = await producer.send(Message("orders", b"gone", delay=90), queue=queue)
        await lose(world)
        await world.sleep(70)
        await come_back(world)
        await world.sleep(5)
        stays = await producer.send(Message("orders", b"stays", delay=90), queue=queue)
        with pytest.raises(BrokerError, match="no message") as refused:
            await producer.recall("orders", sent.recall_handle)
        assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
        await producer.recall("orders", stays.recall_handle)
    await world.sleep(100)
    assert everywhere(world, "orders") == Counter({b"gone": 1})


@pytest.mark.behaviour("TW-18")
async def test_a_slave_knows_what_waits_before_it_acts(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    for number in range(700):
        delay = str(1000 + 50 * number if number < 100 else 30_000 + 10 * number)
        put(world.brokers[MASTER], "orders", b"%d" % number, TIMER_DELAY_MS=delay, UNIQ_KEY=f"T{number}")
    await world.sleep(10)
    pending = world.brokers[SLAVE].part(TimerService).pending
    # The entries of the master's deliveries are dropped, except those of the last second.
    assert (pending.position, pending.first) == (700, None)
    assert 600 <= sum(pending.waiting.values()) <= 620
    slave = await lose(world)
    await world.sleep(1)
    assert sum(slave.part(TimerService).pending.waiting.values()) == 600
    await world.sleep(60)
    await come_back(world)
    await world.sleep(20)
    assert everywhere(world, "orders") == Counter({b"%d" % number: 1 for number in range(700)})


@pytest.mark.behaviour("TX-02")
@pytest.mark.behaviour("TX-03")
@pytest.mark.behaviour("TX-04")
@pytest.mark.behaviour("TX-07")
async def test_an_open_transaction_is_asked_about_once_by_the_broker_that_got_it(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    master = world.brokers[MASTER]
    async with committing(world) as asked:
        begin = world.clock.monotonic()
        for number in range(10):
            put(
                master,
                "orders",
                b"half %d" % number,
                TRAN_MSG="true",
                PGROUP="shop",
                UNIQ_KEY=f"H{number}",
                **({"DELAY": "1"} if number == 9 else {}),
            )
        await lose(world)
        await world.sleep(15)
        assert times(asked) == Counter({b"half %d" % number: 1 for number in range(10)})
        assert max(at for _, at in asked) - begin <= 6 + 2
        there = stored(world.brokers[OTHER], "orders")
        assert {record.body for record in there} == {b"half %d" % number for number in range(10)}
        properties = decode_properties(there[0].properties)
        assert properties["PGROUP"] == "shop"
        master = await come_back(world)
        await world.sleep(100)
        assert len(asked) == 10
        assert set(everywhere(world, "orders").values()) == {1}
        assert master.services.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 10


@pytest.mark.behaviour("TX-10")
@pytest.mark.orbitmq(
    brokers=2,
    replicas=2,
    settings={**ESCAPING, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"},
)
@pytest.mark.parametrize("hangs", [False, True], ids=["", "its disk hangs"])
async def test_a_transaction_whose_end_went_with_the_end_of_a_log_is_asked_about_again(
    orbitmq_world: World, *, hangs: bool
) -> None:
    """Seed 2627: an acting slave knows that the transaction has ended; the master lost its end, and has to
    check it.
    """
    world = orbitmq_world
    await ready(world, "orders")
    async with committing(world) as asked:
        put(world.brokers[MASTER], "orders", b"half", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="H")
        await world.brokers[MASTER].services.store.flush()
        if hangs:
            world.machines[SLAVE].disk_delay_s = 1000
        slave = world.brokers[SLAVE].services
        await world.until(lambda: len(stored(world.brokers[SLAVE], "orders")) == 1)
        await world.sleep(0.01)
        world.crash(MASTER, keep=Keep.NOTHING)
        await world.until(lambda: slave.role.role is Role.ACTING_MASTER, timeout_s=5)
        await world.sleep(5)
        progress = slave.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0)
        assert progress == (None if hangs else 2)  # the check stored a copy
        world.crash(SLAVE, keep=Keep.NOTHING if hangs else Keep.ANY)
        world.machines[SLAVE].disk_delay_s = 0
        await world.start_broker(MASTER)
        master = world.brokers[MASTER].services
        await world.until(lambda: master.role.role is Role.FENCED)
        put(world.brokers[MASTER], "orders", b"its tail is another one")
        await world.start_broker(SLAVE)
        await world.sleep(60)
    assert times(asked) == Counter({b"half": 2})
    assert everywhere(world, "orders") == Counter({b"half": 1, b"its tail is another one": 1})


@pytest.mark.behaviour("TX-08")
@pytest.mark.parametrize("again", [False, True], ids=["once", "the slave acts again"])
async def test_a_master_that_asked_in_vain_does_not_ask_for_what_its_slave_has_handed_on(
    orbitmq_world: World, *, again: bool
) -> None:
    """Seed 74: each check stores a copy of the half message, which a slave that is cut off from its master
    lacks.

    Seed 7978: the slave gets the copy when the master returns, and must not pass it on when the master is
    killed.
    """
    world = orbitmq_world
    await ready(world, "orders")
    async with committing(world) as asked:
        master, slave = world.brokers[MASTER].services, world.brokers[SLAVE].services
        begin = world.clock.monotonic()
        put(world.brokers[MASTER], "orders", b"half", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="H")
        await copied(world)
        # The master checks 6 s after the message, within the 3.5 s for which its right to lead lasts.
        await world.sleep(begin + 5 - world.clock.monotonic())
        world.partition(MASTER)
        await world.until(lambda: bool(asked))
        await world.sleep(1)
        halves = [each.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) for each in (master, slave)]
        assert halves == [2, 1]
        # The master's checks during the cut do not reach the producer later.
        world.disconnect(MASTER)
        world.heal()
        if again:
            # It is killed before it has marked the copies as ended.
            await world.until(lambda: master.role.role is Role.MASTER)
            assert slave.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2
            world.crash(MASTER, keep=Keep.ANY)
            await world.until(lambda: slave.role.role is Role.ACTING_MASTER, timeout_s=10)
            await world.sleep(90)  # past the time of another check
            master = (await come_back(world)).services
        await world.until(lambda: master.role.role is Role.MASTER)
        await world.sleep(100)
    assert times(asked) == Counter({b"half": 1})
    assert everywhere(world, "orders") == Counter({b"half": 1})
    assert master.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2


@pytest.mark.behaviour("TX-02")
async def test_what_was_handed_on_is_forgotten_when_it_is_marked_however_often_a_slave_acts(
    orbitmq_world: World,
) -> None:
    """Otherwise the table would grow with each failover."""
    world = orbitmq_world
    await ready(world, "orders")

    for turn in range(3):
        for number in range(5):
            put(
                world.brokers[MASTER],
                "orders",
                b"half %d" % number,
                TRAN_MSG="true",
                PGROUP="shop",
                UNIQ_KEY=f"H{turn}-{number}",
            )
        await lose(world)
        await world.until(lambda: len(handed_on(world, SLAVE)) == 5)
        # A slave that is lost as well, and acts again, has each of them once.
        world.crash(SLAVE, keep=Keep.ANY)
        await world.start_broker(SLAVE)
        await world.until(lambda: world.brokers[SLAVE].services.role.role is Role.ACTING_MASTER)
        await world.sleep(10)
        assert handed_on(world, SLAVE) == list(range(5 * turn, 5 * turn + 5))
        await come_back(world)
        await world.until(lambda: handed_on(world, MASTER) == handed_on(world, SLAVE) == [])


@pytest.mark.behaviour("PO-31")
async def test_a_half_message_told_once_more_as_handed_on_is_marked_once_more_and_nothing_else(
    orbitmq_world: World,
) -> None:
    """A slave that missed the mark reports the message again, and the report still holds."""
    world = orbitmq_world
    await ready(world, "orders")

    async with committing(world) as asked:
        put(world.brokers[MASTER], "orders", b"half", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="H")
        await lose(world)
        await world.until(lambda: handed_on(world, SLAVE) == [0])
        await come_back(world)
        await world.until(lambda: handed_on(world, MASTER) == handed_on(world, SLAVE) == [])
        world.brokers[SLAVE].part(HalfEscape)._escaped.add(0)
        await lose(world)
        master = await come_back(world)
        assert handed_on(world, MASTER) == [0]
        put(master, "orders", b"later", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="I")
        await world.until(lambda: handed_on(world, MASTER) == handed_on(world, SLAVE) == [])
        await world.sleep(100)
    once = Counter({b"half": 1, b"later": 1})
    assert times(asked) == everywhere(world, "orders") == once


@pytest.mark.behaviour("TX-05")
@pytest.mark.behaviour("TX-06")
async def test_half_messages_wait_for_another_master_as_long_as_it_takes(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    put(world.brokers[MASTER], "orders", b"half", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="H")
    await copied(world)
    world.crash(OTHER, keep=Keep.ANY)
    world.crash("broker-b-1", keep=Keep.ANY)
    slave = await lose(world)
    await world.sleep(120)
    assert len(list(slave.part(HalfEscape)._escaped)) == 0
    await world.start_broker(OTHER)
    await world.sleep(10)
    store = world.brokers[OTHER].services.store
    assert store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) >= 1


@pytest.mark.behaviour("TX-01")
async def test_a_slave_that_acts_ends_no_transaction(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    slave = await lose(world)
    end = {
        "producerGroup": "shop",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "m",
    }
    client = RemotingClient(world.runtime)
    answer = await client.request(slave.address, Command(RequestCode.END_TRANSACTION, end), 3000)
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    await client.close()


@pytest.mark.behaviour("MO-13")
async def test_a_topic_made_a_moment_before_the_fault_is_readable_and_offsets_are_there(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    master = world.brokers[MASTER]
    master.services.topics.create_if_absent("young", 4)
    for number in range(20):
        put(master, "young", b"%d" % number)
    master.services.offsets.commit("billing", "young", 0, 12)
    await world.sleep(0.2)
    slave = await lose(world)
    async with world.consumer("billing") as consumer:
        consumer.subscribe("young")
        got = []
        async for message in consumer:
            got.append(message.body)
            if message.body == b"19":
                break
    assert got == [b"%d" % number for number in range(12, 20)]
    committed = slave.services.offsets.query("billing", "young", 0)
    assert committed is not None
    assert committed >= 19
    back = await come_back(world)
    assert back.services.offsets.query("billing", "young", 0) == committed
    await world.sleep(30)
    for name in (MASTER, SLAVE):
        assert world.brokers[name].services.offsets.query("billing", "young", 0) == committed


@pytest.mark.behaviour("PO-10")
async def test_an_acting_masters_tables_are_newer_for_a_master_of_rocketmq(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    client = RemotingClient(world.runtime)

    async def versions(address: str) -> list[int]:
        found = []
        for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET):
            answer = await client.request(address, Command(code), 3000)
            found.append(json.loads(bytes(answer.body))["dataVersion"]["stateVersion"])
        answer = await client.request(address, Command(RequestCode.GET_TIMER_CHECK_POINT), 3000)
        return [*found, struct.unpack(">7q", bytes(answer.body))[4]]

    before = await versions(world.brokers[MASTER].address)
    slave = await lose(world)
    after = await versions(slave.address)
    assert all(old < new for old, new in zip(before, after, strict=True)), (before, after)
    await client.close()


def put_twenty_of_each(master: Broker) -> None:
    """Store messages of a delay level, timers and half messages."""
    for number in range(20):
        put(master, "orders", b"level %d" % number, DELAY="2", UNIQ_KEY=f"L{number}")
        put(master, "orders", b"timer %d" % number, TIMER_DELAY_MS="5000", UNIQ_KEY=f"T{number}")
        half = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": f"H{number}"}
        put(master, "orders", b"half %d" % number, **half)


async def test_an_acting_master_that_is_killed_goes_on_where_it_was(orbitmq_world: World) -> None:
    world = orbitmq_world
    await ready(world, "orders")
    put_twenty_of_each(world.brokers[MASTER])
    await lose(world)
    await world.until(lambda: len(first_halves(world.brokers[OTHER])) == 20)
    await world.sleep(0.5)
    world.crash(SLAVE)
    await world.start_broker(SLAVE)
    await world.until(lambda: world.brokers[SLAVE].services.role.role is Role.ACTING_MASTER)
    await world.sleep(20)
    there = world.brokers[OTHER]
    assert len(stored(there, "orders")) == 40
    assert first_halves(there) == Counter({b"half %d" % number: 1 for number in range(20)})


@pytest.mark.behaviour("PO-44")
async def test_a_master_that_is_lost_as_soon_as_it_is_back_does_nothing_again(orbitmq_world: World) -> None:
    """Its slave has stepped down, and neither log holds the messages that went to the other broker group."""
    world = orbitmq_world
    await ready(world, "orders")
    async with committing(world) as asked:
        put_twenty_of_each(world.brokers[MASTER])
        slave = await lose(world)
        await world.until(lambda: len(first_halves(world.brokers[OTHER])) == 20)
        await world.sleep(0.5)
        await come_back(world)
        await world.until(lambda: not slave.part(StateExchange).acted.term, timeout_s=5)
        for name in (MASTER, SLAVE):
            world.crash(name)
        await come_back(world)
        await world.sleep(100)
    assert set(everywhere(world, "orders").values()) == {1}
    assert len(stored(world.brokers[OTHER], "orders")) >= 40
    assert set(times(asked).values()) == {1}
    assert len(asked) == 20


def first_halves(broker: Broker) -> Counter[bytes]:
    """The half messages that producers sent to this broker, without their copies."""
    halves = stored(broker, "RMQ_SYS_TRANS_HALF_TOPIC")
    return Counter(
        record.body
        for record in halves
        if "TRAN_PREPARED_QUEUE_OFFSET" not in decode_properties(record.properties)
    )


@pytest.mark.parametrize("kind", ["timer", "delayed"])
async def test_a_master_that_lived_on_delivers_nothing_again(orbitmq_world: World, kind: str) -> None:
    """The master was fenced while it could not reach the name server, and its slave delivered meanwhile."""
    world = orbitmq_world
    await ready(world, "orders")
    master = world.brokers[MASTER]
    now = world.clock.now_ms()
    for number in range(100):
        delay = {"TIMER_DELIVER_MS": str(now + 1000 + 200 * number)} if kind == "timer" else {"DELAY": "2"}
        put(master, "orders", b"%d" % number, **delay, UNIQ_KEY=f"T{number}")
        await world.sleep(0.1 if kind == "delayed" else 0)
    await copied(world)
    hosts = [world.machines[name].host for name in ("nameserver", MASTER)]
    world.runtime.network.partition(hosts[:1], hosts[1:])
    slave = world.brokers[SLAVE]
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER, timeout_s=10)
    await world.sleep(3)
    world.heal()
    await world.until(lambda: master.services.role.role is Role.MASTER, timeout_s=10)
    await world.sleep(40)
    found = everywhere(world, "orders")
    assert len(found) == 100
    assert {body: count for body, count in found.items() if count != 1} == {}


@pytest.mark.parametrize(("kind", "seed"), [("timer", 1), ("timer", 2), ("delayed", 1)])
async def test_a_master_that_thaws_delivers_nothing_again(orbitmq_world: World, kind: str, seed: int) -> None:
    """The master was frozen while its slave delivered its messages; when it thaws, all its timers are due.

    The seed chooses how much of its timer log is on the device, which limits the progress that it saves.
    """
    world = orbitmq_world
    # Start the master again, in a process that can be frozen.
    await world.stop_broker(MASTER)
    await world.machines[MASTER].begin(world.start_broker(MASTER))
    await ready(world, "orders")
    master = world.brokers[MASTER]
    for number in range(100):
        delay = {"TIMER_DELAY_MS": str(3000 + 97 * number)} if kind == "timer" else {"DELAY": "2"}
        put(master, "orders", b"%d" % number, **delay, UNIQ_KEY=f"T{number}")
        await world.sleep(0.1)
    await copied(world)
    await world.sleep(random.Random(seed).random())
    put(master, "orders", b"last", **delay, UNIQ_KEY="last")
    await world.sleep(0.01)
    world.machines[MASTER].freeze()
    slave = world.brokers[SLAVE]
    await world.until(lambda: slave.services.role.role is Role.ACTING_MASTER, timeout_s=10)
    await world.sleep(6)
    world.machines[MASTER].thaw()
    await world.until(
        lambda: (
            master.services.role.role is Role.MASTER and slave.services.role.role is not Role.ACTING_MASTER
        ),
        timeout_s=10,
    )
    await world.sleep(40)
    found = everywhere(world, "orders")
    assert len(found) == 101
    assert {body: count for body, count in found.items() if count != 1} == {}


@pytest.mark.parametrize("acting_s", [0.2, 1.5])
async def test_a_master_that_thaws_asks_about_no_transaction_that_its_slave_gave_away(
    orbitmq_world: World, acting_s: float
) -> None:
    """All its half messages are due when it thaws, before it notices that it does not lead any more."""
    world = orbitmq_world
    # Start the master again, in a process that can be frozen.
    await world.stop_broker(MASTER)
    await world.machines[MASTER].begin(world.start_broker(MASTER))
    await ready(world, "orders")
    master = world.brokers[MASTER]
    async with committing(world) as asked:
        for number in range(50):
            half = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": f"H{number}"}
            put(master, "orders", b"half %d" % number, **half)
            await world.sleep(0.1)
        await copied(world)
        world.machines[MASTER].freeze()
        slave = world.brokers[SLAVE].services
        await world.until(lambda: slave.role.role is Role.ACTING_MASTER, timeout_s=10)
        await world.sleep(acting_s)
        world.machines[MASTER].thaw()
        await world.sleep(60)
    assert set(everywhere(world, "orders").items()) == {(b"half %d" % number, 1) for number in range(50)}
    assert set(times(asked).values()) == {1}
