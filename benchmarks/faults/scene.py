"""A fault that is being played: its place and load, and the times from which its costs are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.faults.load import Load
from benchmarks.faults.place import ACTING, SLAVE, Place


@dataclass(frozen=True)
class Times:
    """Durations in seconds: before the fault, during it, and after its end."""

    before: float = 12.0
    during: float = 14.0
    after: float = 12.0


class Scene:
    """One fault while it is carried out."""

    def __init__(self, place: Place, load: Load, times: Times) -> None:
        self.place = place
        self.load = load
        self.times = times
        self.fault_s = 0.0
        self.mended_s = 0.0
        self.stopped_s: float | None = None
        self.slave_lines = 0
        """Number of lines that the slave has logged during the fault."""

    def fault(self, text: str) -> None:
        """Begin the fault: all times count from here."""
        self.fault_s = self.load.now()
        self.slave_lines -= self._lines()
        self.load.tell("fault", text)

    def note(self, text: str) -> None:
        """Record a further action."""
        self.load.tell("fault", text)

    def mended(self, text: str) -> None:
        """End the fault: from here on all servers are healthy."""
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
        name: the name on the command line and of the picture.
        title: a description for the table.
        relayed: whether the fault needs the relay; then it is not played with Apache's brokers.
        slow_disks: whether it needs disks that can be slowed down; then it is not played with Apache's
            brokers, either.
        name_servers: number of name servers.
        may_lose_s: with a lost disk, messages acknowledged at most this long before may be lost, because the
            slave did not have them yet.
        settings: settings of all brokers.
        short: whether the fault belongs to the short run.
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
        """Whether the fault can be played with Apache's brokers."""
        return not self.relayed and not self.slow_disks
