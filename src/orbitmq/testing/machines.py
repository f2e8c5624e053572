"""Machines in memory that can lose power: what ran on one of them acts no more, what was synced is left."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbitmq.runtime.memory_files import Keep, MemoryFiles
from orbitmq.runtime.memory_network import MemoryNetwork
from orbitmq.runtime.seam import Clock, Runtime
from orbitmq.runtime.simulated import SimulatedRuntime, SimulatedThreads

if TYPE_CHECKING:
    import random

T = TypeVar("T")


class PowerMachine:
    """One machine of a simulated world, switched on.

    A server that runs here gets :attr:`runtime`. :meth:`crash` switches that runtime off for good and makes
    another, on the same disk and address, for the server that is started next.

    Args:
        machine: of ``SimulatedRuntime.machine``.
    """

    def __init__(self, machine: SimulatedRuntime) -> None:
        self._machine = machine
        self._power = _Power()
        self.runtime: Runtime = self._boot()

    @property
    def host(self) -> str:
        """Its address."""
        return self._machine.network.host

    @property
    def disk(self) -> MemoryFiles:
        """Its files, with the switches that make them fail."""
        return self._machine.files

    @property
    def random(self) -> random.Random:
        return self._machine.random

    def crash(self, keep: Keep = Keep.NOTHING) -> None:
        """Lose power: connections are reset, of the writes that were not synced ``keep`` is left."""
        self._power.on = False
        self._machine.network.crash()
        self._machine.files.crash(keep=keep)
        self._power = _Power()
        self.runtime = self._boot()

    def _boot(self) -> Runtime:
        power = self._power
        return replace(
            self._machine,
            clock=_PoweredClock(self._machine.clock, power),
            files=cast(MemoryFiles, _Powered(self._machine.files, power)),
            network=cast(MemoryNetwork, _Powered(self._machine.network, power)),
            threads=_PoweredThreads(self._machine.random, power),
        )


class _Power:
    """On until the machine crashes; machines that are started again get one of their own."""

    on = True


class _PoweredClock:
    """A sleep that the crash meets never ends: the program that slept is gone."""

    def __init__(self, clock: Clock, power: _Power) -> None:
        self._clock = clock
        self._power = power
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic
        self.local_time = clock.local_time
        self.epoch_ms = clock.epoch_ms

    async def sleep(self, seconds: float) -> None:
        if self._power.on:
            await self._clock.sleep(seconds)
        if not self._power.on:
            await asyncio.get_running_loop().create_future()


class _PoweredThreads(SimulatedThreads):
    """Work that the crash meets has no end either."""

    def __init__(self, source: random.Random, power: _Power) -> None:
        super().__init__(source)
        self._power = power

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        if self._power.on:
            return super().run(function, *args)
        # A task, so that whoever waits for it ends with the loop, also who does not let itself be cancelled.
        return asyncio.ensure_future(_never())


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
