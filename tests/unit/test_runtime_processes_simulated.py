"""Processes of simulated machines: they freeze, continue, and end at any await."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.virtual_loop import SimulatedProcess, current_process
from orbitmq.testing.machines import PowerMachine


@pytest.fixture
def machine(orbitmq_runtime: SimulatedRuntime) -> PowerMachine:
    return PowerMachine(orbitmq_runtime.machine("10.0.0.1"))


async def test_a_frozen_process_stands_still_and_goes_on(machine: PowerMachine) -> None:
    loop = asyncio.get_running_loop()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    ticking = machine.begin(tick())
    await asyncio.sleep(2.5)
    machine.freeze()
    await asyncio.sleep(10)
    machine.thaw()
    await asyncio.sleep(1.6)
    assert ticks == [1, 2, 12.5, 13.5]
    ticking.cancel()


async def test_a_killed_process_runs_no_line_more(machine: PowerMachine) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("finally")

    process = machine.process
    working = machine.begin(work())
    await asyncio.sleep(1)
    machine.kill()
    assert process.killed
    await asyncio.sleep(10)
    assert not working.done()
    assert seen == []
    assert machine.process is not process
    assert machine.process.running
    machine.bury()
    working.cancel()
    await asyncio.wait([working])
    assert seen == ["finally"]


async def test_what_a_process_starts_belongs_to_it(machine: PowerMachine) -> None:
    inside: list[SimulatedProcess | None] = []

    async def child() -> None:
        inside.append(current_process())

    async def parent() -> None:
        await asyncio.gather(child(), child())

    await machine.begin(parent())
    assert inside == [machine.process] * 2
    assert current_process() is None


class Echo(asyncio.Protocol):
    """Sends back received data, in the process that listens."""

    def __init__(self, seen: list[SimulatedProcess | None]) -> None:
        self._seen = seen
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen.append(current_process())
        assert self._transport is not None
        self._transport.write(data)


class Keeps(asyncio.Protocol):
    """Keeps received data."""

    def __init__(self) -> None:
        self.got = b""

    def data_received(self, data: bytes) -> None:
        self.got += data


async def test_a_frozen_server_accepts_and_answers_when_it_goes_on(
    machine: PowerMachine, orbitmq_runtime: SimulatedRuntime
) -> None:
    seen: list[SimulatedProcess | None] = []
    network = machine.runtime.network
    await machine.begin(network.listen(lambda: Echo(seen), "10.0.0.1", 80))
    machine.freeze()
    transport, client = await orbitmq_runtime.network.connect(Keeps, "10.0.0.1", 80)
    transport.write(b"hello")
    await asyncio.sleep(5)
    assert isinstance(client, Keeps)
    assert client.got == b""
    machine.thaw()
    await asyncio.sleep(0.1)
    assert client.got == b"hello"
    assert set(seen) == {machine.process}


async def test_a_process_that_ends_leaves_its_bytes(machine: PowerMachine) -> None:
    segment = machine.runtime.files.open_segment("/a", 10, create=True)
    machine.runtime.files.lock("/lock")
    segment.pwrite(b"not synced", 0)
    assert machine.disk.in_use == ["/a", "/lock"]
    machine.kill()
    assert machine.disk.in_use == []
    assert machine.disk.read_bytes("/a") == b"not synced"
    machine.runtime.files.lock("/lock")


async def test_a_clock_may_be_wrong_for_a_while(machine: PowerMachine) -> None:
    before = machine.runtime.clock.now_ms()
    machine.skew_ms = -2500
    assert machine.runtime.clock.now_ms() == before - 2500
    machine.skew_ms = 0
    await machine.runtime.clock.sleep(1)
    assert machine.runtime.clock.now_ms() == before + 1000
