"""Clients of a broker group that has lost its master, with or without a slave in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, never, producer_of, running, until
from tests.conversation.scripted_cluster import ScriptedBroker

from orbitmq import ConsumeFrom, Message, MessageQueue, PullConsumer, Reader, ReceivedMessage
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.errors import BrokerError, OrbitError, SendError
from orbitmq.wire.bodies.client import HeartbeatData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

QUEUE = MessageQueue("t", "a", 0)
PULL = RequestCode.PULL_MESSAGE
LITE_PULL = RequestCode.LITE_PULL_MESSAGE


@asynccontextmanager
async def slave_of(world: Any, name: str = "a", broker_id: int = 1) -> AsyncIterator[ScriptedBroker]:
    """A slave beside the master, with the messages that the master has at this moment."""
    master = world.brokers[name]
    slave = ScriptedBroker(world, f"{name}-{broker_id}")
    slave.queues.update(master.queues)
    await slave.start()
    world.members.setdefault(name, {0: master})[broker_id] = slave
    try:
        yield slave
    finally:
        await slave.stop()


def master_is_lost(world: Any, slave: ScriptedBroker, name: str = "a", *, acting: bool = True) -> None:
    """Change the routes: an acting master is a slave with id 0 and without write permission (NR-08)."""
    world.members[name] = {0 if acting else 1: slave}
    if acting:
        world.perms[name] = 4


def master_is_back(world: Any, slave: ScriptedBroker, name: str = "a") -> None:
    world.members[name] = {0: world.brokers[name], 1: slave}
    world.perms.pop(name, None)


async def ignore(message: ReceivedMessage) -> None:
    return None


# -- producers -----------------------------------------------------------------------------------------


@pytest.mark.scripted("a", "b")
@pytest.mark.behaviour("MO-01", "NR-11")
@pytest.mark.parametrize("acting", [True, False])
async def test_producers_leave_a_group_without_a_master_and_return_within_a_second(
    world: Any, acting: bool
) -> None:
    world.topics["t"] = {"a": 2, "b": 2}
    async with slave_of(world) as slave, producer_of(world, retries=0) as producer:
        await producer.send(Message("t", b"x"))
        await asyncio.sleep(60)
        master_is_lost(world, slave, acting=acting)
        await world.brokers["a"].stop()
        failed = 0
        for _ in range(40):
            try:
                await producer.send(Message("t", b"x"))
            except SendError:
                failed += 1
            await asyncio.sleep(0.05)
        assert failed <= 1
        assert not slave.requests(RequestCode.SEND_MESSAGE_V2)
        await asyncio.sleep(120)
        await world.brokers["a"].start()
        seen = len(world.brokers["a"].requests(RequestCode.SEND_MESSAGE_V2))
        master_is_back(world, slave)
        await asyncio.sleep(1)
        for _ in range(4):
            await producer.send(Message("t", b"x"))
        assert len(world.brokers["a"].requests(RequestCode.SEND_MESSAGE_V2)) > seen


@pytest.mark.behaviour("MO-01")
async def test_without_another_group_there_is_nothing_to_write_to(world: Any) -> None:
    world.topics["t"] = {"a": 2}
    async with slave_of(world) as slave, producer_of(world, retries=0, timeout=1) as producer:
        await producer.send(Message("t", b"x"))
        master_is_lost(world, slave)
        await world.brokers["a"].stop()
        with pytest.raises(SendError):
            await producer.send(Message("t", b"x"))
        await asyncio.sleep(1)
        with pytest.raises(SendError, match="no writable queue") as caught:
            await producer.send(Message("t", b"x"))
        assert caught.value.code == 10005


@pytest.mark.behaviour("MO-01")
async def test_a_named_queue_fails_in_the_client_or_is_refused_by_the_slave(world: Any) -> None:
    world.topics["t"] = {"a": 2}
    async with slave_of(world) as slave, producer_of(world, retries=0) as producer:

        def refuses(command: Command) -> Any:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave")
            return "default"

        slave.script = refuses
        master_is_lost(world, slave)
        with pytest.raises(SendError) as refused:
            await producer.send(Message("t", b"x"), queue=QUEUE)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        master_is_lost(world, slave, acting=False)
        await asyncio.sleep(1)
        with pytest.raises(SendError) as unknown:
            await producer.send(Message("t", b"x"), queue=QUEUE)
        assert unknown.value.code == 10003


# -- consumers: the brokers of their requests ------------------------------------------------------------


@pytest.mark.behaviour("MO-02", "MO-06")
async def test_the_members_are_asked_for_at_the_master_else_at_a_slave(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"one")
    async with slave_of(world) as slave:
        got: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with running(consumer_of(world), listener):
            await until(world, lambda: got == [b"one"])
            assert not slave.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
            # The slave knows the consumer from its heartbeat, although the consumer has sent it no request.
            assert slave.requests(RequestCode.HEART_BEAT)
        await world.brokers["a"].stop()
        master_is_lost(world, slave, acting=False)
        async with running(consumer_of(world), listener):
            await until(world, lambda: slave.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))


@pytest.mark.behaviour("MO-06")
async def test_a_producer_greets_masters_only(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with slave_of(world) as slave, producer_of(world) as producer:
        await producer.send(Message("t", b"x"))
        await asyncio.sleep(70)
        beats = [HeartbeatData.decode(c.body) for c in world.brokers["a"].requests(RequestCode.HEART_BEAT)]
        assert [len(beat.producer_data_set) for beat in beats] == [1] * len(beats) != []
        assert not slave.requests(RequestCode.HEART_BEAT)


@pytest.mark.behaviour("MO-03")
async def test_offsets_are_asked_for_and_committed_at_any_replica(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    master.offsets["cg", "t", 0], calls = 7, None
    async with slave_of(world) as slave, consumer_of(world) as consumer:
        slave.offsets["cg", "t", 0] = 5
        calls = BrokerCalls(consumer._client)
        assert (await calls.committed("cg", QUEUE)).offset == 7
        assert not slave.requests(RequestCode.QUERY_CONSUMER_OFFSET)
        # No broker is at the master's address, so the slave in the same route responds.
        await master.stop()
        assert (await calls.committed("cg", QUEUE)).offset == 5
        await calls.commit("cg", QUEUE, 6, wait=True)
        assert slave.offsets["cg", "t", 0] == 6
        # If the route has no master, the slave gets the first request.
        master_is_lost(world, slave, acting=False)
        await asyncio.sleep(1)
        assert (await calls.committed("cg", QUEUE)).offset == 6
        await calls.commit("cg", QUEUE, 8, wait=False)
        await asyncio.sleep(0.1)
        assert slave.offsets["cg", "t", 0] == 8


@pytest.mark.behaviour("MO-03")
async def test_a_master_that_only_hangs_is_not_passed_over(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with slave_of(world) as slave, consumer_of(world) as consumer:
        world.brokers["a"].script = lambda command: (
            never(command) if command.code == RequestCode.QUERY_CONSUMER_OFFSET else "default"
        )
        slave.offsets["cg", "t", 0] = 5
        with pytest.raises(OrbitError):
            await BrokerCalls(consumer._client).committed("cg", QUEUE)
        assert not slave.requests(RequestCode.QUERY_CONSUMER_OFFSET)


@pytest.mark.behaviour("MO-05", "MO-16")
async def test_progress_goes_with_pulls_to_the_master_and_every_five_seconds(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    async with running(consumer_of(world), ignore):
        await until(world, lambda: master.requests(PULL))
        for number in range(3):
            master.store("t", b"%d" % number)
            await asyncio.sleep(1)
        carried = [int(c.ext["commitOffset"]) for c in master.requests(PULL) if int(c.ext["sysFlag"]) & 1]
        assert carried == sorted(carried)
        assert carried[-1] == 2
        for number in range(40):
            master.store("t", b"%d" % number)
            await asyncio.sleep(0.5)
        times = master.times(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert len(times) >= 4
        assert all(later - earlier == pytest.approx(5, abs=0.1) for earlier, later in pairwise(times))
        assert all(one.is_oneway for one in master.requests(RequestCode.UPDATE_CONSUMER_OFFSET))


# -- pulls ---------------------------------------------------------------------------------------------


def suggesting(broker: ScriptedBroker, broker_id: int) -> None:
    """Pulls that find messages get a response that suggests this broker id for the next pull."""
    pull = broker._on_pull_message

    async def answer(connection: Any, command: Command) -> Command:
        found = await pull(connection, command)
        found.ext["suggestWhichBrokerId"] = str(broker_id)
        return found

    broker._on_pull_message = answer  # type: ignore[method-assign]


@pytest.mark.behaviour("MO-04", "MO-16")
async def test_pulls_follow_the_suggestion_and_carry_no_progress_to_a_slave(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    for number in range(3):
        master.store("t", b"%d" % number)
    async with slave_of(world) as slave:
        suggesting(master, 1)
        suggesting(slave, 1)
        async with running(consumer_of(world, pull_batch_size=1), ignore):
            await until(world, lambda: len(slave.requests(PULL)) >= 3)
        assert len(master.requests(PULL)) == 1
        assert not [c for c in slave.requests(PULL) if int(c.ext["sysFlag"]) & 1]


@pytest.mark.behaviour("MO-04")
@pytest.mark.parametrize(("suggested", "used"), [(2, 2), (1, 2), (7, 0)])
async def test_a_slave_that_is_not_there_is_replaced_by_the_next_else_by_any(
    world: Any, suggested: int, used: int
) -> None:
    world.topics["t"] = {"a": 1}
    async with slave_of(world, broker_id=2) as slave:
        async with consumer_of(world) as consumer:
            route = await consumer._client.find_route("t", for_send=False)
        members = {0: world.brokers["a"], 2: slave}
        assert route.reader("a", suggested) == (members[used].address, used != 0)
        assert route.reader("b", 0) is None


def at_once(broker: ScriptedBroker, code: int, suggested: int = 0) -> None:
    """Every pull gets a response at once, without a message and with an unchanged offset."""

    def answer(command: Command) -> Any:
        if command.code not in (PULL, LITE_PULL):
            return "default"
        found = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": command.ext["queueOffset"],
            "minOffset": "0",
            "maxOffset": "0",
        }
        return command.reply(code, ext=found)

    broker.script = answer


@pytest.mark.behaviour("MO-12")
@pytest.mark.parametrize("code", [ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND])
async def test_a_consumer_rests_when_pulls_bring_nothing_and_do_not_wait(world: Any, code: int) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    at_once(master, code)
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with running(consumer_of(world), listener):
        await asyncio.sleep(60)
        assert 15 <= len(master.requests(PULL)) <= 35
        master.script = None
        master.store("t", b"there")
        await until(world, lambda: got == [b"there"], 3.1)


@pytest.mark.behaviour("MO-12")
async def test_a_slave_and_a_master_that_name_each_other_do_not_keep_a_consumer_busy(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    async with slave_of(world) as slave:
        at_once(world.brokers["a"], ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
        at_once(slave, ResponseCode.PULL_RETRY_IMMEDIATELY, 0)
        async with running(consumer_of(world), ignore):
            await asyncio.sleep(60)
        assert 5 <= len(world.brokers["a"].requests(PULL)) <= 20
        assert 5 <= len(slave.requests(PULL)) <= 20


@pytest.mark.behaviour("MO-12")
async def test_assigned_queues_rest_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    at_once(world.brokers["a"], ResponseCode.PULL_RETRY_IMMEDIATELY)
    options: dict[str, Any] = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with PullConsumer("g", consume_from=ConsumeFrom.FIRST, **options) as consumer:
        consumer.assign([QUEUE])
        assert await consumer.poll(timeout=10) == []
        assert 2 <= len(world.brokers["a"].requests(LITE_PULL)) <= 60


@pytest.mark.behaviour("MO-12")
async def test_a_reader_that_follows_rests_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    at_once(master, ResponseCode.PULL_RETRY_IMMEDIATELY)
    options: dict[str, Any] = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with Reader("t", follow=True, **options) as reader, aclosing(reader.messages()) as messages:
        first = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(60)
        assert 15 <= len(master.requests(PULL)) <= 65
        master.script = None
        master.store("t", b"there")
        assert (await asyncio.wait_for(first, 2)).body == b"there"


@pytest.mark.behaviour("MO-12")
async def test_a_reader_does_not_wait_for_ever_for_the_messages_that_its_broker_promised(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    master.store("t", b"never given")
    at_once(master, ResponseCode.PULL_RETRY_IMMEDIATELY)
    options: dict[str, Any] = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with Reader("t", **options) as reader:
        with pytest.raises(BrokerError, match="nothing from offset 0 on"):
            await asyncio.wait_for(anext(reader.messages()), 60)
    assert len(master.requests(PULL)) <= 20


@pytest.mark.parametrize("told", [True, False])
async def test_a_pull_that_hangs_at_a_frozen_master_ends_when_the_route_has_changed(
    world: Any, told: bool
) -> None:
    """The acting slave notifies its consumers; without that notice the route is fetched at its usual
    interval.
    """
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with slave_of(world) as slave, running(consumer_of(world), listener):
        await until(world, lambda: master.requests(PULL))
        await asyncio.sleep(40)
        master.script = never
        await asyncio.sleep(4)
        slave.store("t", b"at the slave")
        master_is_lost(world, slave)
        if told:
            slave._notify("master")
        took = await until(world, lambda: got == [b"at the slave"], 31)
        assert took <= (1.5 if told else 30)


@pytest.mark.behaviour("MO-14")
async def test_a_consumer_that_starts_before_the_name_server_goes_on_trying(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].store("t", b"first")
    await world.stop_name_server()
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with running(consumer_of(world), listener):
        await asyncio.sleep(45)
        assert got == []
        await world._server.start("127.0.0.1", 9876)
        await until(world, lambda: got == [b"first"], 5)


# -- locks ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("MO-07")
async def test_who_grants_the_lock_says_where_the_queue_goes_on(world: Any) -> None:
    """Seed 24149: name servers drop a living master, and a slave that has just restarted takes its place."""
    world.topics["t"] = {"a": 1}
    master, consumer = world.brokers["a"], consumer_of(world, ordered=True)
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    for number in range(9):
        master.store("t", b"%d" % number)
    master.offsets["cg", "t", 0] = 5
    async with slave_of(world) as slave:
        slave.offsets["cg", "t", 0] = 1

        async def granted_late(command: Command) -> Command:
            master_is_lost(world, slave)
            await consumer._client.refresh("t")
            return master._on_lock_batch_mq(None, command)

        master.script = lambda command: (
            granted_late(command) if command.code == RequestCode.LOCK_BATCH_MQ else "default"
        )
        async with running(consumer, listener):
            await until(world, lambda: len(got) >= 4)
            assert got == [b"5", b"6", b"7", b"8"]


@pytest.mark.behaviour("MO-07")
@pytest.mark.parametrize("acting", [True, False])
async def test_locks_are_the_masters_and_move_to_the_slave_in_its_place(world: Any, acting: bool) -> None:
    world.topics["t"] = {"a": 1}
    master = world.brokers["a"]
    async with slave_of(world) as slave:
        seen: list[float] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(world.runtime.clock.monotonic())

        async with running(consumer_of(world, ordered=True), listener):
            await until(world, lambda: master.requests(RequestCode.LOCK_BATCH_MQ))
            await asyncio.sleep(100)
            assert not slave.requests(RequestCode.LOCK_BATCH_MQ)
            master_is_lost(world, slave, acting=acting)
            await master.stop()
            lost = world.runtime.clock.monotonic()
            for _ in range(70):
                slave.store("t", b"x")
                await asyncio.sleep(1)
            after = [when - lost for when in seen if when > lost]
            if acting:
                # A lock is trusted for 30 s and renewed every 20 s, so there is no gap.
                assert max(b - a for a, b in zip([0.0, *after], after, strict=False)) <= 1.6
                assert slave.requests(RequestCode.LOCK_BATCH_MQ)
            else:
                assert 0 < max(after) <= 31
                assert not slave.requests(RequestCode.LOCK_BATCH_MQ)
            master_is_back(world, slave)
            await master.start()
            master.queues.update(slave.queues)
            count = len(seen)
            await until(world, lambda: len(seen) > count or len(seen) >= 70, 25)


# -- sending back --------------------------------------------------------------------------------------


@pytest.mark.scripted("a", "b")
async def test_what_fails_at_an_acting_master_goes_straight_to_the_retry_topic(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.topics["%RETRY%cg"] = {"a": 1, "b": 1}
    world.brokers["a"].store("t", b"bad")
    failed = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        failed.set()
        raise RuntimeError("no")

    async with slave_of(world) as slave:
        master_is_lost(world, slave)
        async with running(consumer_of(world), listener):
            await failed.wait()
            await until(world, lambda: world.brokers["b"].requests(RequestCode.SEND_MESSAGE_V2))
        assert not slave.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        [sent] = world.brokers["b"].requests(RequestCode.SEND_MESSAGE_V2)
        assert sent.ext["b"] == "%RETRY%cg"
