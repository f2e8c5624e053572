"""Ctrl-C and SIGTERM close a consumer instead of ending its process in the middle of its work."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import TypeVar

from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")

NOT_HERE = "stop_on_signals works in the main thread of a process only"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@asynccontextmanager
async def closing_on_signals(close: Callable[[], Awaitable[None]], *, wanted: bool) -> AsyncIterator[None]:
    """Inside, the first signal calls ``close``, a second one cancels the block; left when it is closed.

    Raises:
        ClientStateError: not in the main thread, or the event loop cannot tell of signals.
    """
    if not wanted:
        yield
        return
    loop = asyncio.get_running_loop()
    block = asyncio.current_task()
    closing: list[asyncio.Future[None]] = []

    def stop() -> None:
        if closing:
            if block is not None:
                block.cancel()
            return
        log.info("a signal asks to stop; running handlers may end, a second signal cancels them")
        closing.append(asyncio.ensure_future(close()))

    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, stop)
    # NotImplementedError: an event loop without signals (Windows). ValueError, RuntimeError: another thread.
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise ClientStateError(
            f"stop_on_signals works in the main thread of a process only: {error}"
        ) from error
    try:
        yield
        if closing:
            await closing[0]
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def first_signal_calls(stop: Callable[[], T]) -> Iterator[list[T]]:
    """The same without an event loop: the first signal calls ``stop``, a second one raises KeyboardInterrupt.

    Gives a list that holds the result of ``stop`` once it was called.

    Raises:
        ClientStateError: not in the main thread.
    """
    stopped: list[T] = []

    def asked(_number: int, _frame: FrameType | None) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(stop())

    try:
        before = {number: signal.signal(number, asked) for number in SIGNALS}
    except ValueError as error:
        raise ClientStateError(f"{NOT_HERE}: {error}") from error
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
