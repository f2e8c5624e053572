"""gRPC on real sockets, on asyncio and on uvloop: the port changes hands, TLS, the certificate's file."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_client import GrpcClient
from tests.conversation.grpc_rpc import RpcClient, receiving
from tests.conversation.test_gateway_door import Script, trusting
from tests.sockets.transport import World, on_asyncio, on_uvloop

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.gateway.attach import attach
from orbitmq.gateway.door import GrpcDoor
from orbitmq.runtime import Runtime
from orbitmq.runtime.certificates import self_signed
from orbitmq.runtime.ports import free_ports
from orbitmq.runtime.system import system_runtime
from orbitmq.settings.tls import TlsSettings

ROOT = Path(__file__).resolve().parents[2]
SMALL = 1 << 20


def config(folder: Path, **settings: object) -> BrokerConfig:
    options = {
        "store_path_root_dir": str(folder),
        "listen_port": 0,
        "ha_listen_port": 0,
        "bind_address": "127.0.0.1",
        "mapped_file_size_commit_log": SMALL,
        "grpc_server_port": free_ports(1)[0],
        **settings,
    }
    return BrokerConfig(**options)  # type: ignore[arg-type]


def broker(runtime: Runtime, folder: Path, **settings: object) -> Broker:
    extension = partial(attach, make_service=lambda host: Script())
    return Broker(runtime, config(folder, **settings), extensions=[extension])


@pytest.mark.behaviour("GW-03")
@pytest.mark.parametrize("world", [on_asyncio, on_uvloop])
def test_every_client_on_every_port(world: World, tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096

    async def test(runtime: Runtime) -> None:
        async with broker(runtime, tmp_path) as served:
            for port in (served.port, served.part(GrpcDoor).port):
                for tls in (None, trusting("h2")):
                    async with GrpcClient(runtime, "127.0.0.1", port, tls=tls) as asker:
                        answers = await asyncio.gather(*(asker.call("Echo", body) for _ in range(5)))
                        assert all(answer.messages() == [body] for answer in answers)
                        big = await asker.call("Big", b"")
                        assert [len(message) for message in big.messages()] == [SMALL] * 8
            async with BrokerPeer(runtime, served.address) as peer:
                await peer.create()
                await peer.sent()
        kept = tmp_path / "tls" / "self-signed.pem"
        assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600

    world(test)


async def echoes(served: Broker, context: ssl.SSLContext) -> None:
    """A call works with this client's TLS."""
    async with GrpcClient(served.runtime, "127.0.0.1", served.port, tls=context) as asker:
        assert (await asker.call("Echo", b"x")).status == 0


@pytest.mark.behaviour("GW-03")
def test_a_certificate_of_the_users(tmp_path: Path) -> None:
    pem = self_signed(["orders.example"], 1_790_000_000_000)
    begin = pem.index(b"-----BEGIN CERT")
    (tmp_path / "key.pem").write_bytes(pem[:begin])
    (tmp_path / "cert.pem").write_bytes(pem[begin:])
    paths = {"tls_cert_path": str(tmp_path / "cert.pem"), "tls_key_path": str(tmp_path / "key.pem")}

    async def test(runtime: Runtime) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem[begin:].decode())
        context.check_hostname = False
        async with broker(runtime, tmp_path / "store", **paths) as served:
            await echoes(served, context)
        assert not (tmp_path / "store" / "tls").exists()
        for key, file in (("tls_key_path", "cert.pem"), ("tls_cert_path", "none.pem")):
            wrong = {key: str(tmp_path / file)}
            with pytest.raises(StartError, match="tlsCertPath="):
                await broker(runtime, tmp_path / "other", **{**paths, **wrong}).start()

    on_asyncio(test)


async def shakes_hands(port: int, ca: str) -> bool:
    """Whether the certificate shown is of this authority."""
    try:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=ssl.create_default_context(cafile=ca)
        )
    except ssl.SSLError:
        return False
    writer.close()
    return True


@pytest.mark.behaviour("GW-03")
def test_a_changed_certificate_of_the_users_is_shown_without_a_restart(tmp_path: Path) -> None:
    one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    old, new = one.issue("server"), two.issue("server")
    paths = {"tls_cert_path": str(tmp_path / "cert.pem"), "tls_key_path": str(tmp_path / "key.pem")}
    shutil.copy(old.cert, paths["tls_cert_path"])
    shutil.copy(old.key, paths["tls_key_path"])

    async def test(runtime: Runtime) -> None:
        async with broker(runtime, tmp_path / "store", **paths) as served:
            await echoes(served, ssl.create_default_context(cafile=one.ca))
            shutil.copy(new.cert, paths["tls_cert_path"])
            shutil.copy(new.key, paths["tls_key_path"])
            async with asyncio.timeout(60):
                while not await shakes_hands(served.port, two.ca):
                    await asyncio.sleep(0.3)
            await echoes(served, ssl.create_default_context(cafile=two.ca))

    on_asyncio(test)


