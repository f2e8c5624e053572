"""For a request that a slave passes on to its master, the rights of the slave's client count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conversation.test_audit_log import topic
from tests.conversation.test_replication_keys import KEYS
from tests.replicas import MASTER, SLAVE, following

from orbitmq import Credentials
from orbitmq.auth.gate import FOR_HOST, FOR_USER
from orbitmq.auth.rules import Acl
from orbitmq.auth.users import User
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Secret

ROOT = Credentials("root", "root-secret-1")
APP = Credentials("app", "app-secret-1")
CLIENT = "10.7.7.7"


def allow(world: World, name: str, resource: str, *sources: str) -> None:
    """Give the user the right to delete this topic in the users of one broker."""
    access = world.brokers[name].part(BrokerAccess)
    access.users.put(User("app", Secret("app-secret-1")))
    entry = PolicyEntryInfo(resource, ["Delete"], list(sources) or None, "Allow")
    access.rules.put("app", Acl.of(AclInfo(None, [PolicyInfo(None, [entry])])))


@pytest.fixture
def world(request: pytest.FixtureRequest, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    found = World(orbitmq_runtime, replicas=2, settings={**KEYS, **getattr(request, "param", {})})
    orbitmq_loop.enter(found)
    orbitmq_loop.run(prepare(found))
    return found


async def prepare(world: World) -> None:
    await world.until(lambda: following(world).transferring)
    for name in ("orders", "invoices"):
        assert (await ask(world, MASTER, ROOT, Code.UPDATE_AND_CREATE_TOPIC, topic(name))).code == 0


async def ask(
    world: World, broker: str, keys: Credentials | None, code: int, fields: dict[str, str]
) -> Command:
    client = RemotingClient(world.runtime.machine(CLIENT), identity=Identity(keys))
    try:
        return await client.request(world.brokers[broker].address, Command(code, dict(fields)), 5000)
    finally:
        await client.close()


async def delete(world: World, broker: str, keys: Credentials | None, name: str, **more: str) -> Command:
    return await ask(world, broker, keys, Code.DELETE_TOPIC_IN_BROKER, {"topic": name, **more})


def has(world: World, name: str) -> bool:
    return world.brokers[MASTER].services.topics.get(name) is not None


def written(world: World) -> list[dict[str, Any]]:
    place = world.brokers[MASTER].services.config.audit_place
    assert place is not None
    text = world.machines[MASTER].runtime.files.read_bytes(place.path).decode()
    return [found for line in text.splitlines() if (found := json.loads(line)).get("code") == 215]


@pytest.mark.behaviour("AZ-24")
async def test_the_master_judges_and_writes_down_the_user(world: World) -> None:
    allow(world, MASTER, "Topic:orders", "10.7.0.0/16")
    await world.sleep(1)
    allow(world, SLAVE, "Topic:*")
    assert (await delete(world, SLAVE, APP, "orders")).code == 0
    assert not has(world, "orders")
    line = written(world)[-1]
    assert (line["user"], line["from"], line["verdict"]) == ("app", CLIENT, "made")
    assert line["through"].startswith("inner at 10.0.0.")
    # The slave would permit this request; its master does not.
    answer = await delete(world, SLAVE, APP, "invoices")
    assert answer.code == 16
    assert answer.remark == (
        f"User:app has no permission to access Topic:invoices from {CLIENT}, no matched policies."
    )
    assert has(world, "invoices")
    allow(world, MASTER, "Topic:invoices", "10.9.0.0/16")
    await world.sleep(1)
    allow(world, SLAVE, "Topic:*")
    assert (await delete(world, SLAVE, APP, "invoices")).code == 16


@pytest.mark.behaviour("AZ-24")
async def test_a_user_whom_the_master_does_not_know_is_refused(world: World) -> None:
    allow(world, SLAVE, "Topic:*")
    answer = await delete(world, SLAVE, APP, "orders")
    assert (answer.code, answer.remark) == (16, "User:app is unknown here.")
    assert has(world, "orders")


@pytest.mark.behaviour("AZ-24")
async def test_nobody_says_for_whom_he_speaks(world: World) -> None:
    forged = {FOR_USER: "root", FOR_HOST: "127.0.0.1"}
    for name in (MASTER, SLAVE):
        allow(world, name, "Topic:orders")
    # The user is a normal one at the master, then at the slave.
    for broker in (MASTER, SLAVE):
        assert (await delete(world, broker, APP, "invoices", **forged)).code == 16
    assert has(world, "invoices")
    assert (await delete(world, SLAVE, APP, "orders", **forged)).code == 0
    assert written(world)[-1]["user"] == "app"


@pytest.mark.behaviour("AZ-24")
@pytest.mark.parametrize("world", [{"authMode": "observe", "protectedMode": "false"}], indirect=True)
async def test_an_observing_slave_lends_its_keys_to_nobody(world: World) -> None:
    world.brokers[MASTER].services.config.auth_mode = "enforce"
    for keys in (None, Credentials("root", "another"), Credentials("nobody", "x")):
        answer = await delete(world, SLAVE, keys, "orders", **{FOR_USER: "root", FOR_HOST: "127.0.0.1"})
        assert answer.code == 16
    assert has(world, "orders")
    assert (await delete(world, SLAVE, ROOT, "orders")).code == 0
