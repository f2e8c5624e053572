"""One function applied to many values in parallel processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# A process is replaced after this many calls, so that memory which a call leaves behind is freed.
CALLS_OF_A_PROCESS = 200


def in_processes(function: Callable[[T], R], values: Iterable[T], processes: int) -> Iterator[R]:
    """The results in the order in which the calls end. Function, values and results must be picklable.

    Args:
        processes: number of processes; with one, everything runs in this process.

    Raises:
        Exception: the function's exception; the other processes are ended.
    """
    if processes == 1:
        yield from map(function, values)
        return
    # Spawned, not forked: a fork of a process with threads would inherit locked locks.
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=CALLS_OF_A_PROCESS) as pool:
        yield from pool.imap_unordered(function, values)
