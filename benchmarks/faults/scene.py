"""A fault being played: what it is done to, and the moments from which its cost is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.faults.load import Load
from benchmarks.faults.place import ACTING, SLAVE, Place


@dataclass(frozen=True)
class Times:
    """Seconds: before the fault, while it lasts, and after it was mended."""

    before: float = 12.0
    during: float = 14.0
    after: float = 12.0


class Scene:
    """A fault being played."""

    def __init__(self, place: Place, load: Load, times: Times) -> None:
        self.place = place
        self.load = load
        self.times = times
        self.fault_s = 0.0
        self.mended_s = 0.0
        self.stopped_s: float | None = None
        self.slave_lines = 0
        """What the slave has logged between fault and mending."""

    def fault(self, text: str) -> None:
        """The moment from which everything is counted."""
        self.fault_s = self.load.now()
        self.slave_lines -= self._lines()
        self.load.tell("fault", text)

    def note(self, text: str) -> None:
        """Something else that is done."""
        self.load.tell("fault", text)

    def mended(self, text: str) -> None:
        """From now on nothing is wrong with the servers."""
        self.mended_s = self.load.now()
        self.slave_lines += self._lines()
        self.load.tell("fault", text)

    def _lines(self) -> int:
        return self.place.log_lines(SLAVE) if SLAVE in self.place.running else 0

    async def lasts(self, seconds: float | None = None) -> None:
        await asyncio.sleep(self.times.during if seconds is None else seconds)

    def cut(self, *links: str) -> None:
        for link in links:
            self.place.links[link].cut()

    def heal(self, *links: str) -> None:
        for link in links:
            self.place.links[link].heal()


Play = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: on the command line, and of its picture.
        title: what happens, for the table.
        relayed: needs the relay, so it is not played with Apache's brokers.
        slow_disks: needs disks that can be slowed down; neither.
        name_servers: how many there are.
        may_lose_s: a disk is lost: what was acknowledged so shortly before may be lost with it, because the
            slave did not have it yet.
        settings: of all brokers.
        short: belongs to the short run.
    """

    name: str
    title: str
    play: Play
    relayed: bool = False
    slow_disks: bool = False
    name_servers: int = 1
    may_lose_s: float = 0.0
    settings: Mapping[str, str] = field(default_factory=lambda: ACTING)
    short: bool = False

    @property
    def peer(self) -> bool:
        """Whether it can be played with Apache's brokers."""
        return not self.relayed and not self.slow_disks
