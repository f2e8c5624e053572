"""Clients and TLS on real sockets: what works, and one sentence for each thing that does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import DAY, Authority, server_context

from orbitmq import Credentials, Producer, Tls, ValidationError
from orbitmq.admin import Admin
from orbitmq.errors import ConnectionLostError, NameServerError, SendError, TlsError, TransportError
from orbitmq.message.model import Message
from orbitmq.runtime import system_runtime
from orbitmq.runtime.client_tls import client_context
from orbitmq.runtime.tls import TlsLayer
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame

pytestmark = pytest.mark.behaviour("TL-01")
BIG = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@contextlib.asynccontextmanager
async def echo(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """A server that answers each request with its own fields and body; its port."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                decoder.feed(data)
                for command in decoder.commands():
                    writer.write(encode_frame(command.reply(0, None, command.ext, command.body)))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()


@contextlib.asynccontextmanager
async def alerting(context: ssl.SSLContext) -> AsyncIterator[int]:
    """As ``echo``; it sends an alert when a handshake fails, which asyncio's own servers do not."""
    runtime = system_runtime()

    def answer(connection: Any, command: Command) -> Command:
        return command.reply(0, None, command.ext, command.body)

    class Accepted(TlsLayer):
        def connection_made(self, transport: Any) -> None:
            self.begin(transport, b"")

    class Network(type(runtime.network)):  # type: ignore[misc]
        async def listen(self, factory: Any, host: str, port: int) -> Any:
            return await super().listen(lambda: Accepted(context, factory(), lambda *_: None), host, port)

    server = RemotingServer(replace(runtime, network=Network()), answer)
    try:
        yield await server.start("127.0.0.1", 0)
    finally:
        await server.stop()


async def asked(address: str, tls: Tls | None, body: bytes = b"x", **identity: Any) -> Command:
    client = RemotingClient(system_runtime(), identity=Identity(tls=tls, **identity))
    try:
        return await client.request(address, Command(10, {"a": "1"}, body), 20_000)
    finally:
        await client.close()


def run(work: Callable[[], Any]) -> Any:
    return asyncio.run(work())


def test_requests_and_long_bodies_go_both_ways(authority: Authority) -> None:
    async def work() -> None:
        async with echo(server_context(authority.issue("server"))) as port:
            for host in ("127.0.0.1", "localhost"):
                answer = await asked(f"{host}:{port}", Tls(ca=authority.ca), BIG)
                assert answer.body == BIG
            keys = Credentials("app", "secret")
            answer = await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca), credentials=keys)
            assert answer.ext["AccessKey"] == "app"

    run(work)


@pytest.mark.behaviour("TL-02")
def test_the_host_is_named_and_no_protocol_is(authority: Authority) -> None:
    """SNI has the host's name; ALPN is absent, as with RocketMQ's clients."""
    seen: list[Any] = []

    async def work() -> None:
        context = server_context(authority.issue("server"))
        context.sni_callback = lambda session, name, _: seen.append((name, session))
        context.set_alpn_protocols(["h2"])
        async with echo(context) as port:
            await asked(f"localhost:{port}", Tls(ca=authority.ca))
            await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca, check_host=False))
        assert [name for name, _ in seen] == ["localhost", None]
        assert {session.selected_alpn_protocol() for _, session in seen} == {None}

    run(work)


@pytest.mark.behaviour("TL-03")
def test_unknown_authority(authority: Authority, stranger: Authority) -> None:
    async def work() -> None:
        async with echo(server_context(stranger.issue("server"))) as port:
            for tls in (Tls(ca=authority.ca), Tls()):
                with pytest.raises(
                    TlsError, match=rf":{port} is of an authority that this client does not trust: "
                ):
                    await asked(f"127.0.0.1:{port}", tls)

    run(work)


@pytest.mark.behaviour("TL-03")
def test_expired_and_not_yet_valid(authority: Authority) -> None:
    async def work() -> None:
        old = authority.issue("old", since=-9 * DAY, until=-2 * DAY)
        async with echo(server_context(old)) as port:
            with pytest.raises(TlsError, match=rf"the certificate of 127.0.0.1:{port}, .* has expired"):
                await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca, check_host=False))
        young = authority.issue("young", since=2 * DAY, until=9 * DAY)
        async with echo(server_context(young)) as port:
            with pytest.raises(TlsError, match="not valid yet: is the clock of this machine right"):
                await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca))

    run(work)


