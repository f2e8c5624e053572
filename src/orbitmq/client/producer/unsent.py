"""Submitted messages without an answer, when their producer closes and when its event loop ends."""

from __future__ import annotations

import asyncio
import logging
import weakref
from functools import partial

from orbitmq.client.model import SendResult
from orbitmq.client.producer.batching import Accumulator
from orbitmq.client.producer.callbacks import CLOSE_TIMEOUT_S, Submitted
from orbitmq.runtime import program_end
from orbitmq.runtime.tasks import Background

log = logging.getLogger("orbitmq.client")


class _Watch:
    """The watch for the end of the program. It ends once: with the log line, or when the producer closes."""

    def __init__(self, unsent: Unsent) -> None:
        self._open = True
        self._forget = program_end.call_at_end(partial(_tell, weakref.ref(unsent)))
        weakref.finalize(unsent, self._forget).atexit = False

    def end(self) -> bool:
        """End the watch; returns whether it was still open."""
        was_open, self._open = self._open, False
        self._forget()
        return was_open


class Unsent:
    """Waits for unanswered messages when the producer closes; logs their number when nothing can wait for
    them.
    """

    def __init__(self, group: str, submitted: Submitted, batches: Accumulator | None) -> None:
        self._group = group
        self._submitted = submitted
        self._batches = batches
        self._watch: _Watch | None = None

    def __len__(self) -> int:
        cut_off = 0 if self._batches is None else self._batches.cut_off
        return cut_off + len(self._under_way())

    def _under_way(self) -> set[asyncio.Future[SendResult]]:
        return {*self._submitted.under_way, *(() if self._batches is None else self._batches.under_way)}

    def watch(self, background: Background) -> None:
        """From the first submitted message on, watch for the end of the event loop or of the program."""
        if self._watch is None:
            self._watch = _Watch(self)
            background.spawn(self._see_the_loop_end(), "end of the loop")

    async def _see_the_loop_end(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.tell()

    def tell(self) -> None:
        """Log how many messages are unsent, once, unless the producer is closed."""
        if self._watch is not None and self._watch.end() and (unsent := len(self)):
            log.warning(
                "the event loop of producer %r has ended, and with it the sending of %d submitted messages; "
                "use 'async with', or await close()",
                self._group, unsent,
            )  # fmt: skip

    async def flushed(self) -> None:
        """Send collected messages, and wait for the answers of all messages sent so far."""
        if self._batches is not None:
            self._batches.flush()
        if under_way := self._under_way():
            await asyncio.wait(under_way)

    async def sent(self) -> None:
        """Send collected messages and wait for all answers, 10 s at most; log the number of missing ones."""
        if self._batches is not None:
            self._batches.flush()
        under_way = self._under_way()
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_TIMEOUT_S)
        if self._watch is not None:
            self._watch.end()
        if unsent := len(self):
            log.warning(
                "producer %r closes, and gives up %d submitted messages that had no answer within %g s",
                self._group, unsent, CLOSE_TIMEOUT_S,
            )  # fmt: skip
        errors = [each.exception() for each in under_way if each.done() and not each.cancelled()]
        failed = [error for error in errors if error is not None]
        if failed and program_end.begun():
            # No code of the user is left to receive the results.
            log.warning(
                "the program ends, and %d submitted messages of producer %r were not stored: %s",
                len(failed), self._group, failed[-1],
            )  # fmt: skip


def _tell(unsent: weakref.ref[Unsent]) -> None:
    if (found := unsent()) is not None:
        found.tell()
