"""Changes by administrators succeed only where they last: at the master, or at the slave that acts for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.replicas import ACTING, MASTER, OTHER, SLAVE, role_of, same_end

from orbitmq import Message, ValidationError
from orbitmq.admin import IncompleteError
from orbitmq.broker.role import Role
from orbitmq.cli.partial import lost_masters
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

TOPIC: dict[str, Any] = {
    "topic": "U", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
}  # fmt: skip
RESET: dict[str, Any] = {
    "group": "cg", "topic": "T", "queueId": 0, "offset": 5, "timestamp": -1, "isForce": "true",
}  # fmt: skip
CHANGES: list[tuple[int, bytes, dict[str, Any]]] = [
    (RequestCode.UPDATE_AND_CREATE_TOPIC, b"", TOPIC),
    (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        SubscriptionGroupConfig(group_name="new").encode(),
        {},
    ),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, b"", RESET),
    (RequestCode.CLONE_GROUP_OFFSET, b"", {"srcGroup": "cg", "destGroup": "cg2", "offline": "true"}),
    (
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        SetMessageRequestModeRequestBody(topic="T", consumer_group="cg").encode(),
        {},
    ),
    (RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, b"", {"group": "cg", "topic": "T", "readable": "false"}),
]
DELETE_TOPIC: tuple[int, bytes, dict[str, Any]] = (RequestCode.DELETE_TOPIC_IN_BROKER, b"", {"topic": "T"})
DELETE_GROUP: tuple[int, bytes, dict[str, Any]] = (
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    b"",
    {"groupName": "cg", "cleanOffset": "true"},
)
DELETIONS = [DELETE_TOPIC, DELETE_GROUP]


def peer_of(world: World, name: str) -> BrokerPeer:
    return BrokerPeer(world.runtime, world.brokers[name].address)


async def ask(peer: BrokerPeer, change: tuple[int, bytes, dict[str, Any]]) -> Command:
    code, body, ext = change
    return await peer.call(code, body, **ext)


def changed(world: World, name: str, code: int) -> bool:
    s = world.brokers[name].services
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: "U" in s.topics,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "new" in s.groups,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: s.offsets.query("cg", "T", 0) == 5,
        RequestCode.CLONE_GROUP_OFFSET: s.offsets.query("cg2", "T", 0) == 10,
        RequestCode.SET_MESSAGE_REQUEST_MODE: s.modes.get("T", "cg") is not None,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: not s.groups.may_read("cg", "T"),
    }[RequestCode(code)]


async def ten_consumed(world: World, master: BrokerPeer) -> None:
    await master.create("T")
    for number in range(10):
        await master.sent(b"%d" % number)
    await master.pull(0)
    await master.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=10
    )
    if SLAVE in world.brokers:
        await world.until(lambda: same_end(world))
    await world.sleep(1)


@asynccontextmanager
async def acting_slave(world: World) -> AsyncIterator[BrokerPeer]:
    """A slave that acts for its master; at the end the master is online again and has the slave's tables."""
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await ten_consumed(world, master)
        await world.stop_broker(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        yield slave
        await world.start_broker(MASTER)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2)
@pytest.mark.parametrize("change", [*CHANGES, DELETE_GROUP], ids=lambda change: change[0].name)
async def test_a_slave_refuses_what_it_would_not_keep(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    """The slave would change only its own copy, while master and group stay as they are."""
    world = orbitmq_world
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await ten_consumed(world, master)
        refused = await ask(slave, change)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "is slave: send it to the master of broker-a" in (refused.remark or "")
        assert (await ask(master, change)).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2, settings={"adminAddresses": "10.0.0.0/24"})
