"""Sends that nobody waits for, and the functions that hear of their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from orbitmq.client.model import SendResult

log = logging.getLogger("orbitmq.client")

# As many as Java's client queues for its sending threads (AS-08).
MAX_SUBMITTED = 50_000

Done = Callable[[SendResult | None, Exception | None], object]


class Submitted:
    """The sends that are under way, so that none is lost to the garbage collector."""

    def __init__(self) -> None:
        self._sends: set[asyncio.Task[SendResult]] = set()

    @property
    def full(self) -> bool:
        return len(self._sends) >= MAX_SUBMITTED

    def start(self, send: Coroutine[Any, Any, SendResult], done: Done | None) -> asyncio.Task[SendResult]:
        """Begin a send; ``done`` hears of its end, unless it is cancelled."""
        task = asyncio.get_running_loop().create_task(send)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        if done is not None:
            task.add_done_callback(partial(tell, done))
        return task


def tell(done: Done, send: asyncio.Future[SendResult]) -> None:
    """Call a callback with the end of a send."""
    if send.cancelled():
        return
    error = send.exception()
    try:
        if isinstance(error, Exception):
            done(None, error)
        elif error is None:
            done(send.result(), None)
    except Exception:
        log.exception("the callback %r of a send failed", done)
