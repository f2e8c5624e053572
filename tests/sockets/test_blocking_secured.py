"""Spark's blocking connections with keys and TLS, on real sockets."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.certificates import DAY, Authority, server_context
from tests.signature_gate import signature

from orbitmq import Credentials, NotPermittedError, Tls
from orbitmq.errors import ConnectionLostError, TlsError
from orbitmq.spark.cluster import connections
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.identity import Identity
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame

KEYS = Identity(Credentials("app", "app-secret"))
BIG = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def checking(
    context: ssl.SSLContext | None = None, *, told: Mapping[int, bytes] | None = None
) -> Iterator[tuple[str, list[int]]]:
    """A server that answers signed requests with their body, and others with code 16; the connections.

    Args:
        told: by request code, the bodies of answers to everybody.
    """
    opened: list[int] = []
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            decoder.feed(data)
            if data.startswith(b"\x16\x03"):
                break  # TLS, which this one does not speak
            for command in decoder.commands():
                if told and command.code in told:
                    writer.write(encode_frame(command.reply(0, None, {}, told[command.code])))
                    continue
                right = command.ext.get("Signature") == signature("app-secret", command.ext, command.body)
                answer = (
                    command.reply(0, None, {}, command.body)
                    if right
                    else command.reply(16, "check signature failed.")
                )
                writer.write(encode_frame(answer))
            await writer.drain()
        writer.close()

    async def start() -> Any:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

    server = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", opened
    finally:
        connections.close_connections()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                loop.run_until_complete(task)
        loop.close()


@pytest.mark.behaviour("AU-12")
def test_requests_posts_and_bodies_beside_the_command_are_signed() -> None:
    with checking() as (address, _), BlockingConnection(address, identity=KEYS) as connection:
        answers = connection.request_many([Command(10, {"b": "1"}, b"x"), Command(10, {"a": "2"})], 20_000)
        assert [answer.code for answer in answers] == [0, 0]
        number = connection.submit(Command(10, {"z": "1"}), memoryview(BIG))
        arrived: dict[int, Command] = {}
        while not arrived:
            arrived = connection.poll(1.0)
        assert arrived[number].body == BIG


@pytest.mark.behaviour("AU-12")
def test_kept_connections_are_of_one_identity() -> None:
    other = Identity(Credentials("app", "wrong"))
    with checking() as (address, opened):
        for _ in range(3):
            assert connections.ask(address, [Command(10)], 20_000, identity=KEYS)[0].code == 0
        assert len(opened) == 1
        for identity in (other, Identity()):
            with pytest.raises(NotPermittedError, match=r"refuses|does not permit"):
                connections.ask(address, [Command(10)], 20_000, identity=identity)
        assert len(opened) == 3
        assert connections.ask(address, [Command(10)], 20_000, identity=KEYS)[0].code == 0
        assert len(opened) == 3


@pytest.mark.behaviour("TL-01")
def test_tls_with_long_bodies_both_ways(authority: Authority) -> None:
    tls = Identity(KEYS.credentials, Tls(ca=authority.ca))
    with (
        checking(server_context(authority.issue("server"))) as (address, _),
        BlockingConnection(address, identity=tls) as connection,
    ):
        assert connection.request(Command(10, {}, BIG), 20_000).body == BIG
        answers = connection.request_many([Command(10, {}, b"%d" % i) for i in range(500)], 20_000)
        assert [answer.body for answer in answers] == [b"%d" % i for i in range(500)]
        assert connection.usable


@pytest.mark.behaviour("TL-03")
def test_each_fault_of_a_certificate_is_a_sentence(authority: Authority) -> None:
    old = authority.issue("old", since=-9 * DAY, until=-2 * DAY)
    elsewhere = authority.issue("elsewhere", ["10.0.0.5"])
    cases = [
        (old, Tls(ca=authority.ca), "has expired"),
        (elsewhere, Tls(ca=authority.ca), "for another host"),
    ]
    cases.append((elsewhere, Tls(), "an authority that this client does not trust"))
    for made, tls, words in cases:
        with checking(server_context(made)) as (address, _), pytest.raises(TlsError, match=words):
            BlockingConnection(address, identity=Identity(tls=tls))


@pytest.mark.behaviour("TL-05")
def test_tls_at_a_plain_port_and_the_reverse(authority: Authority) -> None:
    with (
        checking(server_context(authority.issue("server"))) as (address, _),
        BlockingConnection(address) as connection,
        pytest.raises(ConnectionLostError, match="it may ask for TLS"),
    ):
        connection.request(Command(10), 20_000)
    with checking() as (address, _), pytest.raises(TlsError, match="does not speak TLS"):
        BlockingConnection(address, 2000, identity=Identity(tls=Tls(ca=authority.ca)))
