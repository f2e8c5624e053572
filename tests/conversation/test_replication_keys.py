"""Brokers of one name prove to each other that they have its keys before the log is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import structs
from tests.conversation.test_replication_peers import classic_slave
from tests.replicas import ACTING, MASTER, SLAVE, following, ha_port, log_of, role_of, same_end

from orbitmq import Credentials, Message
from orbitmq.auth.users import User, UserStatus, UserType
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.role import Role
from orbitmq.replication.link.hello import Hello
from orbitmq.replication.link.proof import FOLLOWER, proof
from orbitmq.replication.link.proof import MASTER as MASTERS
from orbitmq.replication.link.stream import MAGIC
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Secret

ROOT = Credentials("root", "root-secret-1")
INNER = Credentials("inner", "inner-secret-1")
INNER_JSON = json.dumps({"accessKey": "inner", "secretKey": "inner-secret-1"})
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret-1"}),
    "innerClientAuthenticationCredentials": INNER_JSON,
}


@pytest.fixture
def world(request: pytest.FixtureRequest, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    found = World(orbitmq_runtime, replicas=2, settings={**KEYS, **getattr(request, "param", {})})
    orbitmq_loop.enter(found)
    return found


async def send(world: World, count: int) -> None:
    async with world.producer(credentials=ROOT) as producer:
        for number in range(count):
            await producer.send(Message("t", b"%d" % number))


def users(world: World, name: str = MASTER) -> BrokerAccess:
    return world.brokers[name].part(BrokerAccess)


class Stranger:
    """A follower whose messages the test writes."""

    def __init__(self, world: World, host: str = "10.7.7.7") -> None:
        self._world = world
        self._host = host
        self._got = bytearray()
        self.sent = b""
        self.ended = asyncio.Event()

    async def connect(self) -> Stranger:
        stranger = self

        class Link(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                stranger._got.extend(data)

            def connection_lost(self, exc: Exception | None) -> None:
                stranger.ended.set()

        machine = self._world.runtime.machine(self._host)
        address, _, port = self._world.brokers[MASTER].services.registration.ha_address.partition(":")
        self._transport, _ = await machine.network.connect(Link, address, int(port))
        self.write(MAGIC)
        return self

    def write(self, data: bytes) -> None:
        self.sent += data
        self._transport.write(data)

    async def say(self, hello: Hello) -> Hello:
        """Send a greeting; returns the response."""
        self._got.clear()
        self.write(hello.encode())
        await self._world.sleep(0.2)
        # A frame is 8 bytes of header and the payload.
        size = int.from_bytes(self._got[4:8], "big")
        return Hello.decode(bytes(self._got[8 : 8 + size]))

    async def prove(self, hello: Hello, keys: Credentials) -> Hello:
        """Send a greeting with a proof; returns the response."""
        hello = structs.replace(hello, user=keys.access_key, number="ab" * 16)
        master = await self.say(hello)
        assert (master.number, master.matched, master.proof) != ("", -1, "")
        shown = proof(keys.secret_key, FOLLOWER, hello, hello.number, master.number)
        return await self.say(structs.replace(hello, proof=shown))


def greeting(world: World) -> Hello:
    """The greeting of an empty slave with id 7."""
    own = ha_port(world).shared.identity.hello()
    return structs.replace(own, broker_id=7, address="10.7.7.7:10911", run="ff" * 8, begin=0, end=0)


async def refused(world: World, hello: Hello, keys: Credentials | None) -> str:
    """The master's reason to refuse this follower, whose connection has to end."""
    stranger = await Stranger(world).connect()
    answer = await (stranger.say(hello) if keys is None else stranger.prove(hello, keys))
    assert answer.refusal
    assert answer.proof == ""
    await asyncio.wait_for(stranger.ended.wait(), 1)
    return answer.refusal


@pytest.mark.behaviour("AU-29")
async def test_a_slave_with_the_keys_copies_the_log(world: World) -> None:
    await send(world, 20)
    await world.until(lambda: same_end(world))
    assert log_of(world, MASTER) == log_of(world, SLAVE)
    (link,) = [each for each in ha_port(world).connections if each.sender is not None]
    assert link.hello is not None
    assert link.hello.broker_id == 1
    # Their requests to each other over the ports for clients are signed, too, so none is refused.
    client = RemotingClient(world.runtime, identity=Identity(ROOT))
    for name in (MASTER, SLAVE):
        command = Command(Code.GET_BROKER_RUNTIME_INFO)
        answer = await client.request(world.brokers[name].address, command, 5000)
        assert json.loads(json.loads(answer.body)["table"]["refusals"]) == []
    await client.close()


