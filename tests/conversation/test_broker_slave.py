"""A slave as a server: its refusals, their order, and its treatment of consumers that are ahead of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, records

from orbitmq import Message
from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.message.sysflag import PullFlag
from orbitmq.store import GetResult, GetStatus, MessageStore
from orbitmq.testing import World
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageResponse

READABLE = pytest.mark.broker(slave_read_enable=True)
SLAVES = [Role.SLAVE, Role.ACTING_MASTER]
# flags of a pull with its own subscription: the first lets it wait, the second does not
HOLDS, NO_SUSPEND = 6, 4


@pytest.fixture(params=["fast path", "handlers"])
def doors(broker: Broker, request: pytest.FixtureRequest) -> Broker:
    if request.param == "handlers":
        broker.doors.fast_path = None
    return broker


async def slave_of_five(broker: Broker, peer: BrokerPeer, role: Role = Role.SLAVE) -> None:
    """A broker that has five messages and has changed from master to slave."""
    for number in range(5):
        await peer.sent(b"%d" % number)
    await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"cg"}')
    await asyncio.sleep(1)
    await broker.change_role(Role.SLAVE)
    if role is not Role.SLAVE:
        await broker.change_role(role)


async def timed(peer: BrokerPeer, offset: int, **values: Any) -> tuple[Command, float]:
    start = asyncio.get_running_loop().time()
    answer = await peer.pull(offset, **values)
    return answer, asyncio.get_running_loop().time() - start


def next_of(answer: Command) -> int:
    return PullMessageResponse.from_ext(answer.ext).next_begin_offset


# -- puts ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ES-09")
@pytest.mark.parametrize("role", SLAVES)
async def test_a_send_to_a_slave_gets_14(doors: Broker, peer: BrokerPeer, role: Role) -> None:
    await slave_of_five(doors, peer, role)
    end = doors.services.store.max_commit_log_offset
    for values in ({}, {"topic": "unknown"}, {"topic": "no topic"}, {"topic": "T" * 300}):
        answer = await peer.send(**values)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert role.value in (answer.remark or "")
    assert (await peer.send(b"")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert doors.services.store.max_commit_log_offset == end
    assert "unknown" not in doors.services.topics


@pytest.mark.behaviour("ES-09")
async def test_puts_are_refused_in_one_order(broker: Broker, peer: BrokerPeer) -> None:
    """The order is: store closed, wrong role, then errors of the message itself."""
    await peer.sent()
    broker.services.store.refuse("the disk is full")
    answer = await peer.send(b"", topic="no topic")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "the disk is full"
    await broker.change_role(Role.SLAVE)
    assert (await peer.send(b"", topic="no topic")).remark == "the disk is full"
    # without this call, the cleaning service would do it minutes later
    broker.services.store.write_gate.accept()
    assert "slave" in ((await peer.send(b"", topic="no topic")).remark or "")
    await broker.change_role(Role.MASTER)
    assert (await peer.send(b"", topic="no topic")).code == ResponseCode.INVALID_PARAMETER
    assert (await peer.send(b"")).code == ResponseCode.MESSAGE_ILLEGAL


# -- refused pulls -------------------------------------------------------------------------------------


@pytest.mark.behaviour("MO-10")
@pytest.mark.parametrize("role", SLAVES)
async def test_a_slave_refuses_pulls_unless_it_may_be_read(
    doors: Broker, peer: BrokerPeer, role: Role
) -> None:
    await slave_of_five(doors, peer)
    if role is not Role.SLAVE:
        await doors.change_role(role)
    answer = await peer.pull(0)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "slaveReadEnable" in (answer.remark or "")
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"slaveReadEnable=true")
    for _ in range(3):
        assert len(records(await peer.pull(0))) == 5
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"slaveReadEnable=false")
    assert (await peer.pull(0)).code == ResponseCode.SYSTEM_BUSY
    await doors.change_role(Role.MASTER)
    assert len(records(await peer.pull(0))) == 5


@pytest.mark.behaviour("MO-10")
async def test_pulls_are_refused_in_one_order(broker: Broker, peer: BrokerPeer) -> None:
    """The order is: slaveReadEnable, permission, group, topic, queue, subscription, then the queue's
    bounds.
    """
    await slave_of_five(broker, peer)
    wrong: dict[str, Any] = {
        "consumer_group": "nobody",
        "topic": "nothing",
        "queue_id": 99,
        "sys_flag": 0,
        "queue_offset": 900,
    }
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateSubscriptionGroup=false\nbrokerPermission=2")
    seen = []
    repairs: list[tuple[str, Any]] = [
        ("slaveReadEnable=true", None),
        ("brokerPermission=6", None),
        ("consumer_group", "cg"),
        ("topic", "T"),
        ("queue_id", 0),
        ("sys_flag", NO_SUSPEND),
    ]
    for key, value in repairs:
        seen.append(ResponseCode((await peer.pull(**wrong)).code).name)
        if value is None:
            await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, key.encode())
        else:
            wrong[key] = value
    seen.append(ResponseCode((await peer.pull(**wrong)).code).name)
    assert seen == [
        "SYSTEM_BUSY",
        "NO_PERMISSION",
        "SUBSCRIPTION_GROUP_NOT_EXIST",
        "TOPIC_NOT_EXIST",
        "INVALID_PARAMETER",
        "SUBSCRIPTION_NOT_EXIST",
        "PULL_NOT_FOUND",
    ]


# -- an offset that the slave does not have ------------------------------------------------------------


@READABLE
@pytest.mark.behaviour("MO-12")
@pytest.mark.parametrize("role", SLAVES)
@pytest.mark.parametrize("offset", [6, 1000])
async def test_a_consumer_ahead_of_a_slave_waits(
    doors: Broker, peer: BrokerPeer, role: Role, offset: int
) -> None:
    await slave_of_five(doors, peer, role)
    await peer.pull(0)
    for _ in range(2):
        answer, took = await timed(peer, offset, sys_flag=HOLDS)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert next_of(answer) == offset
        assert 15 <= took <= 15.3
    answer, took = await timed(peer, offset, sys_flag=NO_SUSPEND)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_NOT_FOUND, offset)
    assert took < 0.1


@READABLE
@pytest.mark.behaviour("MO-12")
async def test_a_consumer_ahead_gets_what_comes_at_its_place(broker: Broker, peer: BrokerPeer) -> None:
    await slave_of_five(broker, peer)
    pulling = asyncio.ensure_future(timed(peer, 6, sys_flag=HOLDS))
    await asyncio.sleep(1)
    # the log that a slave copies wakes the waiting pull in the same way
    await broker.change_role(Role.MASTER)
    other = BrokerPeer(peer.runtime)
    await other.sent(b"5")
    await asyncio.sleep(0.5)
    assert not pulling.done()
    await other.sent(b"6")
    answer, took = await pulling
    assert [record.body for record in records(answer)] == [b"6"]
    assert took == pytest.approx(1.5, abs=0.1)
    await other.client.close()


@READABLE
@pytest.mark.behaviour("MO-12")
async def test_an_empty_queue_of_a_slave_corrects_nobody(broker: Broker, peer: BrokerPeer) -> None:
    await slave_of_five(broker, peer)
    answer, _ = await timed(peer, 40, queue_id=1, sys_flag=NO_SUSPEND)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_NOT_FOUND, 40)


@READABLE
async def test_the_same_consumer_is_corrected_by_a_master(broker: Broker, peer: BrokerPeer) -> None:
    await slave_of_five(broker, peer)
    await broker.change_role(Role.MASTER)
    answer, took = await timed(peer, 1000, sys_flag=HOLDS)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, 5)
    assert took < 0.1


@pytest.mark.broker(slave_read_enable=True, offset_check_in_slave=True)
@pytest.mark.behaviour("MO-12")
async def test_a_slave_that_is_told_to_check_corrects_too(broker: Broker, peer: BrokerPeer) -> None:
    await slave_of_five(broker, peer)
    answer, _ = await timed(peer, 1000, sys_flag=HOLDS)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, 5)


@READABLE
async def test_a_consumer_behind_the_first_message_of_a_slave_is_sent_to_the_master(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that started late cannot know whether the master has the message; the response must not come at
    once, or the consumer pulls in a loop.
    """
    await slave_of_five(broker, peer)
    get = MessageStore.get

    def late(self: MessageStore, topic: str, queue_id: int, offset: int, *args: Any, **kwargs: Any) -> Any:
        result = get(self, topic, queue_id, offset, *args, **kwargs)
        if topic == "T" and offset < 3:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, b"", 0, 3, 3, 5)
        return result

    monkeypatch.setattr(MessageStore, "get", late)
    answer, took = await timed(peer, 1, sys_flag=HOLDS)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
    assert answer.ext["suggestWhichBrokerId"] == "0"
    assert 1 <= took <= 1.3
    await broker.change_role(Role.MASTER)
    answer, _ = await timed(peer, 1, sys_flag=HOLDS)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, 3)


