"""The cost of thousands of connections without a whole frame: each byte, their end, their memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.conversation.turns import Turns

from orbitmq.testing import SimulatedRuntime
from orbitmq.transport import server as transport_server
from orbitmq.transport.memory_return import MemoryReturn
from orbitmq.transport.seats import MANY, Seats
from orbitmq.transport.server import CHECKED_AT_ONCE, RemotingServer, ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame


class Stranger(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


async def strangers(runtime: SimulatedRuntime, port: int, count: int) -> list[Stranger]:
    made = [await runtime.network.connect(Stranger, "127.0.0.1", port) for _ in range(count)]
    return [cast("Stranger", protocol) for _, protocol in made]


def answer(_connection: ServerConnection, command: Command) -> Command:
    return command.reply()


@pytest.mark.behaviour("LM-11")
async def test_first_frames_that_do_not_end_are_closed_in_turns(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch, ServerConnection, "end_half_frame")
    server = RemotingServer(runtime, answer)
    port = await server.start("127.0.0.1", 0)
    count = 5 * CHECKED_AT_ONCE + 1
    found = await strangers(runtime, port, count)
    frame = encode_frame(Command(10))
    for stranger in found:
        stranger.transport.write(frame[:9])
    # One of them leaves while the others are checked, and one is served in the end.
    found[0].transport.write(frame[9:])
    found[1].transport.abort()
    await asyncio.sleep(transport_server.FIRST_FRAME_SECONDS + 2)
    assert [stranger.ended for stranger in found] == [False, *[True] * (count - 1)]
    assert (turns.total, turns.longest) == (count - 2, CHECKED_AT_ONCE)
    await server.stop()


@pytest.mark.behaviour("LM-11")
async def test_memory_is_given_back_once_when_many_have_left(runtime: SimulatedRuntime) -> None:
    given: list[float] = []

    class Host:
        def __getattr__(self, name: str) -> Any:
            return getattr(runtime.host, name)

        def give_back_memory(self) -> None:
            given.append(runtime.clock.monotonic())

    machine = replace(runtime, host=cast("Any", Host()))
    server = RemotingServer(runtime, answer, seats=Seats(on_many_gone=MemoryReturn(machine).plan))
    port = await server.start("127.0.0.1", 0)
    for stay in (3, 0):
        found = await strangers(runtime, port, 2 * MANY + stay)
        for stranger in found[stay:]:
            stranger.transport.abort()
        await asyncio.sleep(20)
        assert len(given) == (1 if stay else 2)
    # Connections that come and go one after the other do not count as many.
    for _ in range(MANY + 1):
        (stranger,) = await strangers(runtime, port, 1)
        stranger.transport.abort()
    await asyncio.sleep(20)
    assert len(given) == 2
    await server.stop()