@pytest.mark.behaviour("TL-03")
def test_another_host(authority: Authority) -> None:
    async def work() -> None:
        made = authority.issue("elsewhere", ["mq.example", "10.0.0.5"])
        async with echo(server_context(made)) as port:
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(TlsError, match=rf"{host}:{port} is for another host: .*check_host=False"):
                    await asked(f"{host}:{port}", Tls(ca=authority.ca))
                await asked(f"{host}:{port}", Tls(ca=authority.ca, check_host=False))

    run(work)


@pytest.mark.behaviour("TL-04")
def test_mutual_tls(authority: Authority, stranger: Authority) -> None:
    async def work() -> None:
        context = server_context(authority.issue("server"), trusts=authority.ca)
        mine, other = authority.issue("app"), stranger.issue("app")
        both = Path(mine.cert).with_name("both.pem")
        both.write_text(Path(mine.cert).read_text() + Path(mine.key).read_text())
        async with alerting(context) as port:
            address = f"127.0.0.1:{port}"
            await asked(address, Tls(ca=authority.ca, cert=mine.cert, key=mine.key))
            await asked(address, Tls(ca=authority.ca, cert=str(both)))
            with pytest.raises(TransportError, match=r"asks for a certificate of the client: give Tls\(cert"):
                await asked(address, Tls(ca=authority.ca))
            with pytest.raises(TransportError, match=r"does not trust the authority of this client's cert"):
                await asked(address, Tls(ca=authority.ca, cert=other.cert, key=other.key))
            old = authority.issue("old-app", since=-9 * DAY, until=-2 * DAY)
            with pytest.raises(TransportError, match=r"this client's certificate \(Tls.cert\) has expired"):
                await asked(address, Tls(ca=authority.ca, cert=old.cert, key=old.key))

    run(work)


@pytest.mark.behaviour("TL-04")
def test_a_server_that_closes_without_an_alert(authority: Authority) -> None:
    async def work() -> None:
        context = server_context(authority.issue("server"), trusts=authority.ca)
        async with echo(context) as port:
            with pytest.raises(
                TransportError, match=r"it may ask for a certificate of the client: give Tls\(cert"
            ):
                await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca))

    run(work)


@pytest.mark.behaviour("TL-05")
def test_tls_at_a_port_without(authority: Authority) -> None:
    async def work() -> None:
        server = RemotingServer(system_runtime(), lambda connection, command: command.reply())
        port = await server.start("127.0.0.1", 0)
        try:
            with pytest.raises(TlsError, match=rf"127.0.0.1:{port} closed the .* does not speak TLS"):
                await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca))
        finally:
            await server.stop()

        async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(hello, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(TlsError, match=rf"127.0.0.1:{port} does not speak TLS: leave out tls"):
            await asked(f"127.0.0.1:{port}", Tls(ca=authority.ca))
        other.close()

    run(work)


@pytest.mark.behaviour("TL-05")
def test_a_plain_client_at_a_tls_port(authority: Authority) -> None:
    async def work() -> None:
        async with echo(server_context(authority.issue("server"))) as port:
            with pytest.raises(ConnectionLostError, match="it may ask for TLS"):
                await asked(f"127.0.0.1:{port}", None)

        async def alarmed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"\x15\x03\x03\x00\x02\x02\x46")  # fatal, protocol version
            await writer.drain()
            writer.close()

        alarming = await asyncio.start_server(alarmed, "127.0.0.1", 0)
        port = alarming.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLostError, match=r"asks for TLS: give tls=Tls\(ca=\.\.\.\)"):
            await asked(f"127.0.0.1:{port}", None)
        alarming.close()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.close()

        closing = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = closing.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLostError, match="it may ask for TLS"):
            await asked(f"127.0.0.1:{port}", None)
        closing.close()

    run(work)


@pytest.mark.behaviour("TL-03")
def test_producers_and_admin_say_it_too(authority: Authority, stranger: Authority) -> None:
    async def work() -> None:
        async with echo(server_context(stranger.issue("server"))) as port:
            tls = Tls(ca=authority.ca)
            async with Admin(f"127.0.0.1:{port}", tls=tls) as admin:
                with pytest.raises(NameServerError, match="an authority that this client does not trust"):
                    await admin.brokers.list()
            async with Producer("g", name_servers=f"127.0.0.1:{port}", tls=tls) as producer:
                with pytest.raises(SendError, match="an authority that this client does not trust"):
                    await producer.send(Message("t", b"x"))

    run(work)


