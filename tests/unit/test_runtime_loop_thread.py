"""The event loop of the blocking clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading

import pytest

from orbitmq.runtime.loop_thread import LoopThread


@pytest.mark.behaviour("SH-05")
def test_what_is_under_way_when_the_loop_stops_is_cancelled_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = LoopThread("test")
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    waiting = loop.submit(work())
    assert begun.wait(20)
    loop.stop()
    assert ended.is_set()
    with pytest.raises(concurrent.futures.CancelledError):
        waiting.result(20)
    gc.collect()
    assert "Task was destroyed" not in caplog.text


def test_what_comes_while_the_loop_ends_is_refused() -> None:
    """Nobody ran it, and who waited for it waited for ever."""
    ending, go_on = threading.Event(), threading.Event()

    class Slow(LoopThread):
        async def _end_tasks(self) -> None:
            await super()._end_tasks()
            ending.set()
            go_on.wait(20)

    async def work() -> None:
        pass

    loop = Slow("test")
    stopping = threading.Thread(target=loop.stop)
    stopping.start()
    assert ending.wait(20)
    with pytest.raises(RuntimeError, match="stopped"):
        loop.submit(work())
    go_on.set()
    stopping.join(20)
