"""Closes clients when the program ends; otherwise its end cuts off their threads and event loops."""

from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("orbitmq.runtime")

# After this many seconds a close is cut off: a client that closes sends for 10 s at most.
LIMIT_S = 10.5

_begun = threading.Event()
_numbers = itertools.count()
_closing: dict[int, tuple[str, Callable[[], concurrent.futures.Future[Any] | None]]] = {}
_at_end: dict[int, Callable[[], object]] = {}


def close_at_end(
    name: str, begin: Callable[[], concurrent.futures.Future[Any] | None]
) -> Callable[[], object]:
    """Register a client that is closed when the program ends; the returned function undoes that.

    Args:
        name: for the log.
        begin: begins to close the client; returns None when there is nothing to close.
    """
    number = next(_numbers)
    _closing[number] = name, begin
    _in_a_child_process()
    return lambda: _closing.pop(number, None)


def call_at_end(call: Callable[[], object]) -> Callable[[], object]:
    """Call ``call`` when the program ends and all clients are closed; the returned function undoes that."""
    number = next(_numbers)
    _at_end[number] = call
    return lambda: _at_end.pop(number, None)


def begun() -> bool:
    """Whether the program is ending, so that results are of no use any more."""
    return _begun.is_set()


@atexit.register
def end() -> None:
    """Close all clients side by side, and log those that do not close in time."""
    _begun.set()
    closing: dict[concurrent.futures.Future[Any], str] = {}
    while _closing:
        _, (name, begin) = _closing.popitem()
        try:
            future = begin()
        except Exception as error:
            log.warning("%s cannot be closed at the end of the program: %s", name, error)
            continue
        if future is not None:
            closing[future] = name
    done, late = concurrent.futures.wait(closing, timeout=LIMIT_S)
    for future in late:
        log.warning("%s was not closed within %g s at the end of the program", closing[future], LIMIT_S)
    for future in done:
        failure = None if future.cancelled() else future.exception()
        if failure is not None:
            log.warning("closing %s failed at the end of the program: %r", closing[future], failure)
    while _at_end:
        _, call = _at_end.popitem()
        call()


def _in_a_child_process() -> None:
    """Register :func:`end` in a process that multiprocessing started: it ends without atexit, but with its
    own finalizers."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None and _closing:
        util.Finalize(None, end, exitpriority=100)
