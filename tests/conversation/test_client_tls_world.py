"""Every kind of client over TLS: a front that adds TLS stands before each server of a world in memory."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, server_context
from tests.conversation.scripted import running as consuming

from orbitmq import Credentials, Message, ReceivedMessage, SendError, Tls
from orbitmq.admin import Admin
from orbitmq.runtime.tls import TlsLayer
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World

CLIENTS = "127.0.0.1"
BIG = os.urandom(500_000)


class _Front:
    """Whether the servers use TLS with clients, and their certificate."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.is_on = False


class _Accepted(asyncio.Protocol):
    def __init__(self, front: _Front, inner: Any) -> None:
        self._front, self._inner = front, inner

    def connection_made(self, transport: Any) -> None:
        if self._front.is_on and transport.get_extra_info("peername")[0] == CLIENTS:
            TlsLayer(self._front.context, self._inner, lambda kind, text: None).begin(transport, b"")
        else:
            transport.set_protocol(self._inner)
            self._inner.connection_made(transport)


class _Network:
    def __init__(self, front: _Front, network: Any) -> None:
        self._front, self._network = front, network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    async def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        return await self._network.listen(lambda: _Accepted(self._front, factory()), host, port)


@pytest.mark.behaviour("TL-01")
async def test_every_kind_of_client_works_over_tls(runtime: SimulatedRuntime, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.issue("servers", ["10.0.0.1", "10.0.0.2"])
    front = _Front(server_context(made, trusts=authority.ca))
    mine = authority.issue("app")
    tls = Tls(ca=authority.ca, cert=mine.cert, key=mine.key)
    world = World(runtime)
    for machine in world.machines.values():
        network: Any = _Network(front, machine.runtime.network)
        machine.runtime = replace(machine.runtime, network=network)
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    who: dict[str, Any] = {"tls": tls, "credentials": Credentials("app", "secret")}
    async with world:
        front.is_on = True
        async with Admin(world.name_server, runtime=runtime, **who) as admin:
            await admin.topics.create("orders", queues=2)
            certificates = (await admin.brokers.certificates()).whole()
            assert [one.name for one in certificates] == ["name server", "broker-a"]
            assert {one.ends for one in certificates} == {made.made.not_valid_after_utc}
            assert not any(one.problem for one in certificates)
        async with world.producer(trace=True, **who) as producer:
            for body in (b"small", BIG):
                await producer.send(Message("orders", body))
            await producer.send_oneway(Message("orders", b"one-way"))
        wanted = {b"small", BIG, b"one-way"}
        async with consuming(world.consumer("push", **who), handle, "orders"):
            await world.until(lambda: set(seen) == wanted)
        async with world.pull_consumer("pull", **who) as pulling:
            pulling.subscribe("orders")
            polled: set[bytes] = set()
            while polled != wanted:
                polled |= {message.body for message in await pulling.poll(timeout=10)}
        async with world.simple_consumer("pop", **who) as simple:
            simple.subscribe("orders")
            popped: set[bytes] = set()
            while popped != wanted:
                for message in await simple.receive(wait=5):
                    await simple.ack(message)
                    popped.add(message.body)
        async with world.reader("orders", **who) as reader:
            assert {message.body async for message in reader} == wanted
        async with world.producer() as plain:
            with pytest.raises(SendError, match=r"it may ask for TLS|it asks for TLS"):
                await plain.send(Message("orders", b"x"))
        front.is_on = False
