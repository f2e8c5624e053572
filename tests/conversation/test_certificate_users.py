"""Clients whose user is named by their certificate: at the broker's ports, the name server and over gRPC."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, Made
from tests.conversation.grpc_rpc import RpcClient, message
from tests.conversation.scripted import running as consuming
from tests.conversation.test_gateway_access import signed

from orbitmq import Consumer, Credentials, Message, NotPermittedError, Producer, ReceivedMessage, Tls
from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.gateway.attach import attach as gateway
from orbitmq.gateway.status import Code
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

NAMES = "127.0.0.1:9876"
MAIN, VIP, GRPC = 10911, 10909, 8081
ROOT_KEYS = Credentials("root", "root-secret-1")


class Cluster:
    """A name server and a broker that require TLS on both sides, keys or certificates, and rights."""

    def __init__(self, runtime: SimulatedRuntime, authority: Authority, broker: Broker, part: str) -> None:
        self.runtime = runtime
        self.broker = broker
        self._part = part
        self._authority = authority
        self._made: dict[str, Made] = {}

    def tls(self, name: str, hosts: Sequence[str] | None = None) -> Tls:
        """The TLS settings of a client with a certificate of this common name, and these alternative
        names.
        """
        if name not in self._made:
            own = [name] if self._part == "san" else []
            self._made[name] = self._authority.issue(name, own if hosts is None else hosts)
        made = self._made[name]
        return Tls(ca=self._authority.ca, cert=made.cert, key=made.key)

    def admin(self, name: str) -> Admin:
        return Admin(NAMES, runtime=self.runtime, tls=self.tls(name))

    async def ask(
        self, name: str, command: Command, port: int = MAIN, keys: Credentials | None = None
    ) -> Command:
        client = RemotingClient(self.runtime, identity=Identity(keys, self.tls(name)))
        try:
            return await client.request(f"127.0.0.1:{port}", command, 20_000)
        finally:
            await client.close()

    def rpc(self, name: str, port: int, headers: dict[str, str] | None = None) -> RpcClient:
        context = ssl.create_default_context(cafile=self._authority.ca)
        context.set_alpn_protocols(["h2"])
        tls = self.tls(name)
        assert tls.cert is not None
        context.load_cert_chain(tls.cert, tls.key)
        client = RpcClient(self.runtime, port=port, tls=context, client_id=f"{name}-{port}")
        client.more_headers = headers or {}
        return client


@asynccontextmanager
async def cluster(runtime: SimulatedRuntime, folder: Path, part: str = "cn") -> AsyncIterator[Cluster]:
    authority = Authority(folder)
    made = authority.issue("mq-1")
    runtime.files.make_dirs("/tls")
    for name, path in (("ca.pem", authority.ca), ("mq.pem", made.cert), ("mq.key", made.key)):
        runtime.files.write_atomic(f"/tls/{name}", Path(path).read_bytes())
    given = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret-1"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret-1"}',
        "tls.server.mode": "enforcing",
        "tls.server.certPath": "/tls/mq.pem",
        "tls.server.keyPath": "/tls/mq.key",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": "/tls/ca.pem",
        "tls.server.clientCertificateUser": part,
        "tls.enable": "true",
        # This file is read from the real disk, like the clients' files.
        "tls.client.trustCertPath": authority.ca,
        "tls.client.certPath": made.cert,
        "tls.client.keyPath": made.key,
    }
    names, _ = NameServerConfig.load("", {**given, "listenPort": "9876", "authConfigPath": f"/ns-{part}"})
    broker, _ = BrokerConfig.load(
        "",
        {
            **given,
            "listenPort": str(MAIN),
            "grpcServerPort": str(GRPC),
            "namesrvAddr": NAMES,
            "storePathRootDir": f"/store-{part}",
            "mappedFileSizeCommitLog": str(4 << 20),
            "mappedFileSizeConsumeQueue": "6000",
        },
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(NameServer(runtime, names))
        serving = await stack.enter_async_context(Broker(runtime, broker, extensions=[gateway]))
        while not server.routes.cluster_info().broker_addr_table:
            await asyncio.sleep(0.1)
        found = Cluster(runtime, authority, serving, part)
        async with found.admin("root") as admin:
            await admin.topics.create("orders", queues=2)
            await admin.topics.create("invoices", queues=2)
            await admin.access.create_user("app", "app-secret-1")
            await admin.access.set_rule("app", "Topic:orders", ["Pub", "Sub", "Get"])
            await admin.access.set_rule("app", "Group:cg", ["Sub"])
        yield found


@pytest.mark.behaviour("AU-47")
async def test_a_certificate_is_all_that_a_client_needs(runtime: SimulatedRuntime, tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def take(received: ReceivedMessage) -> None:
        seen.append(received.body)

    async with cluster(runtime, tmp_path) as found:
        mine: dict[str, Any] = {"name_servers": NAMES, "runtime": runtime, "tls": found.tls("app")}
        async with Producer("pg", **mine) as producer, consuming(Consumer("cg", **mine), take, "orders"):
            for number in range(5):
                await producer.send(Message("orders", b"%d" % number))
            while len(set(seen)) < 5:
                await asyncio.sleep(0.1)
            fast_path = found.broker.doors.fast_path
            assert fast_path is not None
            assert fast_path.messages_in > 0, "plain sends take the fast path"
            assert fast_path.pulls_found > 0
            with pytest.raises(NotPermittedError, match="'app': User:app has no permission") as caught:
                await producer.send(Message("invoices", b"x"))
            assert caught.value.user == "app"
        for port in (MAIN, VIP):
            command = Command(RequestCode.AUTH_LIST_USER, {"filter": ""})
            assert (await found.ask("root", command, port)).code == ResponseCode.SUCCESS
            refused = await found.ask("app", command, port)
            assert refused.remark is not None
            assert refused.remark.startswith("User:app has no permission to access Cluster:")
        async with found.admin("app") as admin:
            with pytest.raises(NotPermittedError, match="'app'"):
                await admin.topics.create("third", queues=1)
        lines = [json.loads(line) for line in runtime.files.read_bytes("/store-cn/audit.log").splitlines()]
        assert {line["user"] for line in lines if line["event"] == "change"} == {"root"}
        assert "app" in {line.get("claimed") for line in lines}


@pytest.mark.behaviour("AU-48")
async def test_unknown_users_and_keys_of_others_are_refused(
    runtime: SimulatedRuntime, tmp_path: Path
) -> None:
    async with cluster(runtime, tmp_path) as found:
        app = Credentials("app", "app-secret-1")
        for name, keys, remark in (
            ("app", None, None),
            ("app", app, None),
            ("mq-2", app, None),
            ("mq-2", None, "User:mq-2 of the client's certificate is unknown."),
            ("app", ROOT_KEYS, "User:root has signed this request, and the client's certificate is app's."),
            ("root", app, "User:app has signed this request, and the client's certificate is root's."),
            ("app", Credentials("app", "other"), "check signature failed."),
        ):
            for port, code in (
                (MAIN, RequestCode.GET_MAX_OFFSET),
                (9876, RequestCode.GET_ROUTEINFO_BY_TOPIC),
            ):
                command = Command(code, {"topic": "orders", "queueId": "0"})
                answer = await found.ask(name, command, port, keys)
                assert answer.remark == remark, (name, keys, port)
                assert answer.code == (ResponseCode.NO_PERMISSION if remark else ResponseCode.SUCCESS)


@pytest.mark.behaviour("AU-48")
async def test_a_disabled_user_is_refused_on_an_open_connection(
    runtime: SimulatedRuntime, tmp_path: Path
) -> None:
    async with cluster(runtime, tmp_path) as found, found.admin("root") as admin:
        mine: dict[str, Any] = {"name_servers": NAMES, "runtime": runtime, "tls": found.tls("app")}
        async with Producer("pg", **mine) as producer:
            for _ in range(4):
                await producer.send(Message("orders", b"x"))
            await admin.access.change_user("app", is_enabled=False)
            with pytest.raises(NotPermittedError, match="User:app is disabled"):
                await producer.send(Message("orders", b"x"))
            await admin.access.change_user("app", is_enabled=True)
            await producer.send(Message("orders", b"x"))
            await admin.access.delete_user("app")
            with pytest.raises(NotPermittedError, match="User:app of the client's certificate is unknown"):
                await producer.send(Message("orders", b"x"))


@pytest.mark.behaviour("AU-47")
async def test_a_long_first_frame_needs_a_certificate_of_a_user(
    runtime: SimulatedRuntime, tmp_path: Path
) -> None:
    async with cluster(runtime, tmp_path) as found:
        ext = {"a": "pg", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
        long = Command(RequestCode.SEND_MESSAGE_V2, ext, bytes(200_000))
        assert (await found.ask("app", long)).code == ResponseCode.SUCCESS
        with pytest.raises(TransportError):
            await found.ask("nobody", long)


@pytest.mark.behaviour("AU-47", "AU-48")
@pytest.mark.parametrize("port", [MAIN, GRPC])
async def test_grpc_clients(runtime: SimulatedRuntime, tmp_path: Path, port: int) -> None:
    async with cluster(runtime, tmp_path) as found:
        # gRPC's Python client sends the header always, with an empty key if it has none.
        for headers in ({}, signed("", ""), signed("app", "app-secret-1")):
            async with found.rpc("app", port, headers) as client:
                assert (await client.route("orders")).status.code == Code.OK
                sent = await client.send(message(b"one", topic="orders"))
                assert sent.status.code == Code.OK
                other = await client.send(message(b"one", topic="invoices"))
                assert other.status.code == Code.FORBIDDEN
        for name, headers, text in (
            ("mq-2", {}, "User:mq-2 of the client's certificate is unknown."),
            ("app", signed("root", "root-secret-1"), "User:root has signed this request, and the client's"),
            ("app", signed("app", "wrong"), "check signature failed."),
        ):
            async with found.rpc(name, port, headers) as client:
                answer = await client.send(message(b"one", topic="orders"))
                assert answer.status.code == Code.UNAUTHORIZED
                assert answer.status.message.startswith(text)
        async with found.admin("root") as admin, found.rpc("app", port) as client:
            assert (await client.send(message(b"one", topic="orders"))).status.code == Code.OK
            await admin.access.change_user("app", is_enabled=False)
            answer = await client.send(message(b"one", topic="orders"))
            assert answer.status.code == Code.UNAUTHORIZED
            assert answer.status.message == "User:app is disabled."


@pytest.mark.behaviour("AU-49")
async def test_the_alternative_name_may_be_the_user(runtime: SimulatedRuntime, tmp_path: Path) -> None:
    command = Command(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})

    async def asked(found: Cluster, name: str, *hosts: str) -> str | None:
        found.tls(name, hosts)
        return (await found.ask(name, command)).remark

    async with cluster(runtime, tmp_path) as found:
        # The common name counts, whatever other names the certificate has.
        assert await asked(found, "app", "root", "10.0.0.1") is None
    async with cluster(runtime, tmp_path / "san", part="san") as found:
        assert await asked(found, "first", "app", "10.0.0.1") is None
        why = "username cannot be null. The client's certificate names no user: it has"
        what = "alternative name (SAN) that is a DNS name, URI or email address."
        assert await asked(found, "none") == f"{why} no {what}"
        assert await asked(found, "second", "app", "root") == f"{why} more than one (2) {what}"
