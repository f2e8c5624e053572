"""gRPC clients of a broker that requires keys: their users and their rights."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.grpc_rpc import RpcClient, message

from orbitmq import Credentials
from orbitmq.auth.rules import Acl
from orbitmq.auth.users import User, UserStatus
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.broker import Broker
from orbitmq.gateway.attach import attach as gateway
from orbitmq.gateway.schema import ClientType, TransactionResolution
from orbitmq.gateway.status import Code
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Secret

ROOT = Credentials("root", "root-secret-1")
TIME = "20261129T061500Z"
RULES = [("Topic:T", "Pub,Sub"), ("Group:cg", "Sub")]


def signed(user: str, secret: str, signed_time: str = TIME, sent_time: str = TIME) -> dict[str, str]:
    digest = hmac.new(secret.encode(), signed_time.encode(), hashlib.sha1).hexdigest()
    parts = f"Credential={user}/RocketMQ, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"authorization": f"MQv2-HMAC-SHA1 {parts}", "x-mq-date-time": sent_time}


APP = signed("app", "app-secret")
OTHER = signed("other", "other-secret")


class World:
    """A broker with the users root, app and other."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.access = broker.part(BrokerAccess)
        self.runtime = broker.runtime

    def client(self, headers: dict[str, str], client_id: str = "client-1", group: str = "cg") -> RpcClient:
        client = RpcClient(self.runtime, client_id=client_id, group=group)
        client.more_headers = headers
        return client

    def allow(self, user: str, *rules: tuple[str, str]) -> None:
        entries = [PolicyEntryInfo(name, actions.split(","), None, "Allow") for name, actions in rules]
        self.access.rules.put(user, Acl.of(AclInfo(None, [PolicyInfo(None, entries)])))

    def user(self, name: str, status: UserStatus = UserStatus.ENABLE) -> None:
        self.access.users.put(User(name, Secret(f"{name}-secret"), status=status))


@asynccontextmanager
async def world(runtime: SimulatedRuntime, **changes: Any) -> AsyncIterator[World]:
    config = broker_config(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=ROOT,
        **changes,
    )
    async with Broker(runtime, config, extensions=[gateway]) as broker:
        found = World(broker)
        found.user("app")
        found.user("other")
        found.allow("app", *RULES)
        async with found.client(signed("root", "root-secret-1"), "root-client") as root:
            await root.sent(b"makes T")
            await root.sent(b"makes U", topic="U")
        yield found


@pytest.mark.behaviour("AU-32")
async def test_accounts_of_acl_1_work_as_users(runtime: SimulatedRuntime) -> None:
    runtime.files.make_dirs("/mq/conf")
    admin = "accounts:\n- accessKey: adminuser\n  secretKey: admin-secret\n  admin: true\n"
    app = "- accessKey: appuser\n  secretKey: app-secret\n  topicPerms: [T=PUB|SUB]\n  groupPerms: [cg=SUB]\n"
    runtime.files.write_atomic("/mq/conf/plain_acl.yml", f"{admin}{app}".encode())
    config = broker_config(acl_enable=True, rocketmq_home="/mq")
    async with Broker(runtime, config, extensions=[gateway]) as broker:
        found = World(broker)
        async with found.client(signed("adminuser", "admin-secret"), "root-client") as root:
            await root.sent(b"makes U", topic="U")
            await root.sent(b"makes T")
        async with found.client(signed("appuser", "app-secret")) as client:
            await client.start()
            await client.sent(b"one")
            assert (await client.receive()).messages
            assert (await client.send(message(b"x", topic="U"))).status.code == Code.FORBIDDEN
        async with found.client(signed("appuser", "wrong-secret")) as client:
            assert (await client.route()).status.code == Code.UNAUTHORIZED


@pytest.mark.behaviour("AU-25")
async def test_a_client_works_with_its_keys_and_rights(runtime: SimulatedRuntime) -> None:
    async with world(runtime) as found, found.client(APP) as app:
        assert (await app.route()).status.code == Code.OK
        assert (await app.assignment()).status.code == Code.OK
        await app.start()
        assert (await app.heartbeat()).status.code == Code.OK
        await app.sent(b"one")
        await app.sent(b"two", b"three")
        received = await app.receive()
        while len(received.messages) < 4:
            received.messages += (await app.receive()).messages
        first, second, third = (received.handle(number) for number in range(3))
        assert (await app.ack(first)).status.code == Code.OK
        assert (await app.change(second, 20_000)).status.code == Code.OK
        assert (await app.give_up(third)).status.code == Code.OK
        half = await app.begin()
        assert (await app.end(half)).status.code == Code.OK
        assert (await app.goodbye()).status.code == Code.OK


