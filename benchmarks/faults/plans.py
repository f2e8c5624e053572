"""The faults that are played: what is done to which server, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.faults.disks import fill, free
from benchmarks.faults.load import Load
from benchmarks.faults.place import (
    ACTING,
    DEGRADING,
    MASTER,
    NAME_SERVER,
    OTHER,
    OTHER_SLAVE,
    SLAVE,
    Place,
)

SYNC_FLUSH: Mapping[str, str] = {**ACTING, "flushDiskType": "SYNC_FLUSH"}


@dataclass(frozen=True)
class Times:
    """Seconds: before the fault, while it lasts, and after it was mended."""

    before: float = 12.0
    during: float = 14.0
    after: float = 12.0


SHORT = Times(7.0, 7.0, 6.0)
LONG = Times()
# Apache's slaves know a topic after a minute.
PEER = Times(15.0, 40.0, 45.0)


class Scene:
    """A fault being played."""

    def __init__(self, place: Place, load: Load, times: Times) -> None:
        self.place = place
        self.load = load
        self.times = times
        self.fault_s = 0.0
        self.mended_s = 0.0
        self.stopped_s: float | None = None

    def fault(self, text: str) -> None:
        """The moment from which everything is counted."""
        self.fault_s = self.load.now()
        self.load.tell("fault", text)

    def note(self, text: str) -> None:
        """Something else that is done."""
        self.load.tell("fault", text)

    def mended(self, text: str) -> None:
        """From now on nothing is wrong with the servers."""
        self.mended_s = self.load.now()
        self.load.tell("fault", text)

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
    may_lose_s: float = 0.0
    settings: Mapping[str, str] = field(default_factory=lambda: ACTING)
    short: bool = False


async def _kill(scene: Scene, name: str = MASTER) -> None:
    scene.place.kill(name)
    scene.fault(f"kill -9 of {name}")
    if name == MASTER:
        await scene.load.start_reader()
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts")


async def _freeze(scene: Scene, name: str = MASTER, seconds: float = 15.0) -> None:
    scene.place.freeze(name)
    scene.fault(f"SIGSTOP of {name}")
    await scene.lasts(seconds)
    scene.place.thaw(name)
    scene.mended(f"SIGCONT of {name}")


async def _term(scene: Scene, name: str = MASTER) -> None:
    scene.fault(f"SIGTERM of {name}")
    scene.stopped_s = await scene.place.term(name)
    scene.note(f"{name} has ended")
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts")


async def _acting_killed(scene: Scene) -> None:
    scene.place.kill(MASTER)
    scene.fault(f"kill -9 of {MASTER}")
    await scene.lasts(5)
    scene.place.kill(SLAVE)
    scene.note(f"kill -9 of {SLAVE}, which acts")
    await scene.lasts(3)
    scene.place.launch(SLAVE)
    scene.note(f"{SLAVE} starts")
    await scene.lasts()
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


async def _both(scene: Scene, first: str, second: str, back: str) -> None:
    scene.place.kill(first)
    scene.fault(f"kill -9 of {first}")
    await asyncio.sleep(0.15)
    scene.place.kill(second)
    scene.note(f"kill -9 of {second}")
    await scene.lasts(4)
    scene.place.launch(back)
    scene.note(f"{back} starts")
    await scene.lasts()
    other = second if back == first else first
    scene.place.launch(other)
    scene.mended(f"{other} starts")


async def _name_server_killed(scene: Scene) -> None:
    scene.place.kill(NAME_SERVER)
    scene.fault("kill -9 of the name server")
    await scene.lasts(8)
    await scene.place.start_name_server()
    scene.mended("the name server starts")


async def _name_server_frozen(scene: Scene) -> None:
    scene.place.freeze(NAME_SERVER)
    scene.fault("SIGSTOP of the name server")
    await scene.lasts(8)
    scene.place.thaw(NAME_SERVER)
    scene.mended("SIGCONT of the name server")


async def _cut(scene: Scene, links: Sequence[str]) -> None:
    scene.cut(*links)
    scene.fault(f"cut: {', '.join(links)}")
    await scene.lasts()
    scene.heal(*links)
    scene.mended("healed")


async def _one_way(scene: Scene, link: str, *, there: bool) -> None:
    way = scene.place.links[link].there if there else scene.place.links[link].back
    way.cut()
    scene.fault(f"cut one way, {'towards' if there else 'back from'} the listener: {link}")
    await scene.lasts()
    way.heal()
    scene.mended("healed")


async def _stall(scene: Scene, link: str) -> None:
    scene.fault(f"stalls of a second: {link}")
    for _ in range(3):
        scene.cut(link)
        await asyncio.sleep(1)
        scene.heal(link)
        await asyncio.sleep(1)
    scene.mended("healed")


async def _slow(scene: Scene, link: str) -> None:
    scene.place.links[link].slow(0.2, 50_000)
    scene.fault(f"0.2 s and 50 KB/s: {link}")
    await scene.lasts()
    scene.heal(link)
    scene.mended("healed")


async def _full_disk(scene: Scene, name: str) -> None:
    pid = scene.place.running[name].pid
    fill(pid)
    scene.fault(f"the disk of {name} is full")
    await scene.lasts()
    free(pid)
    scene.mended("there is room again")


async def _slow_disk(scene: Scene, name: str) -> None:
    assert scene.place.disks is not None
    scene.place.disks.hold_up(name, 0.5)
    scene.fault(f"each flush of {name} takes 0.5 s longer")
    await scene.lasts()
    scene.place.disks.hold_up(name, 0.0)
    scene.mended("the disk is as before")


async def _new_topic(scene: Scene) -> None:
    await scene.load.make_new_topic()
    scene.place.kill(MASTER)
    scene.fault(f"kill -9 of {MASTER}, half a second after a topic was made")
    scene.load.read_new_topic()
    await scene.lasts()
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


async def _new_disk(scene: Scene, name: str) -> None:
    scene.place.kill(name)
    scene.place.empty(name)
    scene.fault(f"kill -9 of {name}, its disk is lost")
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts with an empty disk")


async def _everything_of_a_group(scene: Scene) -> None:
    """Both brokers of the other group as well: nobody takes what the acting master would give away."""
    scene.place.kill(OTHER)
    scene.place.kill(OTHER_SLAVE)
    scene.place.kill(MASTER)
    scene.fault(f"kill -9 of {MASTER}, {OTHER} and {OTHER_SLAVE}")
    await scene.lasts()
    for name in (OTHER, OTHER_SLAVE):
        scene.place.launch(name)
    scene.note(f"{OTHER} starts")
    await scene.lasts(6)
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


FAULTS: tuple[Fault, ...] = (
    Fault("kill-master", "kill -9 of a master", _kill, short=True),
    Fault("stop-master", "clean stop of a master", _term),
    *(
        Fault(f"freeze-master-{s}", f"master frozen for {s} s", partial(_freeze, seconds=s), short=s == 5)
        for s in (5, 15, 60)
    ),
    Fault("kill-slave", "kill -9 of a slave", partial(_kill, name=SLAVE)),
    Fault("freeze-slave", "slave frozen", partial(_freeze, name=SLAVE)),
    Fault("stop-slave", "clean stop of a slave", partial(_term, name=SLAVE)),
    Fault("kill-acting", "master killed, then its acting slave", _acting_killed),
    Fault(
        "both-slave-first",
        "both killed, slave first; slave back first",
        partial(_both, first=SLAVE, second=MASTER, back=SLAVE),
    ),
    Fault(
        "both-master-first",
        "both killed, master first; master back first",
        partial(_both, first=MASTER, second=SLAVE, back=MASTER),
    ),
    Fault("kill-nameserver", "name server killed for 8 s", _name_server_killed),
    Fault("freeze-nameserver", "name server frozen for 8 s", _name_server_frozen),
    Fault(
        "cut-names",
        "master cut off from the name server",
        partial(_cut, links=("a0 names",)),
        relayed=True,
    ),
    Fault(
        "cut-names-answers",
        "the name server's answers do not reach the master",
        partial(_one_way, link="a0 names", there=False),
        relayed=True,
    ),
    Fault(
        "cut-names-questions",
        "nothing of the master reaches the name server",
        partial(_one_way, link="a0 names", there=True),
        relayed=True,
    ),
    Fault("cut-ha", "slave cut off from its master", partial(_cut, links=("a0 ha",)), relayed=True),
    Fault(
        "cut-ha-acks",
        "acknowledgements of the slave are lost",
        partial(_one_way, link="a0 ha", there=True),
        relayed=True,
    ),
    Fault("stall-ha", "link to the slave stalls three times", partial(_stall, link="a0 ha"), relayed=True),
    Fault("slow-ha", "link to the slave is slow", partial(_slow, link="a0 ha"), relayed=True),
    Fault(
        "cut-clients",
        "clients cut off from a master",
        partial(_cut, links=("a0 clients",)),
        relayed=True,
    ),
    Fault(
        "cut-master",
        "master cut off from everybody",
        partial(
            _cut,
            links=(
                "a0 clients",
                "a0 ha",
                "a0 names",
            ),
        ),
        relayed=True,
    ),
    Fault(
        "cut-slave",
        "slave cut off from everybody",
        partial(
            _cut,
            links=(
                "a1 clients",
                "a1 names",
                "a0 ha",
            ),
        ),
        relayed=True,
    ),
    Fault("full-master", "disk of a master full", partial(_full_disk, name=MASTER)),
    Fault("full-slave", "disk of a slave full", partial(_full_disk, name=SLAVE)),
    Fault(
        "slow-master",
        "flushes of a master take 0.5 s, SYNC_FLUSH",
        partial(_slow_disk, name=MASTER),
        slow_disks=True,
        settings=SYNC_FLUSH,
    ),
    Fault(
        "slow-slave",
        "quorum 2: flushes of a slave take 0.5 s, SYNC_FLUSH",
        partial(_slow_disk, name=SLAVE),
        slow_disks=True,
        settings={**DEGRADING, **SYNC_FLUSH},
    ),
    Fault("new-topic", "kill -9 of a master; a topic is half a second old", _new_topic),
    Fault("new-slave", "slave back with an empty disk", partial(_new_disk, name=SLAVE)),
    Fault("new-master", "master back with an empty disk", partial(_new_disk, name=MASTER), may_lose_s=0.2),
    Fault("no-other-master", "master killed, the other group is down", _everything_of_a_group),
    Fault("quorum-kill-slave", "quorum 2: slave killed", partial(_kill, name=SLAVE), settings=DEGRADING),
    Fault(
        "quorum-freeze-slave",
        "quorum 2: slave frozen",
        partial(_freeze, name=SLAVE),
        settings=DEGRADING,
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
