"""A slave has the users and rules of its master, over a connection that both have proved, and sealed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.conversation.test_replication_keys import INNER, KEYS, ROOT, Stranger, greeting, users
from tests.replicas import ACTING, MASTER, SLAVE, cut_off, following, ha_port, role_of

from orbitmq import Credentials
from orbitmq.admin import Admin
from orbitmq.auth.rules import Acl
from orbitmq.auth.users import User, UserStatus
from orbitmq.broker.role import Role
from orbitmq.replication.link.ha_port import HaConnection
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.link.stream_follower import StreamFollowerLink
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Secret

SECRET = "secret-of-app-1"
APP = Credentials("app", SECRET)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """All bytes that the two brokers send each other over their connection."""
    found = bytearray()
    to_master, to_slave = HaConnection.data_received, StreamFollowerLink._take

    def at_master(connection: HaConnection, data: bytes) -> None:
        found.extend(data)
        to_master(connection, data)

    def at_slave(link: StreamFollowerLink, data: memoryview) -> None:
        found.extend(data)
        to_slave(link, data)

    monkeypatch.setattr(HaConnection, "data_received", at_master)
    monkeypatch.setattr(StreamFollowerLink, "_take", at_slave)
    return found


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    stream: bytearray,
    orbitmq_runtime: SimulatedRuntime,
    orbitmq_loop: Any,
) -> World:
    found = World(orbitmq_runtime, replicas=2, settings={**KEYS, **getattr(request, "param", {})})
    orbitmq_loop.enter(found)
    orbitmq_loop.run(found.until(lambda: following(found).transferring))
    return found


async def ask(
    world: World,
    broker: str,
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
    keys: Credentials = ROOT,
) -> tuple[int, str | None]:
    client = RemotingClient(world.runtime, identity=Identity(keys))
    try:
        answer = await client.request(world.brokers[broker].address, Command(code, dict(fields), body), 5000)
        return answer.code, answer.remark
    finally:
        await client.close()


def rules_of(resource: str, action: str = "Pub") -> bytes:
    return AclInfo(None, [PolicyInfo(None, [PolicyEntryInfo(resource, [action], None, "Allow")])]).encode()


async def create(world: World, broker: str, secret: str = SECRET) -> tuple[int, str | None]:
    body = UserInfo(password=secret).encode()
    return await ask(world, broker, Code.AUTH_CREATE_USER, {"username": "app"}, body)


async def change(world: World, broker: str, **values: str) -> tuple[int, str | None]:
    body = UserInfo(**values).encode()  # type: ignore[arg-type]
    return await ask(world, broker, Code.AUTH_UPDATE_USER, {"username": "app"}, body)


async def allow(world: World, broker: str, resource: str) -> tuple[int, str | None]:
    return await ask(world, broker, Code.AUTH_CREATE_ACL, {"subject": "User:app"}, rules_of(resource))


def known(world: World, broker: str) -> dict[str, Any]:
    access = users(world, broker)
    return {
        "users": {user.name: user for user in access.users.all()},
        "rules": dict(access.rules.all()),
    }


def alike(world: World) -> bool:
    return known(world, MASTER) == known(world, SLAVE)


async def get(world: World, broker: str, keys: Credentials = APP) -> tuple[int, str | None]:
    """A request of the user that needs the right Get for a topic."""
    return await ask(world, broker, Code.GET_TOPIC_CONFIG, {"topic": "orders", "lo": "false"}, keys=keys)


@pytest.mark.behaviour("AU-36")
async def test_a_slave_has_the_users_and_rules_of_its_master(world: World, stream: bytearray) -> None:
    assert await create(world, MASTER) == (0, None)
    assert await allow(world, MASTER, "Topic:orders") == (0, None)
    assert await world.until(lambda: alike(world)) < 0.1
    assert users(world, SLAVE).users.get("app") == User("app", Secret(SECRET))
    assert "no permission" in str(await get(world, SLAVE))
    await ask(world, MASTER, Code.AUTH_CREATE_ACL, {"subject": "User:app"}, rules_of("Topic:orders", "Get"))
    assert await world.until(lambda: alike(world)) < 0.1
    assert "not exist" in str(await get(world, SLAVE))
    for values in ({"password": "secret-of-app-2"}, {"user_status": "disable"}, {"user_type": "Super"}):
        assert await change(world, MASTER, **values) == (0, None)
        await world.until(lambda: alike(world))
    assert (await get(world, SLAVE, Credentials("app", "secret-of-app-2")))[1] == "User:app is disabled."
    assert await ask(world, MASTER, Code.AUTH_DELETE_ACL, {"subject": "User:app"}) == (0, None)
    await world.until(lambda: alike(world))
    assert await ask(world, MASTER, Code.AUTH_DELETE_USER, {"username": "app"}) == (0, None)
    await world.until(lambda: alike(world))
    assert users(world, SLAVE).users.get("app") is None
    assert len(stream) > 1000
    for secret in (SECRET, "secret-of-app-2", "root-secret-1", "inner-secret-1"):
        assert secret.encode() not in stream


@pytest.mark.behaviour("AU-36")
async def test_a_new_slave_gets_them_and_loses_its_own(world: World) -> None:
    await world.stop_broker(SLAVE)
    await create(world, MASTER)
    await allow(world, MASTER, "Topic:orders")
    await world.start_broker(SLAVE)
    await world.until(lambda: following(world).transferring)
    await world.until(lambda: alike(world))
    world.crash(MASTER)
    access = users(world, SLAVE)
    access.users.put(User("own", Secret("own-secret-1")))
    access.users.put(User("app", Secret("another"), status=UserStatus.DISABLE))
    access.rules.put("own", Acl.of(AclInfo.decode(rules_of("Topic:x"))))
    await world.start_broker(MASTER)
    await world.until(lambda: following(world).transferring)
    await world.until(lambda: alike(world))
    assert sorted(known(world, SLAVE)["users"]) == ["app", "inner", "root"]


@pytest.mark.behaviour("AU-36")
@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.PREFIX])
async def test_a_disabled_user_stays_disabled_at_a_slave_without_power_and_master(
    world: World, keep: Keep
) -> None:
    await create(world, MASTER)
    await world.sleep(10)
    await change(world, MASTER, user_status="disable")
    await world.until(lambda: alike(world))
    await world.sleep(0.1)
    world.crash(MASTER)
    world.crash(SLAVE, keep)
    await world.start_broker(SLAVE)
    assert (await get(world, SLAVE))[1] == "User:app is disabled."


@pytest.mark.behaviour("AU-37")
async def test_who_proves_nothing_or_opens_nothing_is_told_no_user(world: World) -> None:
    await create(world, MASTER)
    await allow(world, MASTER, "Topic:orders")
    for name in (MASTER, SLAVE):
        assert await ask(world, name, Code.UPDATE_BROKER_CONFIG, {}, b"authMode=observe") == (0, None)
    hello = greeting(world)
    for seals, proves in ((True, False), (False, True)):
        stranger = await Stranger(world).connect()
        wanted = structs.replace(hello, seals=seals)
        answer = await (stranger.prove(wanted, INNER) if proves else stranger.say(wanted))
        assert answer.refusal == ""
        stranger._got.clear()
        stranger.write(structs.replace(wanted, start=0).encode())
        await world.sleep(0.5)
        assert b"subscriptionGroup" in stranger._got
        for text in (b"users", b"acls", SECRET.encode()):
            assert text not in stranger._got
        stranger._transport.abort()


@pytest.mark.behaviour("AU-38")
@pytest.mark.parametrize("first", [MASTER, SLAVE])
async def test_a_change_at_a_slave_is_made_by_its_master_and_again_is_a_success(
    world: World, first: str
) -> None:
    """RocketMQ's mqadmin makes the change at master and slave, in any order, and stops at the first
    failure.
    """
    both = (first, SLAVE if first == MASTER else MASTER)
    for broker in both:
        assert await create(world, broker) == (0, None)
    for broker in both:
        assert await allow(world, broker, "Topic:orders") == (0, None)
    for broker in both:
        assert await change(world, broker, user_status="disable") == (0, None)
    await world.until(lambda: alike(world))
    user = users(world).users.get("app")
    assert user is not None
    assert not user.is_enabled
    for broker in both:
        assert await ask(world, broker, Code.AUTH_DELETE_ACL, {"subject": "User:app"}) == (0, None)
    assert users(world).rules.get("app") is None
    for broker in both:
        assert await ask(world, broker, Code.AUTH_DELETE_USER, {"username": "app"}) == (0, None)
    await world.until(lambda: alike(world))
    assert users(world).users.get("app") is None
    # A change that no slave has passed on is refused the second time, as by RocketMQ's brokers.
    assert await create(world, MASTER) == (0, None)
    assert await create(world, MASTER) == (16, "The user is existed")
    # Another user of that name is not a repetition.
    assert await create(world, SLAVE, "another-secret") == (16, "The user is existed")


@pytest.mark.behaviour("AU-38")
async def test_a_slave_without_its_master_changes_no_user(world: World) -> None:
    world.crash(MASTER)
    await world.until(lambda: not following(world).transferring)
    code, remark = await create(world, SLAVE)
    assert (code, remark) == (
        1,
        "this would not last at a broker that is slave: send it to the master of broker-a",
    )
    assert users(world, SLAVE).users.get("app") is None


@pytest.mark.behaviour("AU-39")
@pytest.mark.parametrize("world", [ACTING], indirect=True)
async def test_an_acting_slave_refuses_as_its_master_and_hands_its_changes_over(world: World) -> None:
    await create(world, MASTER)
    await allow(world, MASTER, "Topic:orders")
    await allow(world, MASTER, "Topic:paid")
    await ask(world, MASTER, Code.AUTH_CREATE_USER, {"username": "old"}, UserInfo(password="old-1").encode())
    await change(world, MASTER, user_status="disable")
    await world.until(lambda: alike(world))
    world.crash(MASTER)
    await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
    assert (await get(world, SLAVE))[1] == "User:app is disabled."
    assert await change(world, SLAVE, user_status="enable", password="secret-of-app-2") == (0, None)
    assert await ask(world, SLAVE, Code.AUTH_DELETE_ACL, {"subject": "User:app"}) == (0, None)
    new = UserInfo(password="new-secret-1").encode()
    assert await ask(world, SLAVE, Code.AUTH_CREATE_USER, {"username": "new"}, new) == (0, None)
    old = {"username": "old"}
    assert await ask(world, SLAVE, Code.AUTH_UPDATE_USER, old, UserInfo(user_status="disable").encode()) == (
        0,
        None,
    )
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER and role_of(world, SLAVE) is Role.SLAVE)
    await world.until(lambda: alike(world))
    found = known(world, MASTER)
    assert found["users"]["app"] == User("app", Secret("secret-of-app-2"))
    assert found["rules"] == {}
    assert sorted(found["users"]) == ["app", "inner", "new", "old", "root"]
    assert not found["users"]["old"].is_enabled


@pytest.mark.behaviour("AU-21", "AZ-08")
async def test_a_slave_is_named_beside_its_master(world: World) -> None:
    """The slave's users may differ: here it is cut off."""
    both = ["broker-a", "broker-a (id 1)"]
    async with Admin(world.name_server, runtime=world.runtime, credentials=ROOT) as admin:
        assert list(await admin.access.create_user("app", SECRET)) == both
        assert list(await admin.access.set_rule("app", "Topic:orders", ["Pub"])) == both
        await world.until(lambda: alike(world))
        cut_off(world)
        await world.until(lambda: not following(world).transferring)
        await change(world, MASTER, user_status="disable")
        users_there = (await admin.access.users()).whole()
        assert [(one.broker_name, one.is_enabled) for one in users_there if one.user == "app"] == [
            (both[0], False),
            (both[1], True),
        ]
        verdicts = (await admin.access.test("app", "Pub", "Topic:orders")).whole()
        assert [(one.broker_name, one.allowed, one.why) for one in verdicts] == [
            (both[0], False, "app is disabled"),
            (both[1], True, "allowed by Topic:orders"),
        ]


