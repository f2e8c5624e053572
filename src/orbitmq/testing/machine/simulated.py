"""A machine in memory: virtual time, a disk that can crash, a network that can be cut. Each seed gives one
reproducible run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from orbitmq.runtime.seam import Clock, Runtime, Segment, Usage
from orbitmq.runtime.tasks import as_exception
from orbitmq.testing.machine.memory_files import MemoryFiles
from orbitmq.testing.machine.memory_network import LOOPBACK, MemoryNetwork
from orbitmq.testing.machine.virtual_loop import SimulationStuckError, VirtualClock, VirtualLoop

T = TypeVar("T")

DEFAULT_LIMIT_S = 24 * 3600.0


class SimulatedThreads:
    """Runs work at once but returns its result later, so that other tasks run in between.

    Work sees the state at its start: bytes written after a flush began are not flushed.
    """

    def __init__(self, source: random.Random, max_delay_s: float = 0.002) -> None:
        self._random = source
        self.max_delay_s = max_delay_s

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        delay = self._random.uniform(0, self.max_delay_s)
        try:
            result = function(*args)
        except KeyboardInterrupt:
            raise  # the user's Ctrl-C, since this is the main thread
        except BaseException as error:
            loop.call_later(delay, _fail, future, as_exception(error, function))
        else:
            loop.call_later(delay, _give, future, result)
        return future

    def sync(self, segments: Sequence[Segment], done: Callable[[BaseException | None], object]) -> None:
        for segment in segments:
            _ = segment.descriptor
        outcome: OSError | None = None
        try:
            for segment in segments:
                segment.sync()
        except OSError as error:
            outcome = error
        delay = self._random.uniform(0, self.max_delay_s)
        asyncio.get_running_loop().call_later(delay, done, outcome)

    def pool(self, max_threads: int) -> SimulatedThreads:
        """Return these threads: all work runs in the same way."""
        return SimulatedThreads(self._random, self.max_delay_s)

    def mutex(self) -> AbstractContextManager[object]:
        """A lock that does nothing, since work always runs to its end at once."""
        return nullcontext()

    def close(self, *, wait: bool = True) -> None:
        """Do nothing: there are no threads to end."""


def _give(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """A machine with a given name and one process."""

    name: str
    pid: int = 1
    home: str = "/home"
    cores: int = 1
    memory_bytes: int = 8 << 30

    def usage(self) -> Usage:
        """Always zero: the resources used belong to the simulation, not to the machine."""
        return Usage(0.0, 0)

    def variable(self, name: str) -> str:
        """Always empty: the environment of the simulating process is not the machine's."""
        return ""

    def give_back_memory(self) -> None:
        """Do nothing: the memory belongs to the simulating process."""


@dataclass(frozen=True, slots=True)
class SimulatedRuntime(Runtime):
    """A :class:`Runtime` in memory. ``files`` and ``network`` have the switches that cause faults."""

    clock: Clock
    random: random.Random
    files: MemoryFiles
    network: MemoryNetwork
    threads: SimulatedThreads
    host: SimulatedHost

    def machine(self, host: str) -> SimulatedRuntime:
        """Another machine of the same world: same clock and network, with its own address and disk."""
        source = random.Random(self.random.getrandbits(64))
        return SimulatedRuntime(
            clock=self.clock,
            random=source,
            files=MemoryFiles(random.Random(source.getrandbits(64))),
            network=self.network.on_host(host),
            threads=SimulatedThreads(random.Random(source.getrandbits(64))),
            host=SimulatedHost(host),
        )


def seeded(seed: int) -> random.Random:
    """An independent source of randomness."""
    return random.Random(seed)


def simulated_runtime(seed: int | None = None) -> SimulatedRuntime:
    """A machine in memory, addressed 127.0.0.1.

    Inside :func:`run` it shares the loop's virtual clock, and its seed unless one is given. Outside of a loop
    its clock moves only by ``advance``; files work there, while sleeping and the network need a loop.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    clock: Clock
    if isinstance(loop, VirtualLoop):
        clock = loop.clock
        seed = loop.seed if seed is None else seed
    else:
        clock = VirtualClock()
    source = random.Random(seed or 0)
    return SimulatedRuntime(
        clock=clock,
        random=source,
        files=MemoryFiles(random.Random(source.getrandbits(64))),
        network=MemoryNetwork(random.Random(source.getrandbits(64)), LOOPBACK),
        threads=SimulatedThreads(random.Random(source.getrandbits(64))),
        host=SimulatedHost(LOOPBACK),
    )


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, limit_s: float = DEFAULT_LIMIT_S) -> T:
    """Run a coroutine on a virtual-time loop and return its result; waiting costs no real time.

    Args:
        seed: the seed of every :func:`simulated_runtime` that the coroutine creates without its own seed.
        limit_s: the most seconds of virtual time for the coroutine.

    Raises:
        TimeoutError: the coroutine took longer.
        SimulationStuckError: the coroutine waits for an event that cannot happen.
    """

    async def limited() -> T:
        return await asyncio.wait_for(main, limit_s)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(VirtualClock(), seed)) as runner:
        return runner.run(limited())


__all__ = [
    "DEFAULT_LIMIT_S",
    "SimulatedRuntime",
    "SimulatedThreads",
    "SimulationStuckError",
    "VirtualClock",
    "run",
    "seeded",
    "simulated_runtime",
]
