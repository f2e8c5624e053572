"""Ctrl-C and SIGTERM close a consumer, instead of ending its process in the middle of a delivery."""

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
    """In the block the first signal calls ``close``, and a second one cancels that call. The block ends when
    ``close`` has ended.

    Raises:
        ClientStateError: not in the main thread.
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

    with _signals_call(loop, stop):
        yield
        if closing:
            await closing[0]


@contextmanager
def _signals_call(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """In the block each signal calls ``stop`` on the loop.

    Raises:
        ClientStateError: not in the main thread.
    """
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, stop)
    except NotImplementedError:  # an event loop without signals (Windows)
        with _handlers(lambda *_: loop.call_soon_threadsafe(stop)):
            yield
        return
    except (RuntimeError, ValueError) as error:
        raise ClientStateError(f"{NOT_HERE}: {error}") from error
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _handlers(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) for number in SIGNALS}
    except ValueError as error:
        raise ClientStateError(f"{NOT_HERE}: {error}") from error
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def first_signal_calls(stop: Callable[[], T]) -> Iterator[list[T]]:
    """Without an event loop: in the block the first signal calls ``stop``, a second one raises
    KeyboardInterrupt.

    Yields a list that holds the result of ``stop`` after the call.

    Raises:
        ClientStateError: not in the main thread.
    """
    stopped: list[T] = []

    def asked(_number: int, _frame: FrameType | None) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(stop())

    with _handlers(asked):
        yield stopped
