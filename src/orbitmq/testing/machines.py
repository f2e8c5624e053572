"""Machines in memory that can lose power: their programs stop acting, and their synced bytes stay."""

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
    """One machine of a simulated world, which is switched on.

    A server that runs on this machine uses :attr:`runtime`. :meth:`crash` disables that runtime for good and
    creates another one, with the same disk and address, for the next server.

    Tasks started with :meth:`begin` belong to a process, which :meth:`kill` ends at once and :meth:`freeze`
    stops for a while. For other code only clock, disk and network stop working.

    Args:
        machine: the result of ``SimulatedRuntime.machine``.

    Attributes:
        skew_ms: how far the machine's wall clock is ahead of other machines' clocks; may be set at any time.
        disk_delay_s: the longest duration of one operation of its disk.
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
        """The machine's files, with the switches that cause faults."""
        return self._machine.files

    @property
    def network(self) -> MemoryNetwork:
        """The machine's network, with the switches that slow it down."""
        return self._machine.network

    @property
    def random(self) -> random.Random:
        return self._machine.random

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start ``work`` in the machine's process, together with all tasks that it starts."""
        return asyncio.get_running_loop().create_task(work, context=self.process.context())

    def crash(self, keep: Keep = Keep.NOTHING) -> None:
        """Lose power: connections are reset, and ``keep`` selects the unsynced writes that survive."""
        self._end()
        self._machine.files.crash(keep=keep)
        self.runtime = self._boot()

    def kill(self) -> None:
        """Kill the process (SIGKILL): connections are reset; its writes stay, synced or not."""
        self._end()
        self._machine.files.end_process()
        self.runtime = self._boot()

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP); the kernel keeps working, so peers see only silence."""
        self.process.freeze()

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        self.process.thaw()

    def bury(self) -> None:
        """Cancel the tasks of killed processes. To be called before the loop closes."""
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
    """On until the machine crashes; the next start of the machine gets a new object."""

    on = True


class _PoweredClock:
    """A clock whose sleeps never end after the crash, since the sleeping program is gone."""

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
    """Threads whose work never ends after the crash."""

    def __init__(self, source: random.Random, power: _Power, machine: PowerMachine) -> None:
        super().__init__(source)
        self._power = power
        self._machine = machine

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        self.max_delay_s = self._machine.disk_delay_s
        if self._power.on:
            return super().run(function, *args)
        # A task, so that its waiters end with the loop, even those that ignore a cancellation.
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
