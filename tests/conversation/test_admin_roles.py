"""What administrators change is told to be done where it lasts: at the master, or at who acts for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.replicas import ACTING, MASTER, SLAVE, role_of, same_end

from orbitmq.broker.role import Role
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
DELETIONS: list[tuple[int, bytes, dict[str, Any]]] = [
    (RequestCode.DELETE_TOPIC_IN_BROKER, b"", {"topic": "T"}),
    (RequestCode.DELETE_SUBSCRIPTIONGROUP, b"", {"groupName": "cg", "cleanOffset": "true"}),
]


def peer_of(world: World, name: str) -> BrokerPeer:
    return BrokerPeer(world.runtime, world.brokers[name].address)


async def ask(peer: BrokerPeer, change: tuple[int, bytes, dict[str, Any]]) -> Command:
    code, body, ext = change
    return await peer.call(code, body, **ext)


async def ten_consumed(world: World, master: BrokerPeer) -> None:
    await master.create("T")
    for number in range(10):
        await master.sent(b"%d" % number)
    await master.pull(0)
    await master.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=10
    )
    await world.until(lambda: same_end(world))
    await world.sleep(1)


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2)
@pytest.mark.parametrize("change", [*CHANGES, *DELETIONS], ids=lambda change: change[0].name)
async def test_a_slave_refuses_what_it_would_not_keep(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    """It said yes, changed its own copy, and the master and the group went on as before."""
    world = orbitmq_world
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await ten_consumed(world, master)
        refused = await ask(slave, change)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "is slave: send it to the master of broker-a" in (refused.remark or "")
        assert (await ask(master, change)).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("MO-20")
@pytest.mark.orbitmq(replicas=2, settings=ACTING)
@pytest.mark.parametrize("change", DELETIONS, ids=lambda change: change[0].name)
async def test_what_is_deleted_while_a_slave_acts_would_come_back(
    orbitmq_world: World, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await ten_consumed(world, master)
        await world.stop_broker(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        refused = await ask(slave, change)
        services = world.brokers[SLAVE].services
        await world.start_broker(MASTER)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)
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
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)

    def changed(name: str) -> bool:
        s = world.brokers[name].services
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: "U" in s.topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "new" in s.groups,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: s.offsets.query("cg", "T", 0) == 5,
            RequestCode.CLONE_GROUP_OFFSET: s.offsets.query("cg2", "T", 0) == 10,
            RequestCode.SET_MESSAGE_REQUEST_MODE: s.modes.get("T", "cg") is not None,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: not s.groups.may_read("cg", "T"),
        }[RequestCode(change[0])]

    async with peer_of(world, MASTER) as master, peer_of(world, SLAVE) as slave:
        await ten_consumed(world, master)
        await world.stop_broker(MASTER)
        await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
        assert (await ask(slave, change)).code == ResponseCode.SUCCESS
        assert changed(SLAVE)
        await world.start_broker(MASTER)
        await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
        await world.sleep(2)
        assert (changed(MASTER), changed(SLAVE)) == (True, True)
