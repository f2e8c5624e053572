"""Background tasks."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.runtime.tasks import Background, every
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import run, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


async def test_stop_cancels_all_and_waits_for_their_end() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(name)

    background = Background("broker")
    tasks = [background.spawn(work(name), name) for name in "ab"]
    assert [task.get_name() for task in tasks] == ["broker:a", "broker:b"]
    await asyncio.sleep(1)
    await background.stop()
    assert ended == ["a", "b"]
    assert len(background) == 0
    with pytest.raises(RuntimeError, match="stopped"):
        background.spawn(work("c"))


async def test_a_crash_is_logged_and_the_others_go_on(
    orbitmq_loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def crash() -> None:
        raise ValueError("boom")

    background = Background("store")
    background.spawn(crash(), "flusher")
    other = background.spawn(asyncio.sleep(5), "other")
    await other
    await background.stop()
    assert [record.message for record in caplog.records] == ["background task store:flusher crashed"]


async def test_the_number_of_tasks_has_a_limit() -> None:
    background = Background("x", max_tasks=1)
    background.spawn(asyncio.sleep(5))
    with pytest.raises(RuntimeError, match="1 tasks are alive"):
        background.spawn(asyncio.sleep(5))
    await background.stop()


async def test_stop_from_within() -> None:
    background = Background("x")
    finished = asyncio.Event()

    async def stopper() -> None:
        await background.stop()
        finished.set()

    background.spawn(asyncio.sleep(100))
    background.spawn(stopper())
    await finished.wait()


def test_every(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[float]:
        clock = simulated_runtime().clock
        times: list[float] = []

        async def tick() -> None:
            times.append(clock.monotonic())
            if len(times) == 2:
                raise ValueError("second")
            await clock.sleep(1)

        background = Background("x")
        background.spawn(every(clock, 10, tick, first_s=2))
        background.spawn(every(clock, 25, lambda: times.append(-clock.monotonic())))
        await clock.sleep(40)
        await background.stop()
        return times

    assert run(main()) == [2, 13, 23, -25, 34]
    assert sum("periodic work" in record.message for record in caplog.records) == 1
