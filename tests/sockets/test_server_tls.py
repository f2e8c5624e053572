"""TLS of the servers on real sockets: who is served, with which certificate, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.certificates import DAY, Authority, Made
from tests.conversation.broker_peer import BrokerPeer
from tests.sockets.transport import ECHO, Serving, on_asyncio, on_uvloop, until

from orbitmq import ConsumeFrom, Message, Producer, PullConsumer, Tls
from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.cluster.brokers import make_broker
from orbitmq.errors import NameServerError, StartError, TransportError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import Runtime, system_runtime
from orbitmq.runtime import tls as tls_layer
from orbitmq.runtime.ports import free_ports
from orbitmq.runtime.server_tls import CertificateFiles, ServerTls, TlsMode
from orbitmq.transport import entrance
from orbitmq.transport import server as transport_server
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import split
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame

BIG = os.urandom(3 << 20)
LIMIT_S = 60.0
both_loops = pytest.mark.parametrize("world", [on_asyncio, on_uvloop])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def made(authority: Authority) -> Made:
    return authority.issue("server")


def server_tls(runtime: Runtime, made: Made, mode: TlsMode, **files: Any) -> ServerTls:
    found = ServerTls(runtime, mode, CertificateFiles(made.cert, made.key, **files), protocols=("h2",))
    found.check()
    return found


async def asked(address: str, tls: Tls | None, body: bytes = b"x") -> Command:
    client = RemotingClient(system_runtime(), identity=Identity(tls=tls))
    try:
        return await client.request(address, Command(ECHO, {"a": "1"}, body), 20_000)
    finally:
        await client.close()


async def gone(serving: Serving, *pieces: bytes, pause_s: float = 0.0) -> None:
    """Send these pieces on a plain connection, which the server then closes."""
    peer = await serving.raw()
    for piece in pieces:
        if peer.ended.is_set():
            break
        peer.transport.write(piece)
        await asyncio.sleep(pause_s)
    await asyncio.wait_for(peer.ended.wait(), LIMIT_S)
    assert not peer.answers


@dataclass
class Cell:
    """A case of the modes: is a client served with TLS, without, and what reads one that is not?"""

    mode: TlsMode
    secured: str = ""
    plain: str = ""


@pytest.mark.behaviour("TL-09")
@both_loops
@pytest.mark.parametrize(
    "cell",
    [
        Cell(TlsMode.DISABLED, secured="does not speak TLS"),
        Cell(TlsMode.PERMISSIVE),
        Cell(TlsMode.ENFORCING, plain="it may ask for TLS"),
    ],
    ids=lambda cell: cell.mode.value,
)
def test_the_three_modes(world: Any, cell: Cell, authority: Authority, made: Made) -> None:
    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, tls=server_tls(runtime, made, cell.mode)) as serving:
            for tls, refused in ((Tls(ca=authority.ca), cell.secured), (None, cell.plain)):
                for body in (b"x", BIG):
                    if not refused:
                        assert (await asked(serving.address, tls, body)).body == body
                        continue
                    with pytest.raises(TransportError, match=refused):
                        await asked(serving.address, tls, body)

    world(test)


@pytest.mark.behaviour("TL-10")
@both_loops
def test_no_byte_of_a_plain_connection_reaches_a_handler(
    world: Any, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    chunks: list[bytes] = []

    def on_chunk(_connection: object, buffer: memoryview, start: int, end: int) -> int:
        chunks.append(bytes(buffer[start:end]))
        return start

    async def test(runtime: Runtime) -> None:
        tls = server_tls(runtime, made, TlsMode.ENFORCING)
        async with Serving(runtime, tls=tls, on_chunk=on_chunk) as serving:
            frame = encode_frame(Command(ECHO, {}, b"x"))
            await gone(serving, frame)
            await gone(serving, frame[:1], frame[1:], pause_s=0.05)
            await gone(serving, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            await gone(serving, b"GET / HTTP/1.1\r\n\r\n")
            await gone(serving, b"\x15\x03\x01\x00\x02\x02\x46")
            await gone(serving, b"\x16" + frame)
            assert (serving.asked, chunks, serving.opened) == (0, [], [])

    world(test)
    assert "it does not speak TLS: tls.server.mode is enforcing" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.behaviour("TL-14")
def test_half_a_handshake_and_silence_end(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_layer, "HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr(entrance, "FIRST_SECONDS", 0.3)

    async def test(runtime: Runtime) -> None:
        for mode in (TlsMode.PERMISSIVE, TlsMode.ENFORCING):
            async with Serving(runtime, tls=server_tls(runtime, made, mode)) as serving:
                await gone(serving, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                if mode is TlsMode.ENFORCING:
                    await gone(serving)
                assert serving.asked == 0

    on_asyncio(test)
    assert "TLS handshake stopped half-way" in caplog.text
    assert "it says nothing" in caplog.text


@pytest.mark.behaviour("TL-14")
def test_a_first_frame_that_does_not_end(
    authority: Authority, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_server, "FIRST_FRAME_SECONDS", 0.4)

    async def test(runtime: Runtime) -> None:
        tls = server_tls(runtime, made, TlsMode.PERMISSIVE)
        async with Serving(runtime, tls=tls) as serving:
            silent = await serving.raw()
            frame = encode_frame(Command(ECHO, {}, bytes(100_000)))
            for length in (2, 100, 50_000):
                await gone(serving, frame[:length])
            context = ssl.create_default_context(cafile=authority.ca)
            host, _, port = serving.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(frame[:100])
            assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
            writer.close()
            # One that has said nothing yet is idle only, and is served when it speaks.
            silent.transport.write(frame)
            while not silent.answers:
                await asyncio.wait_for(silent.changed.wait(), LIMIT_S)
                silent.changed.clear()
            silent.transport.close()

    on_asyncio(test)


@pytest.mark.behaviour("TL-14")
@both_loops
def test_a_client_that_ends_without_close_notify_leaves_nothing_behind(
    world: Any, authority: Authority, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(runtime: Runtime) -> None:
        seats = Seats(2)
        tls = server_tls(runtime, made, TlsMode.ENFORCING)
        async with Serving(runtime, tls=tls, seats=seats) as serving:
            context = ssl.create_default_context(cafile=authority.ca)
            for frame in (
                b"",
                encode_frame(Command(ECHO, {}, b"x")),
                encode_frame(Command(ECHO, {}, BIG))[:9],
            ):
                plain = socket.create_connection(split(serving.address))
                client = await asyncio.to_thread(context.wrap_socket, plain, server_hostname="127.0.0.1")
                await until(lambda: len(serving.opened) > len(serving.lost))
                await asyncio.to_thread(client.sendall, frame)
                # The end of TCP's stream, and nothing of TLS before it.
                socket.socket.shutdown(client, socket.SHUT_WR)
                await until(lambda: len(serving.opened) == len(serving.lost))
                assert seats.taken == 0
                client.close()
            assert (len(serving.lost), serving.asked) == (3, 1)

    world(test)
    assert "Traceback" not in caplog.text


@pytest.mark.behaviour("LM-01")
@pytest.mark.parametrize("mode", list(TlsMode), ids=lambda mode: mode.value)
def test_connections_above_the_limit_are_refused_also_those_that_shake_hands(
    mode: TlsMode, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(runtime: Runtime) -> None:
        tls = server_tls(runtime, made, mode)
        async with Serving(runtime, tls=tls, seats=Seats(3)) as serving:
            first = b"" if mode is TlsMode.DISABLED else b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
            inside = [await serving.raw() for _ in range(3)]
            for peer in inside:
                peer.transport.write(first)
            await asyncio.sleep(0.2)
            await gone(serving)
            assert not any(peer.ended.is_set() for peer in inside)
            for peer in inside:
                peer.transport.abort()
            await asyncio.sleep(0.2)
            another = await serving.raw()
            await asyncio.sleep(0.2)
            assert not another.ended.is_set()
            another.transport.abort()

    on_asyncio(test)
    assert "all 3 connections are in use" in caplog.text


@pytest.mark.behaviour("TL-11")
@both_loops
def test_mutual_tls(world: Any, authority: Authority, made: Made, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    mine, other = authority.issue("app"), stranger.issue("app")
    old = authority.issue("old-app", since=-9 * DAY, until=-2 * DAY)

    async def test(runtime: Runtime) -> None:
        for required in (True, False):
            tls = server_tls(runtime, made, TlsMode.ENFORCING, authorities=authority.ca, required=required)
            async with Serving(runtime, tls=tls) as serving:
                good = Tls(ca=authority.ca, cert=mine.cert, key=mine.key)
                assert (await asked(serving.address, good, BIG)).body == BIG
                for wrong, text in ((other, "does not trust the authority"), (old, "has expired")):
                    with pytest.raises(TransportError, match=text):
                        await asked(serving.address, Tls(ca=authority.ca, cert=wrong.cert, key=wrong.key))
                if not required:
                    await asked(serving.address, Tls(ca=authority.ca))
                    continue
                before = serving.asked
                with pytest.raises(TransportError, match=r"asks for a certificate of the client"):
                    await asked(serving.address, Tls(ca=authority.ca))
                assert serving.asked == before

    world(test)


@pytest.mark.behaviour("TL-12")
def test_changed_files_count_for_new_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.tls")
    one, two = Authority(tmp_path / "one", "one"), Authority(tmp_path / "two", "two")
    old, new = one.issue("server"), two.issue("server")
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(old.cert, cert)
    shutil.copy(old.key, key)

    async def served_with(address: str, ca: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(TransportError):
                    await asked(address, Tls(ca=ca))
                    return
                await asyncio.sleep(0.2)

    async def test(runtime: Runtime) -> None:
        tls = ServerTls(runtime, TlsMode.ENFORCING, CertificateFiles(str(cert), str(key)))
        tls.check()
        async with Serving(runtime, tls=tls) as serving:
            kept = RemotingClient(runtime, identity=Identity(tls=Tls(ca=one.ca)))
            await kept.request(serving.address, Command(ECHO), 20_000)
            shutil.copy(new.cert, cert)  # the key of before: not of one pair
            await asyncio.sleep(1.2)
            for _ in range(3):
                await asked(serving.address, Tls(ca=one.ca))
                await asyncio.sleep(1.2)
            assert caplog.text.count("do not belong together") == 1
            key.unlink()
            await asked(serving.address, Tls(ca=one.ca))
            shutil.copy(new.key, key)
            await served_with(serving.address, two.ca)
            assert (await kept.request(serving.address, Command(ECHO, {}, b"still"), 20_000)).body == b"still"
            with pytest.raises(TransportError):
                await asked(serving.address, Tls(ca=one.ca))
            await kept.close()

    on_asyncio(test)
    assert "has changed: new connections get it" in caplog.text


@pytest.mark.behaviour("TL-13")
def test_files_that_cannot_be_right_fail_the_start(authority: Authority, made: Made, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    locked = authority.issue("locked", password=b"pssst")
    missing = str(tmp_path / "missing.pem")
    runtime = system_runtime()
    for files, text in (
        (CertificateFiles(missing, made.key), "missing.pem cannot be read: No such file"),
        (CertificateFiles(made.cert, missing), "missing.pem cannot be read: No such file"),
        (CertificateFiles(str(empty), made.key), "not a certificate and its key in PEM form"),
        (CertificateFiles(made.cert, made.cert), "not a certificate and its key in PEM form"),
        (CertificateFiles(made.cert, authority.issue("other").key), "do not belong together"),
        (CertificateFiles(locked.cert, locked.key), "another password than the one given"),
        (CertificateFiles(locked.cert, locked.key, "wrong"), "another password than the one given"),
        (CertificateFiles(made.cert, made.key, authorities=str(empty)), "PEM form"),
    ):
        with pytest.raises(StartError) as caught:
            ServerTls(runtime, TlsMode.PERMISSIVE, files).check()
        assert text in str(caught.value), (files, str(caught.value))
        assert "pssst" not in str(caught.value)
    ServerTls(runtime, TlsMode.PERMISSIVE, CertificateFiles(locked.cert, locked.key, "pssst")).check()
    # Not read where TLS is off.
    ServerTls(runtime, TlsMode.DISABLED, CertificateFiles(missing, missing)).check()


@pytest.mark.behaviour("TL-13")
def test_a_key_in_pkcs_1_and_a_certificate_that_ends(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, ends_at, text in (("soon", 9 * DAY, "expires in"), ("late", -1 * DAY, "has expired")):
        ends = authority.issue(name, since=-9 * DAY, until=ends_at)
        plain = tmp_path / f"{name}.key"
        done = subprocess.run(
            ["openssl", "ec", "-in", ends.key, "-out", str(plain)], capture_output=True, check=True
        )
        assert done.returncode == 0
        assert b"BEGIN EC PRIVATE KEY" in plain.read_bytes()
        ServerTls(system_runtime(), TlsMode.ENFORCING, CertificateFiles(ends.cert, str(plain))).check()
        assert f"{ends.cert} {text}" in caplog.text


@pytest.mark.behaviour("TL-09")
def test_openssl_s_client(authority: Authority, made: Made) -> None:
    async def client(address: str, *options: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", address, "-CAfile", authority.ca, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return said.decode()

    async def test(runtime: Runtime) -> None:
        async with Serving(runtime, tls=server_tls(runtime, made, TlsMode.ENFORCING)) as serving:
            for version, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
                said = await client(serving.address, version, "-verify_return_error")
                assert "Verify return code: 0 (ok)" in said
                assert name in said
            said = await client(serving.address, "-tls1_2", "-cipher", "AES128-GCM-SHA256:@SECLEVEL=0")
            assert "handshake failure" in said
            said = await client(serving.address, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
            assert "Verify return code: 0 (ok)" not in said or "Cipher is (NONE)" in said

    on_asyncio(test)


# -- whole servers ---------------------------------------------------------------------------------------


def settings(authority: Authority, made: Made, mode: str = "enforcing") -> dict[str, str]:
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": made.cert,
        "tls.server.keyPath": made.key,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.ca,
        "bindAddress": "127.0.0.1",
    }


@contextlib.asynccontextmanager
async def name_server(folder: Path, given: dict[str, str]) -> AsyncIterator[str]:
    config, _ = NameServerConfig.load("", {**given, "listenPort": "0", "kvConfigPath": f"{folder}/kv.json"})
    async with NameServer(system_runtime(), config) as server:
        yield f"127.0.0.1:{server.port}"


def broker(folder: Path, names: str, given: dict[str, str], **more: str) -> Broker:
    config, _ = BrokerConfig.load(
        "",
        {
            **given,
            "listenPort": str(_port()),
            "haListenPort": "0",
            "grpcServerPort": "0",
            "namesrvAddr": names,
            "storePathRootDir": str(folder),
            "mappedFileSizeCommitLog": str(16 << 20),
            **more,
        },
    )
    return make_broker(system_runtime(), config)


def _port() -> int:
    """A port whose VIP port is free too, most likely."""
    return free_ports(1)[0]


async def create_topic(names: str, tls: Tls) -> None:
    """As soon as the broker is registered."""
    async with Admin(names, tls=tls) as admin, asyncio.timeout(LIMIT_S):
        while True:
            try:
                await admin.topics.create("orders", queues=1)
                return
            except NameServerError:
                await asyncio.sleep(0.05)


def loops(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())
    uvloop.run(test())


@pytest.mark.behaviour("TL-15")
def test_a_cluster_where_all_is_tls(authority: Authority, made: Made, tmp_path: Path) -> None:
    """Registration, sends, long pulls (which are answered past the transport's buffer when it is plain)."""
    folders = iter(("one", "two"))

    async def test() -> None:
        given, tls = settings(authority, made), Tls(ca=authority.ca)
        folder = tmp_path / next(folders)
        async with name_server(folder, given) as names, broker(folder, names, given) as served:
            await create_topic(names, tls)
            bodies = [os.urandom(size) for size in (1, 1000, 100_000, 3_000_000)]
            found: list[bytes] = []
            consumer = PullConsumer("g", name_servers=names, tls=tls, consume_from=ConsumeFrom.FIRST)
            consumer.subscribe("orders")
            async with consumer, Producer("p", name_servers=names, tls=tls) as producer:

                async def poll() -> None:
                    while len(found) < 2 * len(bodies):
                        found.extend(message.body for message in await consumer.poll(timeout=5))

                polling = asyncio.ensure_future(poll())
                for body in bodies * 2:
                    await producer.send(Message("orders", body))
                    await asyncio.sleep(0.1)  # the pull waits again
                await asyncio.wait_for(polling, LIMIT_S)
                await consumer.commit()
            assert found == bodies * 2
            with pytest.raises(TransportError, match="it may ask for TLS"):
                async with BrokerPeer(system_runtime(), served.address) as peer:
                    await peer.sent()
            vip = f"127.0.0.1:{served.port - 2}"
            if served.doors._vip_server is not None:
                with pytest.raises(TransportError, match="it may ask for TLS"):
                    await asked(vip, None)

    loops(test)


@pytest.mark.behaviour("TL-16")
def test_a_slave_copies_over_tls(authority: Authority, made: Made, tmp_path: Path) -> None:
    folders = iter(("one", "two"))

    async def test() -> None:
        given, tls = settings(authority, made), Tls(ca=authority.ca)
        folder = tmp_path / next(folders)
        sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
        slave = {"brokerRole": "SLAVE", "brokerId": "1"}
        async with (
            name_server(folder, given) as names,
            broker(folder / "master", names, given, **sync) as first,
            broker(folder / "slave", names, given, **slave) as second,
        ):
            await create_topic(names, tls)
            async with Producer("p", name_servers=names, tls=tls) as producer, asyncio.timeout(LIMIT_S):
                for body in (b"one", BIG, b"three"):
                    # An answer waits for the slave.
                    await producer.send(Message("orders", body), timeout=20)
                end = first.services.store.max_commit_log_offset
                while second.services.store.max_commit_log_offset < end:
                    await asyncio.sleep(0.05)
            ha_port = first.services.registration.ha_port
            reader, writer = await asyncio.open_connection("127.0.0.1", ha_port)
            writer.write(bytes(8))  # as a slave of RocketMQ begins
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
            writer.close()

    loops(test)


@pytest.mark.behaviour("TL-15")
def test_a_permissive_broker_serves_both(authority: Authority, made: Made, tmp_path: Path) -> None:
    async def test() -> None:
        given = {**settings(authority, made, "permissive"), "tls.enable": "false"}
        async with name_server(tmp_path, given) as names, broker(tmp_path, names, given):
            for tls in (None, Tls(ca=authority.ca)):
                async with Producer("p", name_servers=names, tls=tls) as producer:
                    await producer.send(Message("T", BIG))

    asyncio.run(test())