@pytest.mark.parametrize("order", [(SLAVE, MASTER), (MASTER, SLAVE)], ids=["slave first", "master first"])
async def test_a_topic_is_deleted_at_slaves_too_as_mqadmin_does(
    orbitmq_world: World, order: tuple[str, str]
) -> None:
    """With a refusal, mqadmin deleteTopic would stop at a slave before it gets to the master."""
    world = orbitmq_world
    async with peer_of(world, MASTER) as master:
        await ten_consumed(world, master)
    for name in order:
        async with peer_of(world, name) as broker:
            assert (await ask(broker, DELETE_TOPIC)).code == ResponseCode.SUCCESS
        assert "T" not in world.brokers[MASTER].services.topics
    await world.until(lambda: "T" not in world.brokers[SLAVE].services.topics)
    await world.stop_broker(MASTER)
    async with peer_of(world, SLAVE) as slave:
        assert (await ask(slave, DELETE_TOPIC)).code != ResponseCode.SUCCESS


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.parametrize("change", DELETIONS, ids=lambda change: change[0].name)
async def test_what_is_deleted_while_a_slave_acts_would_come_back(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    world = orbitmq_world
    async with acting_slave(world) as slave:
        refused = await ask(slave, change)
    for name in (MASTER, SLAVE):
        services = world.brokers[name].services
        assert ("T" in services.topics, "cg" in services.groups) == (True, True)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "is acting master" in (refused.remark or "")


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0].name)
async def test_who_acts_takes_changes_that_last(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    world = orbitmq_world
    async with acting_slave(world) as slave:
        assert (await ask(slave, change)).code == ResponseCode.SUCCESS
        assert changed(world, SLAVE, change[0])
    assert [changed(world, name, change[0]) for name in (MASTER, SLAVE)] == [True, True]


@pytest.mark.behaviour("MO-22")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0].name)
async def test_what_was_answered_is_on_the_disk(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    world = orbitmq_world
    async with peer_of(world, MASTER) as master:
        await ten_consumed(world, master)
        await world.sleep(10)
        assert (await ask(master, change)).code == ResponseCode.SUCCESS
        world.crash(MASTER)
        await world.start_broker(MASTER)
        assert changed(world, MASTER, change[0])


async def without_a_master(world: World) -> None:
    """Crash one of two masters, so that its slave acts; each queue has 10 messages, of which a group has
    consumed 4; both brokers have dead letters of the group.
    """
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with world.admin() as admin:
        await admin.topics.create("T", queues=1)
        await admin.topics.create("%DLQ%cg", queues=1)
        await admin.groups.create("cg")
        await admin.groups.create("cg2")
    async with world.producer() as producer:
        for name in (MASTER, OTHER):
            for topic in ("T", "%DLQ%cg"):
                for number in range(10):
                    await producer.send(Message(topic, b"%d" % number), queue=MessageQueue(topic, name, 0))
            async with peer_of(world, name) as peer:
                await peer.ok(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    consumerGroup="cg", topic="T", queueId=0, commitOffset=4,
                )  # fmt: skip
    await world.until(lambda: same_end(world))
    await world.sleep(2)
    world.crash(MASTER)
    if world.brokers[SLAVE].services.config.enable_slave_acting_master:
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
    await world.sleep(2)


@pytest.mark.behaviour("MO-21")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ACTING)
async def test_a_broker_group_without_its_master_is_not_left_out(orbitmq_world: World) -> None:
    """The acting slave counts in the lag and in moves as its master would."""
    world = orbitmq_world
    await without_a_master(world)
    both = [MASTER, OTHER]
    async with world.admin() as admin:
        lags = [one for one in (await admin.groups.lag("cg")).whole() if one.queue.topic == "T"]
        assert [(one.queue.broker_name, one.lag) for one in lags] == [(MASTER, 6), (OTHER, 6)]
        assert ((await admin.groups.list()).whole())["cg"] == both
        assert list((await admin.groups.show("cg")).whole().settings) == both
        assert (await admin.dead_letters.show("cg")).whole().brokers == {MASTER: 10, OTHER: 10}
        assert [one.broker_name for one in (await admin.timers.list()).whole()] == both
        assert await admin.groups.clone("cg", "cg2") == both
        moves = (await admin.groups.plan_to_first("cg", "T")).whole()
        assert [(move.queue.broker_name, move.before, move.to) for move in moves] == [
            (MASTER, 4, 0),
            (OTHER, 4, 0),
        ]
        await admin.groups.move("cg", moves)
        await world.start_broker(MASTER)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)
        offsets = [world.brokers[name].services.offsets for name in both]
        assert [(each.query("cg", "T", 0), each.query("cg2", "T", 0)) for each in offsets] == [(0, 4)] * 2