# -- the broker for the next pull ----------------------------------------------------------------------


@pytest.mark.behaviour("MO-11")
@pytest.mark.parametrize(
    ("settings", "suggested"),
    [
        ("slaveReadEnable=true\naccessMessageInMemoryMaxRatio=40", "0"),
        ("slaveReadEnable=true\naccessMessageInMemoryMaxRatio=0", "1"),
        ("slaveReadEnable=false\naccessMessageInMemoryMaxRatio=0", "0"),
    ],
)
async def test_who_is_far_behind_is_sent_to_a_slave(
    doors: Broker, peer: BrokerPeer, settings: str, suggested: str
) -> None:
    for number in range(5):
        await peer.sent(b"%d" % number)
    await asyncio.sleep(1)
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, settings.encode())
    for _ in range(3):
        answer = await peer.pull(0, max_msg_nums=3)
        assert answer.ext["suggestWhichBrokerId"] == suggested
        assert len(records(answer)) == 3
    await peer.ok(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        b'{"groupName":"cg","brokerId":2,"whichBrokerWhenConsumeSlowly":3}',
    )
    for _ in range(3):
        answer = await peer.pull(0, max_msg_nums=3)
        wanted = {"0": "2" if "slaveReadEnable=true" in settings else "0", "1": "3"}
        assert answer.ext["suggestWhichBrokerId"] == wanted[suggested]