@pytest.mark.behaviour("AU-37")
async def test_a_changed_frame_of_tables_ends_the_link(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (connection,) = [each for each in ha_port(world).connections if each.sender is not None]
    end: Any = connection.end
    assert end.sealed
    seal, sent = end._sealing.seal, []

    def again(kind: FrameKind, payload: bytes) -> bytes:
        sent.append(seal(kind, payload))
        return bytes(sent[0])

    monkeypatch.setattr(end._sealing, "seal", again)
    await create(world, MASTER)
    await world.until(lambda: alike(world))
    await allow(world, MASTER, "Topic:orders")
    await world.until(lambda: "is not sealed with the keys of this link" in caplog.text)
    # The next connection works again.
    await world.until(lambda: alike(world))


@pytest.mark.behaviour("AU-36")
async def test_what_waits_at_a_slave_stays_when_its_link_begins_anew(world: World) -> None:
    await create(world, MASTER)
    await world.until(lambda: alike(world))
    changed: list[str] = []
    access = users(world, SLAVE)
    feed = world.brokers[SLAVE].services.feed
    end = feed.subscribe(lambda table, key, _value: changed.append(table))
    following(world).broken(ConnectionError("the test"))
    await world.until(lambda: not following(world).transferring)
    await world.until(lambda: following(world).transferring)
    await world.sleep(1)
    end()
    assert access.users.get("app") is not None
    assert not {"users", "acls"} & set(changed)


@pytest.mark.behaviour("AU-38")
async def test_a_slave_that_cannot_open_keeps_users_of_its_own(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave behaves like one whose master is an older build."""
    monkeypatch.setattr("orbitmq.replication.link.proof.can_seal", lambda: False)
    async with World(orbitmq_runtime, replicas=2, settings=KEYS) as world:
        await world.until(lambda: following(world).transferring)
        assert "users and rules are not copied between brokers" in caplog.text
        assert await create(world, SLAVE) == (0, None)
        for _ in range(2):
            world.crash(SLAVE)
            await world.start_broker(SLAVE)
            await world.until(lambda: following(world).transferring)
            await world.sleep(1)
            assert users(world, SLAVE).users.get("app") is not None
        assert users(world, MASTER).users.get("app") is None