@pytest.mark.behaviour("AU-25")
@pytest.mark.parametrize(
    ("headers", "remark"),
    [
        ({}, "username cannot be null."),
        (signed("", "x"), "username cannot be null."),
        (signed("app", "another"), "check signature failed."),
        (signed("nobody", "app-secret"), "check signature failed."),
        (signed("app", "app-secret", sent_time="20261129T061501Z"), "check signature failed."),
        (signed("gone", "gone-secret"), "User:gone is disabled."),
    ],
)
async def test_every_call_of_others_is_unauthorized(
    runtime: SimulatedRuntime, headers: dict[str, str], remark: str
) -> None:
    # Wrong signatures delay the requests of their address, so the transaction must not time out meanwhile.
    async with world(runtime, transaction_timeout_ms=600_000) as found:
        found.user("gone", UserStatus.DISABLE)
        found.allow("gone", ("*", "All"))
        end = found.broker.services.store.max_commit_log_offset
        async with found.client(APP, "client-2") as app:
            half = await app.begin()
            (got,) = (await app.receive(count=1)).messages
            handle = got.system_properties.receipt_handle
            end = found.broker.services.store.max_commit_log_offset
        async with found.client(headers) as client:
            answers = [
                await client.route(),
                await client.assignment(),
                await client.heartbeat(),
                await client.send(message()),
                await client.send(message(), message()),
                await client.ack(handle),
                await client.change(handle, 20_000),
                await client.give_up(handle),
                await client.end(half),
                await client.recall("x"),
                await client.goodbye(),
            ]
            for answer in answers:
                assert (answer.status.code, answer.status.message) == (Code.UNAUTHORIZED, remark), answer
            received = await client.receive(wait_ms=1000)
            assert (received.code, received.text) == (Code.UNAUTHORIZED, remark)
            stream = client.telemetry()
            assert (await stream.next()).status.code == Code.UNAUTHORIZED
            await asyncio.wait_for(stream.answer.done.wait(), 5)
            assert stream.answer.status == 16
        await asyncio.sleep(1)
        lines = [json.loads(line) for line in runtime.files.read_bytes("/store/audit.log").splitlines()]
        refused = {line["request"] for line in lines if line["event"] == "refusal" and line["why"] == remark}
        assert {"SendMessage", "ReceiveMessage", "Telemetry"} <= refused
        assert found.broker.services.store.max_commit_log_offset == end


@pytest.mark.behaviour("LM-09")
async def test_wrong_signatures_slow_their_address_at_every_port(runtime: SimulatedRuntime) -> None:
    clock = runtime.clock
    async with world(runtime) as found:
        async with found.client(signed("app", "another")) as guessing:
            begin, times = clock.monotonic(), []
            for _ in range(12):
                assert (await guessing.route()).status.code == Code.UNAUTHORIZED
                times.append(clock.monotonic() - begin)
        assert times[4] < 0.1
        assert 3 < times[-1] < 10
        # The broker also delays new connections from that address, in any protocol.
        begin = clock.monotonic()
        async with found.client(APP) as app:
            assert (await app.route()).status.code == Code.OK
        assert 1 < clock.monotonic() - begin < 3
        async with found.client(signed("app", "another")) as guessing:
            assert (await guessing.route()).status.code == Code.UNAUTHORIZED
        begin = clock.monotonic()
        remoting = RemotingClient(runtime, identity=Identity(ROOT))
        answer = await remoting.request("127.0.0.1:10911", Command(RequestCode.GET_BROKER_RUNTIME_INFO), 9000)
        assert answer.code == 0
        assert 1 < clock.monotonic() - begin < 3
        await remoting.close()
        await clock.sleep(61)
        begin = clock.monotonic()
        async with found.client({}) as nobody, found.client(APP, "client-2") as app:
            for _ in range(12):
                assert (await nobody.route()).status.code == Code.UNAUTHORIZED
            assert (await app.route()).status.code == Code.OK
        assert clock.monotonic() - begin < 0.2