@READABLE
@pytest.mark.behaviour("MO-19")
async def test_a_slave_sends_a_group_that_was_moved_to_its_master(doors: Broker, peer: BrokerPeer) -> None:
    """The slave delivers messages on request until then, and lets no pull end empty again and again."""
    await slave_of_five(doors, peer)
    offsets = doors.services.offsets
    for _ in range(2):
        await peer.pull(3)
    waiting = asyncio.ensure_future(timed(peer, 5, sys_flag=HOLDS))
    await asyncio.sleep(3)
    offsets.reset("cg", "T", 0, 1)
    answer, took = await waiting
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_NOT_FOUND, 5)
    assert answer.ext["suggestWhichBrokerId"] == "0"
    assert took < 4.2
    doors.services.groups.update(
        SubscriptionGroupConfig(group_name="cg", broker_id=1, which_broker_when_consume_slowly=1)
    )
    answer = await peer.pull(3, sys_flag=NO_SUSPEND | PullFlag.COMMIT_OFFSET, commit_offset=3)
    assert [record.body for record in records(answer)] == [b"3", b"4"]
    assert answer.ext["suggestWhichBrokerId"] == "0"
    for _ in range(2):
        answer, took = await timed(peer, 5, sys_flag=HOLDS)
        assert (answer.code, next_of(answer)) == (ResponseCode.PULL_NOT_FOUND, 5)
        assert answer.ext["suggestWhichBrokerId"] == "0"
        assert 1 <= took <= 1.3
    assert offsets.queues("cg", "T") == {0: 1}
    # Only an acting master reports the moved offset, and only once.
    await doors.change_role(Role.ACTING_MASTER)
    answer = await peer.pull(5, sys_flag=NO_SUSPEND)
    assert (answer.code, next_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, 1)
    assert len(records(await peer.pull(1, sys_flag=NO_SUSPEND))) == 4
    assert (await peer.pull(5, sys_flag=NO_SUSPEND)).code == ResponseCode.PULL_NOT_FOUND


@READABLE
async def test_the_fast_path_answers_pulls_of_a_slave(broker: Broker, peer: BrokerPeer) -> None:
    await slave_of_five(broker, peer)
    assert broker.doors.fast_path is not None
    for _ in range(4):
        assert len(records(await peer.pull(0))) == 5
    assert broker.doors.fast_path.messages_out == 15


@pytest.mark.behaviour("SS-06")
@pytest.mark.orbitmq(replicas=2)
async def test_a_pull_waits_at_a_slave_and_its_answer_names_the_master(orbitmq_world: World) -> None:
    """RocketMQ's slave answers at once only in a container. Outside of one, a client whose route still gives
    the slave id 0, because it acted for its master, would pull in a loop.
    """
    world = orbitmq_world
    async with world.producer() as producer, BrokerPeer(world.runtime, slave_address(world)) as peer:
        result = await producer.send(Message("T", b"first"))
        place: dict[str, Any] = {"queue_id": result.queue.queue_id, "sys_flag": HOLDS}
        await world.until(lambda: "T" in world.brokers["broker-a-1"].services.topics)
        world.brokers["broker-a-1"].services.groups.update(SubscriptionGroupConfig(group_name="cg"))
        waiting = asyncio.ensure_future(timed(peer, 1, **place))
        await world.sleep(3)
        assert not waiting.done()
        await producer.send(Message("T", b"second"), queue=result.queue)
        answer, took = await waiting
        assert [record.body for record in records(answer)] == [b"second"]
        assert took < 3.1, "it comes as soon as it is copied"
        assert PullMessageResponse.from_ext(answer.ext).suggest_which_broker_id == 0


def slave_address(world: World) -> str:
    return world.brokers["broker-a-1"].address
