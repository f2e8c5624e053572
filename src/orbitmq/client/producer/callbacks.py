"""Sends with a callback: holds their tasks and calls back once, on the event loop or in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from orbitmq.client.model import SendResult
from orbitmq.runtime.seam import Threads
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

# The most submitted sends at a time: Java's limit for its sending threads (AS-08).
MAX_SUBMITTED = 50_000
# How long close() waits for the sends in progress, and for callbacks that run in threads.
CLOSE_TIMEOUT_S = 10.0

# Called with the result of a send, or with its error.
SendDone = Callable[[SendResult | None, Exception | None], object]


class Submitted:
    """The submitted sends in progress, and their callbacks.

    Args:
        threads: where callbacks run (AS-07); None for the event loop, which a slow callback blocks.
    """

    def __init__(self, threads: Threads | None = None) -> None:
        self._threads = threads
        self._sends: set[asyncio.Task[SendResult]] = set()
        self._calling = 0
        self._idle = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether the limit is reached; sends whose callback still waits for a thread count, too."""
        return len(self._sends) + self._calling >= MAX_SUBMITTED

    def start(self, send: Coroutine[Any, Any, SendResult], done: SendDone | None) -> asyncio.Task[SendResult]:
        """Begin a send; ``done`` is called with its result or error, unless it is cancelled."""
        task = asyncio.get_running_loop().create_task(send)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        self.follow(task, done)
        return task

    def follow(self, send: asyncio.Future[SendResult], done: SendDone | None) -> None:
        """Call ``done`` with the result or error of a send, unless it is cancelled."""
        if done is not None:
            send.add_done_callback(partial(self._ended, done))

    def _ended(self, done: SendDone, send: asyncio.Future[SendResult]) -> None:
        if send.cancelled():
            return
        error = send.exception()
        if error is not None and not isinstance(error, Exception):
            return
        result = None if error is not None else send.result()
        if self._threads is None:
            _call(done, result, error)
            return
        self._calling += 1
        self._threads.run(_call, done, result, error).add_done_callback(self._called)

    def _called(self, call: asyncio.Future[None]) -> None:
        if not call.cancelled() and (error := call.exception()) is not None:
            log.error("the callback of a send failed", exc_info=error)
        self._calling -= 1
        if not self._calling:
            self._idle.set()

    @property
    def under_way(self) -> set[asyncio.Task[SendResult]]:
        """The sends in progress, and cancelled sends, which got no answer."""
        return {task for task in self._sends if not task.done() or task.cancelled()}

    async def sent(self) -> None:
        """Return when the sends in progress have ended, each within its own timeout, or after 10 s."""
        if self._sends:
            await asyncio.wait(self._sends, timeout=CLOSE_TIMEOUT_S)

    async def close(self) -> None:
        """With threads: wait for the remaining sends and for their callbacks, at most 10 s each.

        Later callbacks run on the event loop.
        """
        if self._threads is None:
            return
        if self._sends:
            await self.sent()
            await asyncio.sleep(0)  # their callbacks run in the next iteration of the loop
        threads, self._threads = self._threads, None
        if self._calling:
            self._idle.clear()
            timer = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._idle.set)
            await self._idle.wait()
            timer.cancel()
        if self._calling:
            log.warning(
                "%s of sends not ended %g s after close", counted(self._calling, "callback"), CLOSE_TIMEOUT_S
            )
        threads.close(wait=not self._calling)


def _call(done: SendDone, result: SendResult | None, error: Exception | None) -> None:
    try:
        done(result, error)
    except Exception:
        log.exception("the callback %r of a send failed", done)