@pytest.mark.behaviour("TL-06")
def test_renewed_files_count_for_the_next_connection(tmp_path: Path) -> None:
    async def work() -> None:
        one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
        ca = tmp_path / "ca.pem"
        ca.write_bytes(Path(one.ca).read_bytes())
        tls = Tls(ca=str(ca))
        async with echo(server_context(two.issue("server"))) as port:
            with pytest.raises(TlsError):
                await asked(f"127.0.0.1:{port}", tls)
            ca.write_bytes(Path(two.ca).read_bytes())
            await asked(f"127.0.0.1:{port}", tls)
            ca.write_text("")
            with pytest.raises(TlsError, match=r"no TLS with .*ca.pem holds no certificate in PEM form"):
                await asked(f"127.0.0.1:{port}", tls)

    run(work)


@pytest.mark.behaviour("TL-06")
def test_files_that_have_not_changed_are_read_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, other = authority.issue("app"), authority.issue("other")
    tls = Tls(ca=authority.ca, cert=mine.cert, key=mine.key)
    assert client_context(tls) is client_context(Tls(ca=authority.ca, cert=mine.cert, key=mine.key))
    assert client_context(Tls()) is client_context(Tls())
    unchecked = client_context(replace(tls, check_host=False))
    assert (unchecked.check_hostname, client_context(tls).check_hostname) == (False, True)
    before = client_context(tls)
    for new, old in ((other.cert, mine.cert), (other.key, mine.key)):
        os.replace(new, old)
    assert client_context(tls) is not before
    os.unlink(mine.key)
    with pytest.raises(ValidationError, match=r"Tls.key: .* cannot be read"):
        client_context(tls)


@pytest.mark.behaviour("TL-07")
def test_a_server_that_stops_in_the_handshake_is_left_in_time(authority: Authority) -> None:
    async def work() -> None:
        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(-1)
            writer.close()

        server = await asyncio.start_server(never, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = RemotingClient(
            system_runtime(), identity=Identity(tls=Tls(ca=authority.ca)), connect_timeout_ms=100
        )
        with pytest.raises(TransportError, match=r"took longer than 0\.1 s"):
            await client.request(f"127.0.0.1:{port}", Command(10), 20_000)
        await client.close()
        server.close()

    run(work)


@pytest.mark.behaviour("TL-08")
def test_files_that_cannot_be_right(authority: Authority, stranger: Authority, tmp_path: Path) -> None:
    mine, locked = authority.issue("mine"), authority.issue("locked", password=b"pssst")
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    missing = str(tmp_path / "missing.pem")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ca": missing}, f"Tls.ca: {missing} cannot be read: No such file"),
        ({"ca": str(tmp_path)}, "Is a directory"),
        ({"ca": str(empty)}, "holds no certificate in PEM form"),
        ({"ca": ""}, "Tls.ca must be the name of a file, got ''"),
        ({"ca": 7}, "Tls.ca must be the name of a file, got 7"),
        ({"cert": missing}, f"Tls.cert: {missing} cannot be read"),
        ({"cert": str(empty), "key": mine.key}, "does not hold a certificate and its key in PEM form"),
        ({"cert": mine.cert}, "does not hold a certificate and its key in PEM form"),
        ({"cert": mine.cert, "key": missing}, f"Tls.key: {missing} cannot be read"),
        ({"cert": mine.cert, "key": locked.key}, "the key is encrypted, which OrbitMQ does not read"),
        ({"cert": mine.cert, "key": stranger.issue("x").key}, "and its key do not belong together"),
        ({"key": mine.key}, "Tls.key is given without a certificate"),
        ({"check_host": "no"}, "Tls.check_host must be True or False, got 'no'"),
    ]
    for options, text in cases:
        with pytest.raises(ValidationError) as caught:
            Tls(**options)
        assert text in str(caught.value), (options, str(caught.value))
    assert Tls(ca=Path(authority.ca)) == Tls(ca=authority.ca)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="tls must be Tls"):
        Producer("g", tls=True)  # type: ignore[arg-type]
