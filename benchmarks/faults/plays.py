"""The actions on servers, and their times: one function for each kind of fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.faults.disks import fill, free
from benchmarks.faults.place import MASTER, NAME_SERVER, OTHER, OTHER_SLAVE, SLAVE
from benchmarks.faults.scene import Scene

AHEAD_S = 32.0
"""Twice the time for which a pull is held, so that each queue is pulled twice."""
LOCKS_S = 36.0
"""A slave that acts again after 4 s grants no queue lock for 30 s (LK-11)."""


async def kill(scene: Scene, name: str = MASTER) -> None:
    """Kill a server with SIGKILL and start it again; with a master, a consumer is killed and restarted at the
    same time.
    """
    if name == MASTER:
        await scene.load.note_committed()
    scene.place.kill(name)
    scene.fault(f"kill -9 of {name}")
    if name == MASTER:
        await scene.load.start_reader()
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts")


async def freeze(scene: Scene, name: str = MASTER, seconds: float = 15.0) -> None:
    scene.place.freeze(name)
    scene.fault(f"SIGSTOP of {name}")
    await scene.lasts(seconds)
    scene.place.thaw(name)
    scene.mended(f"SIGCONT of {name}")


async def term(scene: Scene, name: str = MASTER) -> None:
    scene.fault(f"SIGTERM of {name}")
    scene.stopped_s = await scene.place.term(name)
    scene.note(f"{name} has ended")
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts")


async def acting(scene: Scene, how: Callable[[Scene], Awaitable[None]]) -> None:
    """A fault hits a slave that acts for its killed master."""
    scene.place.kill(MASTER)
    scene.fault(f"kill -9 of {MASTER}")
    await scene.lasts(5)
    await how(scene)
    await scene.lasts()
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


async def acting_killed(scene: Scene) -> None:
    scene.place.kill(SLAVE)
    scene.note(f"kill -9 of {SLAVE}, which acts")
    await scene.lasts(3)
    scene.place.launch(SLAVE)
    scene.note(f"{SLAVE} starts")


async def acting_stopped(scene: Scene) -> None:
    scene.note(f"SIGTERM of {SLAVE}, which acts")
    await scene.place.term(SLAVE)
    await scene.lasts(3)
    scene.place.launch(SLAVE)
    scene.note(f"{SLAVE} starts")


async def acting_frozen(scene: Scene, seconds: float) -> None:
    scene.place.freeze(SLAVE)
    scene.note(f"SIGSTOP of {SLAVE}, which acts")
    await scene.lasts(seconds)
    scene.place.thaw(SLAVE)
    scene.note(f"SIGCONT of {SLAVE}")
    await scene.lasts(LOCKS_S)


async def both(scene: Scene, first: str, second: str, back: str) -> None:
    await scene.load.note_committed()
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


async def name_server_killed(scene: Scene) -> None:
    scene.place.kill(NAME_SERVER)
    scene.fault("kill -9 of the name server")
    await scene.lasts(8)
    await scene.place.start_name_server()
    scene.mended("the name server starts")


async def name_server_frozen(scene: Scene, seconds: float = 8.0) -> None:
    scene.place.freeze(NAME_SERVER)
    scene.fault("SIGSTOP of the name server")
    await scene.lasts(seconds)
    scene.place.thaw(NAME_SERVER)
    scene.mended("SIGCONT of the name server")


async def name_server_stopped(scene: Scene) -> None:
    scene.fault("SIGTERM of the name server")
    scene.stopped_s = await scene.place.term(NAME_SERVER)
    await scene.lasts(8)
    await scene.place.start_name_server()
    scene.mended("the name server starts")


async def master_without_a_name_server(scene: Scene) -> None:
    """A master is killed while one of two name servers is frozen."""
    scene.place.freeze(NAME_SERVER)
    scene.note("SIGSTOP of one name server")
    await scene.lasts(5)
    await kill(scene)
    scene.place.thaw(NAME_SERVER)
    scene.note("SIGCONT of the name server")


async def ahead(scene: Scene) -> None:
    """The slave lacks the master's messages of the last two seconds, which consumers have already read."""
    scene.cut("a0 ha")
    scene.note("cut: a0 ha")
    await scene.lasts(2)
    scene.place.kill(MASTER)
    scene.place.links["a0 ha"].reset()
    scene.heal("a0 ha")
    scene.fault(f"kill -9 of {MASTER}; {SLAVE} is two seconds behind")
    await scene.lasts(max(scene.times.during, AHEAD_S))
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


async def cut(scene: Scene, links: Sequence[str]) -> None:
    scene.cut(*links)
    scene.fault(f"cut: {', '.join(links)}")
    await scene.lasts()
    scene.heal(*links)
    scene.mended("healed")


async def one_way(scene: Scene, link: str, *, there: bool) -> None:
    way = scene.place.links[link].there if there else scene.place.links[link].back
    way.cut()
    scene.fault(f"cut one way, {'towards' if there else 'back from'} the listener: {link}")
    await scene.lasts()
    way.heal()
    scene.mended("healed")


async def stall(scene: Scene, link: str) -> None:
    scene.fault(f"stalls of a second: {link}")
    for _ in range(3):
        scene.cut(link)
        await asyncio.sleep(1)
        scene.heal(link)
        await asyncio.sleep(1)
    scene.mended("healed")


async def slow(scene: Scene, link: str) -> None:
    scene.place.links[link].slow(0.2, 50_000)
    scene.fault(f"0.2 s and 50 KB/s: {link}")
    await scene.lasts()
    scene.heal(link)
    scene.mended("healed")


async def full_disk(scene: Scene, name: str) -> None:
    pid = scene.place.running[name].pid
    fill(pid)
    scene.fault(f"the disk of {name} is full")
    await scene.lasts()
    free(pid)
    scene.mended("there is room again")


async def slow_disk(scene: Scene, name: str) -> None:
    assert scene.place.disks is not None
    scene.place.disks.hold_up(name, 0.5)
    scene.fault(f"each flush of {name} takes 0.5 s longer")
    await scene.lasts()
    scene.place.disks.hold_up(name, 0.0)
    scene.mended("the disk is as before")


async def new_topic(scene: Scene) -> None:
    await scene.load.make_new_topic()
    scene.place.kill(MASTER)
    scene.fault(f"kill -9 of {MASTER}, half a second after a topic was made")
    scene.load.read_new_topic()
    await scene.lasts()
    scene.place.launch(MASTER)
    scene.mended(f"{MASTER} starts")


async def new_disk(scene: Scene, name: str) -> None:
    scene.place.kill(name)
    scene.place.empty(name)
    scene.fault(f"kill -9 of {name}, its disk is lost")
    await scene.lasts()
    scene.place.launch(name)
    scene.mended(f"{name} starts with an empty disk")


async def everything_of_a_group(scene: Scene) -> None:
    """Both brokers of the other group are killed as well: no broker accepts the messages that the acting
    master would hand on.
    """
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
