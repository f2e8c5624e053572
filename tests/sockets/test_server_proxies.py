"""Servers behind a proxy: its PROXY protocol header gives the client's address, before TLS and without."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any

import pytest
from tests.sockets.transport import Serving, echo, on_asyncio, on_uvloop
from tests.unit.test_wire_proxy_header import BAD, of_tcp

from orbitmq.runtime import Runtime
from orbitmq.runtime.server_tls import ServerTls, TlsMode
from orbitmq.transport import proxies
from orbitmq.transport.proxies import networks_of
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import split
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder

LIMIT_S = 60.0
PROXY = "127.0.0.1"
CLIENT = ("192.0.2.7", 56324)
BIG = bytes(2 << 20)
V1_HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911\r\n"
HEADERS = [V1_HEADER, of_tcp(*CLIENT)]
both_loops = pytest.mark.parametrize("on", [on_asyncio, on_uvloop])


def behind(runtime: Runtime, mode: TlsMode = TlsMode.DISABLED, **options: Any) -> Serving:
    """A server that trusts 127.0.0.1 to be a proxy."""
    tls = ServerTls(runtime, mode, made_for=("localhost",))
    tls.check()
    return Serving(runtime, tls=tls, proxies=networks_of(PROXY), **options)


async def connected(
    serving: Serving, *pieces: bytes, source: str = PROXY
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = split(serving.address)
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.02)
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Command:
    decoder = FrameDecoder()
    while True:
        data = await asyncio.wait_for(reader.read(1 << 16), LIMIT_S)
        assert data, "closed"
        decoder.feed(data)
        for command in decoder.commands():
            return command


async def is_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""


@pytest.mark.behaviour("LM-04")
@both_loops
@pytest.mark.parametrize("header", HEADERS, ids=["v1", "v2"])
@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE], ids=lambda mode: mode.value)
def test_the_client_of_a_header_is_the_client(on: Any, header: bytes, mode: TlsMode) -> None:
    async def test(runtime: Runtime) -> None:
        async with behind(runtime, mode) as serving:
            frame = echo(7, BIG)
            for pieces in (
                (header + frame,),
                (header, frame),
                (header[:9], header[9:] + frame[:3], frame[3:]),
            ):
                reader, writer = await connected(serving, *pieces)
                assert (await answer(reader)).body == BIG
                assert serving.opened[-1].remote == CLIENT
                writer.close()
            assert len(serving.opened) == 3

    on(test)


@pytest.mark.behaviour("LM-04")
@both_loops
@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING], ids=lambda mode: mode.value)
def test_a_header_comes_before_tls(on: Any, mode: TlsMode) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    async def test(runtime: Runtime) -> None:
        async with behind(runtime, mode) as serving:
            for header in HEADERS:
                reader, writer = await connected(serving, header)
                # The server says nothing before the client does.
                await writer.start_tls(context)
                writer.write(echo(7, BIG))
                assert (await answer(reader)).body == BIG
                assert serving.opened[-1].remote == CLIENT
                assert serving.opened[-1].secured
                writer.close()
            if mode is TlsMode.ENFORCING:
                reader, writer = await connected(serving, V1_HEADER + echo(7))
                await is_closed(reader)
                writer.close()
                assert len(serving.opened) == 2

    on(test)


@pytest.mark.behaviour("LM-04")
@both_loops
def test_others_send_none_and_are_served(on: Any) -> None:
    async def test(runtime: Runtime) -> None:
        async with behind(runtime) as serving:
            reader, writer = await connected(serving, echo(7, b"x"), source="127.0.0.2")
            assert (await answer(reader)).body == b"x"
            assert serving.opened[-1].remote[0] == "127.0.0.2"
            writer.close()
            # A proxy that looks whether the server lives is itself the client.
            reader, writer = await connected(serving, b"PROXY UNKNOWN\r\n" + echo(7, b"x"))
            assert (await answer(reader)).body == b"x"
            assert serving.opened[-1].remote[0] == PROXY
            writer.close()

    on(test)


@pytest.mark.behaviour("LM-05")
@both_loops
def test_wrong_headers_are_refused(on: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def test(runtime: Runtime) -> None:
        async with behind(runtime) as serving:
            for bad in (*BAD, echo(7)):
                reader, writer = await connected(serving, bad)
                await is_closed(reader)
                writer.close()
            assert serving.opened == []
            for header in HEADERS:
                # From a stranger, and twice.
                for source, pieces in (("127.0.0.2", (header,)), (PROXY, (header, header))):
                    reader, writer = await connected(serving, *pieces, echo(7), source=source)
                    await is_closed(reader)
                    writer.close()
            assert serving.asked == 0

    on(test)
    assert "a proxy's header cannot be read" in caplog.text
    assert "it sends a PROXY protocol header: that is not enabled here" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.behaviour("LM-05")
def test_half_a_header_ends(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(proxies, "HEADER_SECONDS", 0.3)

    async def test(runtime: Runtime) -> None:
        async with behind(runtime) as serving:
            for half in (b"", b"PROX", V1_HEADER[:-1], of_tcp(*CLIENT)[:20]):
                reader, writer = await connected(serving, half)
                await is_closed(reader)
                writer.close()
            assert serving.opened == []

    on_asyncio(test)
    assert "its PROXY protocol header did not come within 0.3 s" in caplog.text


@pytest.mark.behaviour("LM-02")
def test_clients_behind_a_proxy_are_counted_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async def test(runtime: Runtime) -> None:
        seats = Seats(20, 2)
        async with behind(runtime, seats=seats) as serving:
            writers = []
            for number in range(6):
                header = f"PROXY TCP4 192.0.2.{number // 2} 10.0.0.1 {1000 + number} 10911\r\n".encode()
                reader, writer = await connected(serving, header + echo(7))
                assert (await answer(reader)).code == 0
                writers.append(writer)
            reader, writer = await connected(serving, b"PROXY TCP4 192.0.2.1 10.0.0.1 9 10911\r\n" + echo(7))
            await is_closed(reader)
            assert seats.taken == 6
            for one in (*writers, writer):
                one.close()

    on_asyncio(test)
    assert "192.0.2.1 has 2 connections already" in caplog.text