@pytest.mark.behaviour("AU-27")
async def test_who_proves_nothing_gets_nothing(world: World) -> None:
    await send(world, 5)
    hello = greeting(world)
    assert "brings no keys" in await refused(world, hello, None)
    wrong = "does not have the keys of a super user of this broker"
    assert wrong in await refused(world, hello, Credentials("inner", "another"))
    assert wrong in await refused(world, hello, Credentials("nobody", "inner-secret-1"))
    access = users(world)
    access.users.put(User("app", Secret("app-secret-1")))
    assert wrong in await refused(world, hello, Credentials("app", "app-secret-1"))
    access.users.put(User("old", Secret("old-secret-1"), UserType.SUPER, UserStatus.DISABLE))
    assert wrong in await refused(world, hello, Credentials("old", "old-secret-1"))
    place = world.brokers[MASTER].services.config.audit_place
    assert place is not None
    text = world.machines[MASTER].runtime.files.read_bytes(place.path).decode()
    told = [found for line in text.splitlines() if (found := json.loads(line)).get("request") == "HA link"]
    assert [line["claimed"] for line in told] == ["", "inner", "nobody", "app", "old"]
    assert {line["from"] for line in told} == {"10.7.7.7"}
    # The greeting did not make it a member.
    assert {each.hello.broker_id for each in ha_port(world).connections if each.hello} == {1}


@pytest.mark.behaviour("AU-27")
async def test_a_recording_is_worth_nothing(world: World) -> None:
    await send(world, 5)
    hello = greeting(world)
    stranger = await Stranger(world).connect()
    answer = await stranger.prove(hello, INNER)
    assert answer.refusal == ""
    assert answer.proof
    stranger.write(structs.replace(hello, start=0).encode())
    await world.sleep(0.5)
    assert len(stranger._got) > 500
    again = await Stranger(world).connect()
    again._transport.write(stranger.sent[len(MAGIC) :])
    await asyncio.wait_for(again.ended.wait(), 1)
    assert len(again._got) < 3000
    # A proof is valid for one try: a second greeting with it is refused as well.
    third = await Stranger(world).connect()
    wrong = await third.prove(hello, Credentials("inner", "another"))
    assert wrong.refusal


@pytest.mark.behaviour("AU-27")
async def test_a_proof_is_of_one_broker_and_one_side(world: World) -> None:
    hello, secret = greeting(world), "inner-secret-1"
    made = proof(secret, FOLLOWER, hello, "1", "2")
    others = [
        proof(secret, MASTERS, hello, "1", "2"),
        proof(secret, FOLLOWER, hello, "2", "1"),
        proof(secret, FOLLOWER, hello, "12", ""),
        proof(secret, FOLLOWER, structs.replace(hello, broker_id=8), "1", "2"),
        proof(secret, FOLLOWER, structs.replace(hello, run="aa"), "1", "2"),
        proof("another", FOLLOWER, hello, "1", "2"),
    ]
    assert made not in others
    assert made == proof(Secret(secret), FOLLOWER, hello, "1", "2")


@pytest.mark.behaviour("AU-28")
async def test_a_slave_copies_from_no_master_without_the_keys(world: World) -> None:
    """The user's secret changes at the master, so neither can prove itself to the other."""
    await world.until(lambda: following(world).transferring)
    access = users(world)
    access.users.put(User("inner", Secret("another"), UserType.SUPER))
    await world.until(lambda: not following(world).transferring)
    await send(world, 5)
    await world.sleep(10)
    assert not following(world).transferring
    access.users.put(User("inner", Secret("inner-secret-1"), UserType.SUPER))
    await world.until(lambda: same_end(world))


