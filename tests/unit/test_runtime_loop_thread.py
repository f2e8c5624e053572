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
