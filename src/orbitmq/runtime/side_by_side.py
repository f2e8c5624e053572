"""Runs blocking calls, several at a time, for processes without an event loop (Spark's)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

T = TypeVar("T")

MAX_THREADS = 16


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Run all calls and wait for their ends; returns what each returned or raised, in the order of the calls.

    One call runs on the calling thread. More run on up to 16 threads that end with this function, so that a
    process that Spark forks later inherits none.
    """
    if len(calls) == 1:
        return [_outcome(calls[0])]
    with ThreadPoolExecutor(min(MAX_THREADS, max(1, len(calls)))) as pool:
        return list(pool.map(_outcome, calls))


def watched(work: Callable[[], T], look: Callable[[], object], every_s: float) -> T:
    """Call ``work`` while another thread calls ``look`` at an interval in seconds; returns the result of
    ``work``."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(every_s):
            look()

    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(watch)
        try:
            return work()
        finally:
            ended.set()
            watcher.result()


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:
        return error
