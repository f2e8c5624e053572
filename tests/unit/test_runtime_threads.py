"""Exceptions of user code in a thread: whatever it raises, its future ends and the thread continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from orbitmq.runtime.seam import Threads
from orbitmq.runtime.threads import SystemThreads
from orbitmq.testing.machine.simulated import run, simulated_runtime


def exhausted() -> object:
    return next(iter(()))


def exits() -> object:
    raise SystemExit(3)


def is_cancelled() -> object:
    raise asyncio.CancelledError


async def raised_by(threads: Threads, function: Callable[[], object]) -> BaseException:
    future = threads.run(function)
    await asyncio.wait([future], timeout=20)
    assert future.done(), "nobody ever hears of it"
    error = future.exception()
    assert error is not None
    return error


async def check(threads: Threads) -> None:
    for function, cause, advice in (
        (exhausted, StopIteration, "give next"),
        (exits, SystemExit, "raise an Exception"),
        (is_cancelled, asyncio.CancelledError, "raise an Exception"),
    ):
        error = await raised_by(threads, function)
        assert type(error) is RuntimeError
        assert isinstance(error.__cause__, cause)
        assert function.__name__ in str(error)
        assert advice in str(error)
    assert type(await raised_by(threads, lambda: [][0])) is IndexError
    assert await asyncio.wait_for(threads.run(lambda: 7), 20) == 7


@pytest.mark.behaviour("CR-02")
def test_whatever_a_thread_raises_reaches_who_waits_and_costs_no_thread() -> None:
    async def main() -> None:
        threads = SystemThreads(1)
        try:
            await check(threads)
            [thread] = threads._threads
            assert thread.is_alive()
        finally:
            threads.close()
        assert threads._busy == 0

    asyncio.run(main())


@pytest.mark.behaviour("CR-02")
def test_simulated_threads_raise_the_same() -> None:
    async def main() -> None:
        await check(simulated_runtime().threads)

    run(main())


def test_ctrl_c_in_a_simulated_thread_is_meant_for_the_run() -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    async def main() -> None:
        simulated_runtime().threads.run(interrupted)

    with pytest.raises(KeyboardInterrupt):
        run(main())