@pytest.mark.behaviour("AZ-15")
async def test_every_call_needs_the_rights_of_its_topic_and_group(runtime: SimulatedRuntime) -> None:
    async with world(runtime) as found:
        async with found.client(APP, "client-2") as app:
            half = await app.begin()
            (got,) = (await app.receive(count=1)).messages
            handle = got.system_properties.receipt_handle
        found.allow("other", ("Topic:U", "All"), ("Group:other", "All"))
        async with found.client(OTHER, group="cg") as other:
            sub = "User:other has no permission to access Group:cg from 127.0.0.1, no matched policies."
            pub = sub.replace("Group:cg", "Topic:T")
            for answer, remark in (
                (await other.route(), pub),
                (await other.assignment("U"), sub),
                (await other.heartbeat(), sub),
                (await other.goodbye(), sub),
                (await other.send(message()), pub),
                (await other.send(message(topic="U"), message()), pub),
                (await other.ack(handle, topic="U"), sub),
                (await other.change(handle, 20_000, topic="U"), sub),
                (await other.give_up(handle, topic="U"), sub),
                (await other.end(half), pub),
                # The right for the half message's topic counts, not that for the topic in the request.
                (await other.end(half, TransactionResolution.ROLLBACK, topic="U"), pub),
                (await other.recall("x"), pub),
            ):
                assert (answer.status.code, answer.status.message) == (Code.FORBIDDEN, remark), answer
            received = await other.receive("U")
            assert (received.code, received.text) == (Code.FORBIDDEN, sub)
            for kind in (ClientType.PRODUCER, ClientType.PUSH_CONSUMER):
                stream = other.telemetry()
                await stream.send(other.settings(kind))
                assert (await stream.next()).status.code == Code.FORBIDDEN
                await asyncio.wait_for(stream.answer.done.wait(), 5)
                assert stream.answer.status == 7
        assert found.broker.services.clients.consumers("cg") is None
        async with found.client(OTHER, group="other") as other:
            received = await other.receive("T")
            assert (received.code, "Topic:T" in received.text) == (Code.FORBIDDEN, True)
            assert (await other.receive("U")).bodies == [b"makes U"]


@pytest.mark.behaviour("AZ-15")
async def test_the_client_id_of_another_user_is_refused(runtime: SimulatedRuntime) -> None:
    async with world(runtime) as found:
        found.allow("other", *RULES)
        async with found.client(APP) as app, found.client(OTHER) as other:
            await app.start(ClientType.PRODUCER)
            for answer in (await other.goodbye(), await other.heartbeat()):
                text = "another user's client has this client id"
                assert (answer.status.code, answer.status.message) == (Code.FORBIDDEN, text)
            stream = other.telemetry()
            assert (await stream.next()).status.code == Code.FORBIDDEN
            assert (await app.heartbeat(ClientType.PRODUCER)).status.code == Code.OK


@pytest.mark.behaviour("AZ-16")
@pytest.mark.parametrize("how", ["disabled", "rule"])
async def test_who_lost_the_right_gets_nothing_by_what_waits(runtime: SimulatedRuntime, how: str) -> None:
    async with (
        world(runtime) as found,
        found.client(APP) as app,
        found.client(OTHER, "client-2", "og") as other,
    ):
        found.allow("other", ("Topic:T", "Sub"), ("Group:og", "Sub"))
        await app.receive()
        await other.receive()
        stream = await app.start()
        waiting = asyncio.create_task(app.receive(wait_ms=20_000))
        stays = asyncio.create_task(other.receive(wait_ms=20_000))
        await asyncio.sleep(1)
        if how == "disabled":
            found.user("app", UserStatus.DISABLE)
        else:
            found.allow("app", ("Topic:T", "Pub"))
        ended = await asyncio.wait_for(waiting, 1)
        about = "access Group:cg from 127.0.0.1, no matched policies."
        refused = {
            "disabled": (Code.UNAUTHORIZED, "User:app is disabled."),
            "rule": (Code.FORBIDDEN, f"User:app has no permission to {about}"),
        }[how]
        assert (ended.code, ended.text, ended.bodies) == (*refused, [])
        await asyncio.wait_for(stream.answer.done.wait(), 1)
        later = await app.receive()
        assert (later.code, later.text) == refused
        assert not stays.done()
        async with found.client(signed("root", "root-secret-1"), "root-client") as root:
            await root.sent(b"new")
        assert (await stays).bodies == [b"new"]


@pytest.mark.behaviour("AZ-15")
async def test_observing_counts_and_serves(runtime: SimulatedRuntime) -> None:
    async with world(runtime, auth_mode="observe") as found:
        async with found.client({}) as nobody, found.client(OTHER, "client-2") as other:
            await nobody.sent(b"x")
            await other.sent(b"y")
            await nobody.start()
            async with found.client(APP, "client-3") as app:
                await app.start()
                # The client id is the same before and after the client has keys.
                app.more_headers = {}
                assert (await app.heartbeat()).status.code == Code.OK
        client = RemotingClient(found.runtime, identity=Identity(ROOT))
        state = await client.request("127.0.0.1:10911", Command(RequestCode.GET_BROKER_RUNTIME_INFO), 5000)
        await client.close()
        counted = json.loads(KVTable.decode(state.body).table["refusals"])
        assert [(one["user"], one["why"], one["resource"], one["count"]) for one in counted] == [
            ("", "no keys", "", 4),
            ("other", "no right", "Topic:T", 1),
        ]
