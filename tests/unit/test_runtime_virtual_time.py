"""The virtual-time loop, the simulated threads and the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import Any

import pytest

from orbitmq.message.ids import month_borders_ms
from orbitmq.runtime import system_runtime
from orbitmq.runtime.system import SystemClock
from orbitmq.testing.machine.simulated import SimulatedRuntime, SimulationStuckError, run, simulated_runtime
from orbitmq.testing.machine.virtual_loop import EPOCH_MS, VirtualClock


class Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.pieces = 0
        self.events: list[str] = []
        self.error: Exception | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces += 1

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.events.append("lost")


async def pair(runtime: SimulatedRuntime, host: str = "b") -> tuple[Collector, Collector]:
    accepted: list[Collector] = []

    def accept() -> Collector:
        accepted.append(Collector())
        return accepted[-1]

    server = runtime.machine(host)
    listener = await server.network.listen(accept, "0.0.0.0", 0)
    _, near = await runtime.network.connect(Collector, host, listener.port)
    await listener.close()
    assert isinstance(near, Collector)
    return near, accepted[0]


# -- time ----------------------------------------------------------------------------------------------


def test_an_hour_passes_at_once() -> None:
    async def main() -> tuple[float, int]:
        runtime = simulated_runtime()
        await asyncio.gather(*(runtime.clock.sleep(seconds) for seconds in (3600, 10, 60.5)))
        return runtime.clock.monotonic(), runtime.clock.now_ms()

    assert run(main()) == (3600.0, EPOCH_MS + 3_600_000)


def test_timers_run_in_order_and_timeouts_work() -> None:
    async def main() -> list[float]:
        clock = simulated_runtime().clock
        seen: list[float] = []

        async def note(seconds: float) -> None:
            await clock.sleep(seconds)
            seen.append(clock.monotonic())

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.gather(note(3), note(1), note(2), note(100)), 50)
        return [*seen, clock.monotonic()]

    assert run(main()) == [1, 2, 3, 50]


def test_what_is_due_at_one_moment_runs_in_the_order_in_which_it_was_set() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        ran: list[int] = []
        due = loop.time() + 1
        timers = [loop.call_at(due, ran.append, number) for number in range(300)]
        for timer in timers[::3] + timers[1::3]:
            timer.cancel()
        await asyncio.sleep(2)
        return ran

    assert run(main()) == list(range(2, 300, 3))


def test_a_callback_that_fails_is_told_and_the_others_run() -> None:
    told: list[dict[str, Any]] = []
    ran: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_soon({}.__getitem__, "nothing")
        loop.call_soon(ran.append, "next")
        await asyncio.sleep(1)

    run(main())
    assert ran == ["next"]
    assert [type(context["exception"]) for context in told] == [KeyError]
    assert "Exception in callback" in told[0]["message"]


def test_what_was_cancelled_does_not_run() -> None:
    ran: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(number % 7, ran.append, number) for number in range(1000)]
        for timer in timers:
            if timer is not timers[500]:
                timer.cancel()
        loop.call_soon(ran.append, -1).cancel()
        await asyncio.sleep(10)
        timers[500].cancel()

    run(main())
    assert ran == [500]


def test_the_limit_of_virtual_time() -> None:
    async def main() -> None:
        await asyncio.sleep(1000)

    with pytest.raises(TimeoutError):
        run(main(), limit_s=999)


def test_a_program_that_waits_for_nothing_is_stuck() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    # When the time limit is the only timer, that limit ends the run.
    with pytest.raises(TimeoutError):
        run(main())

    async def stuck() -> None:
        loop = asyncio.get_running_loop()
        loop.stop()
        await loop.create_future()

    with pytest.raises((RuntimeError, SimulationStuckError)):
        run(stuck())


def test_a_simulated_loop_refuses_threads() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            asyncio.get_running_loop().run_in_executor(None, print)

    run(main())


def test_outside_a_loop_the_clock_moves_by_hand() -> None:
    runtime = simulated_runtime(seed=3)
    before = runtime.clock.now_ms()
    runtime.clock.advance(1.25)  # type: ignore[attr-defined]
    assert runtime.clock.now_ms() - before == 1250
    with pytest.raises(ValueError, match="back"):
        runtime.clock.advance(-1)  # type: ignore[attr-defined]


def test_the_seed_of_the_run_is_the_seed_of_its_machines() -> None:
    async def draw() -> list[float]:
        runtime = simulated_runtime()
        return [runtime.random.random(), runtime.machine("x").random.random()]

    assert run(draw(), seed=5) == run(draw(), seed=5)
    assert run(draw(), seed=5) != run(draw(), seed=6)


# -- threads -------------------------------------------------------------------------------------------


def test_work_starts_at_once_and_its_result_comes_later() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        state = ["before"]
        waiting: Awaitable[list[str]] = runtime.threads.run(list[str], state)
        state.append("after")
        assert await waiting == ["before"]
        assert runtime.clock.monotonic() > 0
        with pytest.raises(ZeroDivisionError):
            await runtime.threads.run(divmod, 1, 0)

    run(main())


def test_the_system_threads() -> None:
    async def main() -> None:
        threads = system_runtime().threads
        assert await threads.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        threads.close()

    asyncio.run(main())


# -- network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_in_pieces_of_any_size(seed: int) -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        runtime.network.set_delay(0.001, 0.010)
        near, far = await pair(runtime)
        assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
        data = bytes(range(256)) * 40
        for start in range(0, len(data), 512):
            near.transport.write(data[start : start + 512])
        near.transport.close()
        await asyncio.sleep(60)
        assert far.received == data
        assert far.pieces > 20
        assert far.events == ["made", "eof", "lost"]
        assert (near.error, far.error) == (None, None)

    run(main(), seed=seed)


def test_flow_control() -> None:
    async def main() -> None:
        near, far = await pair(simulated_runtime())
        far.transport.pause_reading()
        for _ in range(10):
            near.transport.write(bytes(100_000))
        await asyncio.sleep(1)
        assert near.events == ["made", "pause"]
        assert far.received == b""
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert near.events == ["made", "pause", "resume"]
        assert len(far.received) == 1_000_000

    run(main())


def test_an_abort_resets_the_other_side() -> None:
    async def main() -> None:
        near, far = await pair(simulated_runtime())
        near.transport.write(b"never seen")
        near.transport.abort()
        await asyncio.sleep(1)
        assert far.received == b""
        assert isinstance(far.error, ConnectionResetError)
        assert near.error is None
        assert near.transport.is_closing()

    run(main())


def test_half_close() -> None:
    async def main() -> None:
        near, far = await pair(simulated_runtime())
        near.transport.write(b"question")
        near.transport.write_eof()
        with pytest.raises(RuntimeError):
            near.transport.write(b"more")
        await asyncio.sleep(1)
        assert far.received == b"question"
        assert far.events == ["made", "eof", "lost"]
        assert near.events == ["made", "eof", "lost"]

    run(main())


def test_a_partition_holds_bytes_back_and_connects_hang() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        near, far = await pair(runtime)
        runtime.network.partition([runtime.network.host], ["b"])
        near.transport.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(runtime.network.connect(Collector, "b", 9), 3)
        with pytest.raises(TimeoutError, match="timed out"):
            await runtime.network.connect(Collector, "b", 9)
        assert runtime.clock.monotonic() == pytest.approx(130)
        assert far.received == b""
        connecting = asyncio.ensure_future(runtime.network.connect(Collector, "b", 9))
        await asyncio.sleep(1)
        runtime.network.heal()
        await asyncio.sleep(1)
        assert far.received == b"held"
        with pytest.raises(ConnectionRefusedError):
            await connecting

    run(main())


def test_cut_and_crash() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        near_b, far_b = await pair(runtime, "b")
        near_c, far_c = await pair(runtime, "c")
        assert runtime.network.cut(runtime.network.host, "b") == 1
        await asyncio.sleep(0.1)
        assert isinstance(near_b.error, ConnectionResetError)
        assert isinstance(far_b.error, ConnectionResetError)
        assert near_c.events == far_c.events == ["made"]
        machine = runtime.machine("d")
        await machine.network.listen(Collector, "d", 80)
        machine.network.crash()
        with pytest.raises(ConnectionRefusedError):
            await runtime.network.connect(Collector, "d", 80)

    run(main())


def test_addresses() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        listener = await runtime.network.listen(Collector, "127.0.0.1", 9876)
        assert listener.port == 9876
        with pytest.raises(OSError, match="in use"):
            await runtime.network.listen(Collector, "0.0.0.0", 9876)
        with pytest.raises(OSError, match="assign"):
            await runtime.network.listen(Collector, "10.9.9.9", 1)
        await runtime.network.connect(Collector, "localhost", 9876)
        await runtime.network.connect(Collector, "localhost", 9876, local_host="127.0.0.1")
        with pytest.raises(OSError, match="assign"):
            await runtime.network.connect(Collector, "localhost", 9876, local_host="10.9.9.9")
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await runtime.network.connect(Collector, "localhost", 9876)

    run(main())


def test_the_wall_clock_of_a_simulated_machine_is_the_same_everywhere() -> None:
    clock = VirtualClock()
    shown = clock.local_time(clock.now_ms())
    assert shown == datetime(2023, 11, 14, 22, 13, 20)
    assert clock.epoch_ms(shown) == clock.now_ms()
    assert month_borders_ms(clock, clock.now_ms()) == (1_698_796_800_000, 1_701_388_800_000)


def test_a_simulated_machine_has_a_name_and_a_process() -> None:
    host = simulated_runtime(1).machine("b").host
    assert (host.name, host.pid, host.home) == ("b", 1, "/home")


def test_the_real_clock_turns_wall_time_back() -> None:
    clock = SystemClock()
    now = clock.now_ms()
    assert clock.epoch_ms(clock.local_time(now)) == now
    start, end = month_borders_ms(clock, now)
    assert start <= now < end
    assert 27 <= (end - start) / 86_400_000 <= 32
