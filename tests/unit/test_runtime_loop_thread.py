"""The event loop of the blocking clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from typing import Any

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
    """Otherwise it never runs, and its caller waits for ever."""
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


@pytest.mark.behaviour("SH-05")
def test_a_signal_handler_hands_over_while_its_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that closes the client must not wait for the lock of the call that it has interrupted."""
    loop = LoopThread("test")
    given: list[str] = []
    hand_over = asyncio.run_coroutine_threadsafe

    async def work(name: str) -> None:
        given.append(name)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", hand_over)
        loop.wait(work("by the handler"))
        return hand_over(*args)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    user = threading.Thread(target=lambda: loop.wait(work("by the call")), daemon=True)
    user.start()
    user.join(60)
    assert given == ["by the handler", "by the call"]
    loop.stop()


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("late", [False, True])
def test_a_signal_handler_stops_while_its_thread_hands_over(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Neither may wait for the other: the handler for the loop's end, the loop for the work of the
    interrupted call.
    """
    loop = LoopThread("test")
    told: list[type[BaseException]] = []
    hand_over = asyncio.run_coroutine_threadsafe

    async def work() -> None:
        await asyncio.Event().wait()

    def interrupted(*args: Any) -> Any:
        future = hand_over(*args) if late else None
        loop.stop()
        return future or hand_over(*args)

    def call() -> None:
        try:
            loop.wait(work())
        except BaseException as error:
            told.append(type(error))

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    user = threading.Thread(target=call, daemon=True)
    user.start()
    user.join(60)
    assert told == [concurrent.futures.CancelledError if late else RuntimeError]