@pytest.mark.behaviour("AU-28")
async def test_a_master_that_asks_for_no_keys_is_not_followed(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker without the check of keys could only claim to be the master."""
    keys = ha_port(world).shared.keys
    keys.users = None
    following(world).broken(ConnectionError("the test"))
    await world.sleep(3)
    assert not following(world).transferring
    assert "does not prove that it belongs to this cluster" in caplog.text


@pytest.mark.behaviour("AU-27")
@pytest.mark.parametrize("world", [{"authMode": "observe"}], indirect=True)
async def test_closing_a_running_cluster_cuts_off_who_has_proved_nothing(world: World) -> None:
    await send(world, 5)
    stranger = await Stranger(world).connect()
    hello = greeting(world)
    assert (await stranger.say(hello)).refusal == ""
    stranger.write(structs.replace(hello, start=0).encode())
    assert len(await classic_slave(world, "10.7.7.8")) > 500
    client = RemotingClient(world.runtime, identity=Identity(ROOT))
    for name in (MASTER, SLAVE):
        change = Command(Code.UPDATE_BROKER_CONFIG, {}, b"authMode=enforce")
        assert (await client.request(world.brokers[name].address, change, 5000)).code == 0
    await client.close()
    await asyncio.wait_for(stranger.ended.wait(), 30)
    await send(world, 5)
    await world.until(lambda: same_end(world))


@pytest.mark.behaviour("AU-27")
@pytest.mark.parametrize(
    ("world", "served"), [({}, False), ({"haAllowedPeers": "10.0.0.0/8"}, True)], indirect=["world"]
)
async def test_slaves_of_rocketmq_have_to_be_named(world: World, served: bool) -> None:
    await send(world, 5)
    assert (len(await classic_slave(world, "10.7.7.7")) > 500) == served
    await world.until(lambda: same_end(world))


@pytest.mark.behaviour("AU-29")
@pytest.mark.parametrize("world", [ACTING], indirect=True)
async def test_a_slave_stands_in_and_makes_way(world: World) -> None:
    await send(world, 5)
    await world.until(lambda: same_end(world))
    world.crash(MASTER)
    await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
    await world.start_broker(MASTER)
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER and role_of(world, SLAVE) is Role.SLAVE)
    await send(world, 5)
    await world.until(lambda: same_end(world))


@pytest.mark.behaviour("AU-29")
def test_greetings_of_other_builds_are_read(world: World) -> None:
    hello = greeting(world)
    plain = json.loads(hello.encode()[8:])
    for field in ("user", "number", "proof", "sealsRecorded"):
        del plain[field]
    assert hello.seals
    assert Hello.decode(json.dumps(plain).encode()) == structs.replace(hello, seals=False)
    # This is the greeting of a build that does not record the last changes of users.
    assert not Hello.decode(json.dumps({**plain, "seals": True}).encode()).seals
    later = {**plain, "sealsRecorded": True, "of": "a later build"}
    assert Hello.decode(json.dumps(later).encode()) == hello


@pytest.mark.behaviour("AU-29")
@pytest.mark.parametrize(
    "world",
    [
        {
            "authenticationEnabled": "false",
            "authorizationEnabled": "false",
            "initAuthenticationUser": "",
        }
    ],
    indirect=True,
)
async def test_without_keys_everybody_is_served_as_before(world: World) -> None:
    """The slave offers its keys, and the master requires none."""
    async with world.producer() as producer:
        await producer.send(Message("t", b"x"))
    await world.until(lambda: same_end(world))
    stranger = await Stranger(world).connect()
    answer = await stranger.say(greeting(world))
    assert (answer.refusal, answer.number) == ("", "")


@pytest.mark.behaviour("AU-35")
async def test_brokers_with_accounts_of_acl_1_are_replicas_of_each_other(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    """The inner user comes from the settings, so no file needs to name it."""
    settings = {
        "aclEnable": "true",
        "rocketmqHome": "/mq",
        "innerClientAuthenticationCredentials": INNER_JSON,
    }
    text = "accounts:\n- accessKey: rootuser\n  secretKey: root-secret-1\n  admin: true\n"
    found = World(orbitmq_runtime, replicas=2, settings=settings)
    for name in (MASTER, SLAVE):
        files = found.machines[name].runtime.files
        files.make_dirs("/mq/conf")
        files.write_atomic("/mq/conf/plain_acl.yml", text.encode())
    async with found, found.producer(credentials=Credentials("rootuser", "root-secret-1")) as producer:
        for number in range(3):
            await producer.send(Message("t", b"%d" % number))
        await found.until(lambda: same_end(found))
