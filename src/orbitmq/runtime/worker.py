"""The machine for code that blocks and has no event loop: Spark's worker processes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from orbitmq.runtime.seam import Clock, HostFacts
from orbitmq.runtime.system import SystemClock, SystemHost


@dataclass(frozen=True, slots=True)
class Worker:
    """The parts of the machine that blocking code may use.

    Attributes:
        pause: blocks for this many seconds.
    """

    clock: Clock
    random: random.Random
    host: HostFacts
    pause: Callable[[float], None]


@lru_cache(maxsize=1)
def this_worker() -> Worker:
    """The real machine. Spark makes its readers and writers itself, so the machine cannot be passed to
    them."""
    return Worker(SystemClock(), random.Random(), SystemHost(), time.sleep)