@pytest.mark.behaviour("MO-21")
@pytest.mark.orbitmq(brokers=2, replicas=2)
async def test_a_slave_that_does_not_act_tells_and_takes_nothing(orbitmq_world: World) -> None:
    world = orbitmq_world
    await without_a_master(world)
    async with world.admin() as admin:
        lags = [one for one in (await admin.groups.lag("cg")).whole() if one.queue.topic == "T"]
        assert [(one.queue.broker_name, one.lag) for one in lags] == [(MASTER, 6), (OTHER, 6)]
        counts = [(one.queue.broker_name, one.count) for one in (await admin.topics.status("T")).whole()]
        assert counts == [(MASTER, 10), (OTHER, 10)]
        with pytest.raises(IncompleteError, match="this would not last at a broker that is slave") as told:
            await admin.groups.move("cg", (await admin.groups.plan_to_first("cg", "T")).whole())
        assert [one.name for one in told.value.left_out] == [MASTER]
        assert [move.queue.broker_name for move in told.value.partial.found] == [OTHER]


@pytest.mark.behaviour("MO-21", "DQ-12")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ACTING)
async def test_what_needs_a_master_says_which_is_missing(orbitmq_world: World) -> None:
    """Without one of two masters neither redrive nor deletion does half of the work and reports success."""
    world = orbitmq_world
    await without_a_master(world)
    async with world.admin() as admin:
        left, sent = await admin.dead_letters.redrive("cg", to_topic="T")
        assert (left.broker_name, left.state, left.remaining) == (MASTER, "failed", 10)
        assert "no master of broker-a is online" in (left.problem or "")
        assert (sent.broker_name, sent.state) == (OTHER, "running")
        for delete in (admin.topics.delete("T"), admin.groups.delete("cg")):
            with pytest.raises(ValidationError, match="no master of broker-a is online"):
                await delete
        assert "T" in world.brokers[OTHER].services.topics
        assert "cg" in world.brokers[OTHER].services.groups
        await world.start_broker(MASTER)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)
        assert await admin.topics.delete("T") == [MASTER, OTHER]


@pytest.mark.behaviour("MO-21")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ACTING)
async def test_a_redrive_whose_master_is_lost_is_told_to_wait(orbitmq_world: World) -> None:
    """The redrive of the lost master is listed as waiting, and stopping it fails instead of being passed
    over.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with world.admin() as admin, world.producer() as producer:
        await admin.topics.create("T", queues=1)
        await admin.topics.create("%DLQ%cg", queues=1)
        for name in (MASTER, OTHER):
            for number in range(100):
                queue = MessageQueue("%DLQ%cg", name, 0)
                await producer.send(Message("%DLQ%cg", b"%d" % number), queue=queue)
        await admin.dead_letters.redrive("cg", to_topic="T", rate=2)
        await world.sleep(3)
        world.crash(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        await world.sleep(2)
        waits, runs = (await admin.dead_letters.redrives("cg")).whole()
        assert (waits.broker_name, waits.state) == (MASTER, "running")
        assert "it waits: this broker is acting master" in (waits.problem or "")
        assert (runs.broker_name, runs.problem) == (OTHER, None)
        with pytest.raises(IncompleteError, match="acting master") as told:
            await admin.dead_letters.stop("cg")
        assert [job.broker_name for job in told.value.partial.found] == [OTHER]


@pytest.mark.orbitmq(brokers=2, replicas=2)
async def test_where_a_topic_could_not_be_made_is_known(orbitmq_world: World) -> None:
    """A broker group without a master is reported when a topic is created."""
    world = orbitmq_world
    async with world.admin() as admin:
        assert lost_masters(await admin.brokers.without_master()) == []
        await world.stop_broker(MASTER)
        assert await admin.topics.create("U") == [OTHER]
        assert lost_masters(await admin.brokers.without_master()) == [
            "not on broker-a: no master is online there; repeat the command when one is"
        ]
