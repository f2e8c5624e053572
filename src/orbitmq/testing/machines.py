"""Machines in memory that can lose power: its programs act no more, its synced bytes stay."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbitmq.runtime.seam import Clock, Runtime, Segment
from orbitmq.testing.machine.memory_files import Keep, MemoryFiles
from orbitmq.testing.machine.memory_network import MemoryNetwork
from orbitmq.testing.machine.simulated import SimulatedRuntime, SimulatedThreads
from orbitmq.testing.machine.virtual_loop import SimulatedProcess

if TYPE_CHECKING:
    import random

T = TypeVar("T")

DISK_DELAY_S = 0.002


class PowerMachine:
    """One machine of a simulated world, switched on.

    A server that runs here gets :attr:`runtime`. :meth:`crash` switches that runtime off for good and makes
    another, on the same disk and address, for the server that is started next.

    What is started with :meth:`begin` belongs to a process, which :meth:`kill` ends at once and
    :meth:`freeze` stops for a while. Other code only finds that clock, disk and network work no more.

    Args:
        machine: of ``SimulatedRuntime.machine``.

    Attributes:
        skew_ms: how far its wall clock is ahead of the others'; may change at any time.
        disk_delay_s: the longest time that one operation of its disk takes.
    """

    def __init__(self, machine: SimulatedRuntime) -> None:
        self._machine = machine
        self._power = _Power()
        self.skew_ms = 0
        self.disk_delay_s = DISK_DELAY_S
        self.process = SimulatedProcess(machine.network.host)
        self._gone: list[SimulatedProcess] = []
        self.runtime: Runtime = self._boot()

    @property
    def host(self) -> str:
        """The machine's address."""
        return self._machine.network.host

    @property
    def disk(self) -> MemoryFiles:
        """Its files, with the switches that make them fail."""
        return self._machine.files

    @property
    def network(self) -> MemoryNetwork:
        """Its network, with the switches that make it slow."""
        return self._machine.network

    @property
    def random(self) -> random.Random:
        return self._machine.random

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start ``work`` in the machine's process, with all that it starts."""
        return asyncio.get_running_loop().create_task(work, context=self.process.context())

    def crash(self, keep: Keep = Keep.NOTHING) -> None:
        """Lose power: connections are reset, ``keep`` says what is left of writes that were not synced."""
        self._end()
        self._machine.files.crash(keep=keep)
        self.runtime = self._boot()

    def kill(self) -> None:
        """The process ends (SIGKILL): connections are reset, what it wrote is there, synced or not."""
        self._end()
        self._machine.files.end_process()
        self.runtime = self._boot()

    def freeze(self) -> None:
        """The process stands still (SIGSTOP); the kernel goes on, so peers see only silence."""
        self.process.freeze()

    def thaw(self) -> None:
        """The process goes on (SIGCONT)."""
        self.process.thaw()

    def bury(self) -> None:
        """Before the loop closes: let what was killed be cancelled."""
        for process in self._gone:
            process.bury()

    def _end(self) -> None:
        self._power.on = False
        self.process.kill()
        self._gone.append(self.process)
        self._machine.network.crash()
        self._power = _Power()
        self.process = SimulatedProcess(self.host)

    def _boot(self) -> Runtime:
        power = self._power
        return replace(
            self._machine,
            clock=_PoweredClock(self._machine.clock, power, self),
            files=cast(MemoryFiles, _Powered(self._machine.files, power)),
            network=cast(MemoryNetwork, _Powered(self._machine.network, power)),
            threads=_PoweredThreads(self._machine.random, power, self),
        )


class _Power:
    """On until the machine crashes; machines that are started again get one of their own."""

    on = True


class _PoweredClock:
    """A sleep that the crash meets never ends: the program that slept is gone."""

    def __init__(self, clock: Clock, power: _Power, machine: PowerMachine) -> None:
        self._clock = clock
        self._power = power
        self._machine = machine
        self.monotonic = clock.monotonic
        self.local_time = clock.local_time
        self.epoch_ms = clock.epoch_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._machine.skew_ms

    async def sleep(self, seconds: float) -> None:
        if self._power.on:
            await self._clock.sleep(seconds)
        if not self._power.on:
            await asyncio.get_running_loop().create_future()


class _PoweredThreads(SimulatedThreads):
    """Work that the crash meets has no end either."""

    def __init__(self, source: random.Random, power: _Power, machine: PowerMachine) -> None:
        super().__init__(source)
        self._power = power
        self._machine = machine

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        self.max_delay_s = self._machine.disk_delay_s
        if self._power.on:
            return super().run(function, *args)
        # A task, so that its waiters end with the loop, also those that ignore a cancellation.
        return asyncio.ensure_future(_never())

    def sync(self, segments: Sequence[Segment], done: Callable[[BaseException | None], object]) -> None:
        self.max_delay_s = self._machine.disk_delay_s
        super().sync(segments, done)

    def pool(self, max_threads: int) -> SimulatedThreads:
        return _PoweredThreads(self._random, self._power, self._machine)


async def _never() -> Any:
    await asyncio.get_running_loop().create_future()


class _Powered:
    """A disk or a network card that refuses everything after the crash."""

    def __init__(self, part: object, power: _Power) -> None:
        self._part = part
        self._power = power

    def __getattr__(self, name: str) -> Any:
        if not self._power.on:
            raise OSError(errno.EIO, "the simulated machine has no power")
        return getattr(self._part, name)
