"""Carries out a plan, each fault at its time; at the end every fault is undone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.virtual_loop import VirtualLoop
from orbitmq.testing.machines import DISK_DELAY_S
from tools.simulation.history import History
from tools.simulation.lives import Lives
from tools.simulation.plan import SLOWEST_LINK_S, Fault, Kind, Plan
from tools.simulation.site import Site

if TYPE_CHECKING:
    from random import Random

MOST_EVENTS = 6
SLOWEST_DISK_S = 0.5
# The interval after which the connections of a flaky link are reset again.
RESET_EACH_S = (0.1, 1.5)
MOST_DISK_FAILURES = 4
OPERATIONS = ("pwrite", "sync", "write_atomic", "open_segment", "*")


class Faults:
    """Carries out the faults of a plan."""

    def __init__(self, plan: Plan, site: Site, load: Lives, history: History, dice: Random) -> None:
        self._plan = plan
        self._site = site
        self._load = load
        self._history = history
        self._dice = dice

    async def run(self) -> None:
        """Run all faults; returns when the last one is over."""
        async with asyncio.TaskGroup() as group:
            for fault in self._plan.faults:
                group.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        await self._site.clock.sleep(fault.at_s)
        await self._amid_the_work(fault.steps)
        self._history.note("FAULT", str(fault))
        match fault.kind:
            case Kind.KILL | Kind.POWER | Kind.LOSE_DISK | Kind.STOP | Kind.NAME_SERVER:
                await self._lose(fault)
            case Kind.CLIENT:
                load = self._load
                if load.kill(fault.target) if fault.is_hard else await load.leave(fault.target):
                    await self._site.clock.sleep(fault.lasts_s)
                    load.begin(fault.target)
            case Kind.RESET:
                self._site.reset(fault.target)
                return
            case _:
                end = self._begin(fault)
                await self._site.clock.sleep(fault.lasts_s)
                end()
        self._history.note("FAULT", f"{fault.kind.value} {fault.target} is over")

    async def _amid_the_work(self, steps: int) -> None:
        """Wait for some events, then stop between the callbacks of one of them: at any await."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(steps % MOST_EVENTS):
            await loop.until_next_event()
        for _ in range(steps // MOST_EVENTS):
            await asyncio.sleep(0)

    async def _lose(self, fault: Fault) -> None:
        """End a server for a while. A server that another fault has already ended stays ended until then."""
        server = self._site.servers[fault.target]
        if not server.wanted:
            return
        match fault.kind:
            case Kind.POWER:
                keep = list(Keep)[int(fault.detail * len(Keep))]
                self._history.note("FAULT", f"of what was not synced {keep.value} is left")
                self._site.lose_power(fault.target, keep)
            case Kind.LOSE_DISK:
                self._site.lose_power(fault.target, Keep.NOTHING)
                server.machine.disk.heal()  # the new disk is empty and works
                server.machine.disk.remove_tree("/")
            case Kind.STOP:
                await self._site.stop(fault.target)
            case _:
                self._site.kill(fault.target)
        await self._site.clock.sleep(fault.lasts_s)
        self._site.begin(fault.target)

    def _repair(self, name: str) -> None:
        """Make the disk work again; a broker whose flush failed requires a restart (decision 2)."""
        self._site.machines[name].disk.heal()
        if self._site.servers[name].wanted:
            self._site.kill(name)
            self._site.begin(name)

    async def _reset_again(self, name: str) -> None:
        while True:
            await self._site.clock.sleep(self._dice.uniform(*RESET_EACH_S))
            self._site.reset(name)

    def _begin(self, fault: Fault) -> Callable[[], None]:
        """Begin a lasting fault; returns the function that ends it."""
        site, machine = self._site, self._site.machines[fault.target]
        match fault.kind:
            case Kind.CUT | Kind.ONE_WAY:
                return site.cut([fault.target], [fault.other], one_way=fault.kind is Kind.ONE_WAY)
            case Kind.ISOLATE:
                return site.cut([fault.target], [name for name in site.machines if name != fault.target])
            case Kind.FREEZE:
                process = machine.process
                process.freeze()
                return process.thaw
            case Kind.SLOW_LINK:
                machine.network.slow(0.0, fault.detail * SLOWEST_LINK_S)
                return lambda: machine.network.slow(0.0, 0.0)
            case Kind.FLAKY_LINK:
                machine.network.slow(0.0, fault.detail * SLOWEST_LINK_S)
                resets = asyncio.create_task(self._reset_again(fault.target))

                def steady() -> None:
                    resets.cancel()
                    machine.network.slow(0.0, 0.0)

                return steady
            case Kind.SLOW_DISK:
                machine.disk_delay_s = fault.detail * SLOWEST_DISK_S
                return lambda: setattr(machine, "disk_delay_s", DISK_DELAY_S)
            case Kind.FAIL_DISK:
                operation = OPERATIONS[int(fault.detail * len(OPERATIONS))]
                error = errno.ENOSPC if self._dice.random() < 0.5 else errno.EIO
                times = self._dice.choice((1, MOST_DISK_FAILURES, -1))
                machine.disk.fail(operation, error=error, skip=self._dice.randrange(20), times=times)
                return partial(self._repair, fault.target)
            case Kind.CLOCK:
                machine.skew_ms = fault.skew_ms
                return lambda: setattr(machine, "skew_ms", site.ahead_ms[fault.target])
            case _:
                raise AssertionError(fault.kind)
