"""One function for many values, each in one of some processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# A process is replaced after so many calls: memory that a call leaves behind goes with it.
CALLS_OF_A_PROCESS = 200


def in_processes(function: Callable[[T], R], values: Iterable[T], processes: int) -> Iterator[R]:
    """The results in the order in which they come. Function, values and results must be picklable.

    Args:
        processes: how many at a time; with one, everything runs in this process.

    Raises:
        Exception: what the function raised; the others are ended.
    """
    if processes == 1:
        yield from map(function, values)
        return
    # Not forked: a process with threads would take their locks along, held for ever.
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=CALLS_OF_A_PROCESS) as pool:
        yield from pool.imap_unordered(function, values)