WITHOUT_GRPC = """
import asyncio, sys
from orbitmq.broker.config import BrokerConfig
from orbitmq.cluster.brokers import make_broker
from orbitmq.runtime.system import system_runtime
from orbitmq.settings.tls import TlsSettings

async def main():
    config = BrokerConfig(store_path_root_dir=sys.argv[1], listen_port=0, ha_listen_port=0,
                          grpc_server_port=0, mapped_file_size_commit_log=1 << 20)
    async with make_broker(system_runtime(), config):
        pass

asyncio.run(main())
loaded = ("h2", "hpack", "google.protobuf", "cryptography", "orbitmq.gateway.http2",
          "orbitmq.gateway.service", "orbitmq.runtime.tls")
print([name for name in loaded if name in sys.modules])
"""


@pytest.mark.behaviour("GW-07")
def test_a_broker_without_grpc_clients_loads_none_of_their_libraries(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GRPC, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_same_certificate_after_a_restart(tmp_path: Path) -> None:
    async def test(runtime: Runtime) -> None:
        kept = []
        for _ in range(2):
            async with broker(runtime, tmp_path) as served:
                await echoes(served, trusting("h2"))
            kept.append((tmp_path / "tls" / "self-signed.pem").read_bytes())
        assert kept[0] == kept[1]

    asyncio.run(test(system_runtime()))


async def refused(runtime: Runtime, port: int, tls: ssl.SSLContext | None) -> None:
    """A client is not served on this port."""
    asker = GrpcClient(runtime, "127.0.0.1", port, tls=tls)

    async def connect() -> None:
        await asker.connect()
        asker.h2.initiate_connection()
        asker.flush()

    connecting = asyncio.ensure_future(connect())
    await asyncio.wait_for(asker.gone.wait(), 60)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    assert not asker.answers


@pytest.mark.behaviour("TL-09")
@pytest.mark.behaviour("TL-11")
@pytest.mark.parametrize("world", [on_asyncio, on_uvloop])
def test_the_tls_of_the_broker_holds_for_both_ports(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    made, mine = authority.issue("server"), authority.issue("app")
    trusted = ssl.create_default_context(cafile=authority.ca)
    trusted.set_alpn_protocols(["h2"])
    known = ssl.create_default_context(cafile=authority.ca)
    known.load_cert_chain(mine.cert, mine.key)
    cases: dict[str, tuple[set[ssl.SSLContext | None], set[ssl.SSLContext | None]]] = {
        "disabled": ({None}, {trusted}),
        "permissive": ({None, trusted}, set()),
        "enforcing": ({trusted}, {None}),
        "require": ({known}, {None}),
    }

    async def test(runtime: Runtime) -> None:
        for name, (takes, refuses) in cases.items():
            mutual = name == "require"
            tls = TlsSettings(
                mode="enforcing" if mutual else name,
                cert=made.cert,
                key=made.key,
                client_auth="require" if mutual else "none",
                checks_clients=mutual,
                authorities=authority.ca if mutual else "",
            )
            async with broker(runtime, tmp_path / name, tls=tls) as served:
                for port in (served.port, served.part(GrpcDoor).port):
                    for context in takes:
                        async with GrpcClient(runtime, "127.0.0.1", port, tls=context) as asker:
                            assert (await asker.call("Echo", b"x")).status == 0
                    for context in refuses:
                        await refused(runtime, port, context)
                    if mutual:
                        # Behind the handshake of TLS 1.3 the client reads that it is refused.
                        await refused(runtime, port, trusted)
            assert not (tmp_path / name / "tls").exists()
            shutil.rmtree(tmp_path / name)

    world(test)


@pytest.mark.behaviour("GW-59")
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("world", [on_asyncio, on_uvloop])
def test_messages_whose_answer_is_lost_come_again_though_their_client_lives(
    world: World, tls: bool, tmp_path: Path
) -> None:
    async def test(runtime: Runtime) -> None:
        context = trusting("h2") if tls else None
        async with Broker(runtime, config(tmp_path), extensions=[attach]) as served:
            member = partial(RpcClient, runtime, port=served.port, tls=context)
            async with member() as lives, member(client_id="other") as other:
                await lives.route()
                await lives.start()
                async with member() as lossy:
                    assert (await lossy.receive(renew=True)).messages == []
                    lossy.grpc.hears = False
                    receiving(lossy, renew=True, wait_ms=20_000)
                    await asyncio.sleep(0.2)
                    await lives.sent(b"one")
                    await asyncio.sleep(0.2)
                    assert (await other.receive()).messages == []
                assert (await other.receive(wait_ms=20_000)).bodies == [b"one"]

    world(test)
