"""Conversations over the network in memory, in virtual time, with the faults that sockets rarely show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from tests.seeds import seeds

from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TransportError
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.command import Command

ECHO, HOLD = 10, 11


def handle(connection: ServerConnection, command: Command) -> Command | Awaitable[Command]:
    if command.code == HOLD:
        return hold(command)
    return command.reply(body=command.body)


async def hold(command: Command) -> Command:
    await asyncio.sleep(15)
    return command.reply(remark="held for 15 s")


async def served(runtime: SimulatedRuntime, host: str) -> tuple[RemotingServer, str]:
    server = RemotingServer(runtime, handle)
    return server, f"{host}:{await server.start('0.0.0.0', 10911)}"


async def test_a_long_poll_of_fifteen_seconds(runtime: SimulatedRuntime) -> None:
    server, address = await served(runtime.machine("b"), "b")
    client = RemotingClient(runtime)
    assert (await client.request(address, Command(HOLD), 30_000)).remark == "held for 15 s"
    assert runtime.clock.monotonic() == pytest.approx(15, abs=0.1)
    with pytest.raises(RequestTimeoutError):
        await client.request(address, Command(HOLD), 10_000)
    assert runtime.clock.monotonic() == pytest.approx(25, abs=0.1)
    await client.close()
    await server.stop()


async def test_an_idle_connection_lives_two_minutes(runtime: SimulatedRuntime) -> None:
    machine = runtime.machine("b")
    lost_at: list[float] = []
    server = RemotingServer(machine, handle, on_close=lambda _: lost_at.append(runtime.clock.monotonic()))
    address = f"b:{await server.start('b', 0)}"
    client = RemotingClient(runtime)
    await client.request(address, Command(ECHO), 1000)
    await asyncio.sleep(600)
    assert len(lost_at) == 1
    assert 120 <= lost_at[0] <= 150
    assert (await client.request(address, Command(ECHO), 1000)).code == 0
    await client.close()
    await server.stop()


async def test_a_partition_costs_a_timeout_and_its_end_nothing(runtime: SimulatedRuntime) -> None:
    server, address = await served(runtime.machine("b"), "b")
    client = RemotingClient(runtime)
    await client.request(address, Command(ECHO), 1000)
    runtime.network.partition([runtime.network.host], ["b"])
    with pytest.raises(RequestTimeoutError):
        await client.request(address, Command(ECHO), 3000)
    stranger = RemotingClient(runtime)
    before = runtime.clock.monotonic()
    with pytest.raises(ConnectError, match="longer than 3 s"):
        await stranger.request(address, Command(ECHO), 10_000)
    assert runtime.clock.monotonic() - before == pytest.approx(3)
    runtime.network.heal()
    assert (await client.request(address, Command(ECHO, body=b"x"), 1000)).body == b"x"
    await asyncio.gather(client.close(), stranger.close(), server.stop())


async def test_the_time_of_a_request_covers_its_connect(runtime: SimulatedRuntime) -> None:
    runtime.network.partition([runtime.network.host], ["b"])
    client = RemotingClient(runtime)
    with pytest.raises(ConnectError, match="too long"):
        await client.request("b:1", Command(ECHO), 500)
    assert runtime.clock.monotonic() == pytest.approx(0.5)
    await client.close()


async def test_closing_while_connecting(runtime: SimulatedRuntime) -> None:
    runtime.network.partition([runtime.network.host], ["b"])
    client = RemotingClient(runtime)
    waiting = asyncio.ensure_future(client.request("b:1", Command(ECHO), 2000))
    await asyncio.sleep(1)
    await client.close()
    with pytest.raises(ConnectionLostError):
        await waiting


async def test_a_closing_server_does_not_wait_for_a_peer_that_does_not_read(
    runtime: SimulatedRuntime,
) -> None:
    server, address = await served(runtime.machine("b"), "b")
    client = RemotingClient(runtime)
    big = asyncio.ensure_future(client.request(address, Command(ECHO, body=bytes(5_000_000)), 5000))
    await asyncio.sleep(0)
    await asyncio.sleep(0.5)
    assert len((await big).body) == 5_000_000
    (connection,) = server.connections
    runtime.network.partition([runtime.network.host], ["b"])
    connection.write(bytes(5_000_000))
    before = runtime.clock.monotonic()
    await server.stop()
    assert runtime.clock.monotonic() - before == pytest.approx(1)
    await client.close()


async def storm(trace: list[str]) -> None:
    """Callers and cut connections: every request ends, with its own answer or with an error."""
    runtime = simulated_runtime()
    network = runtime.network
    network.set_delay(0.0001, 0.02)
    server, address = await served(runtime.machine("b"), "b")
    client = RemotingClient(runtime)

    async def caller(name: int) -> None:
        for number in range(30):
            body = f"{name}/{number}/".encode() * runtime.random.choice((1, 10, 5000))
            try:
                answer = await client.request(address, Command(ECHO, body=body), 200)
                assert answer.body == body
                trace.append(f"{name} {number} ok {runtime.clock.monotonic():.6f}")
            except TransportError as error:
                trace.append(f"{name} {number} {type(error).__name__} {runtime.clock.monotonic():.6f}")

    async def chaos() -> None:
        for _ in range(12):
            await asyncio.sleep(runtime.random.uniform(0.05, 0.3))
            if runtime.random.random() < 0.5:
                network.cut(network.host, "b")
            else:
                network.partition([network.host], ["b"])
                await asyncio.sleep(runtime.random.uniform(0.01, 0.4))
                network.heal()

    await asyncio.gather(chaos(), *(caller(name) for name in range(10)))
    await client.close()
    await server.stop()


@pytest.mark.parametrize("seed", seeds(25))
def test_in_a_storm_every_request_ends_and_a_seed_replays_it(seed: int) -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run(storm(trace), seed=seed)
    assert traces[0] == traces[1]
    assert len(traces[0]) == 300
    assert any(" ok " in line for line in traces[0])
    assert any("Error" in line for line in traces[0])
