"""Plays one fault under load and records the run."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.history import History
from benchmarks.faults.java_load import JavaLoad
from benchmarks.faults.load import LONGEST_DELAY_S, Load
from benchmarks.faults.place import SLAVE, Place
from benchmarks.faults.scene import Fault, Scene, Times
from benchmarks.faults.taps import pull_tap
from benchmarks.faults.watch import Watch
from benchmarks.servers import Apache, Ours

BACKLOG_RATE = 60
# A message that was popped but not acknowledged, or sent back, is delivered again within this time.
SETTLE_S = 45.0
ROUTE_TOPIC = "default"


@dataclass
class Outcome:
    """A run, and the times from which its figures are counted.

    Attributes:
        end_s: the time at which the producers stopped.
        stopped_s: duration of a clean stop.
        slave_lines: number of lines that the slave logged during the fault.
        missing: the servers that should run at the end but do not.
    """

    fault: Fault
    title: str
    history: History
    fault_s: float
    mended_s: float
    end_s: float
    stopped_s: float | None
    slave_lines: int
    missing: list[str]


async def play(
    maker: Ours | Apache,
    fault: Fault,
    times: Times,
    seed: int,
    folder: Path,
    java: Sequence[str] | None = None,
) -> Outcome:
    """Start the servers, play the fault under load, stop all servers; arguments as for :func:`played`."""
    history = History()
    theirs = isinstance(maker, Apache)
    place = Place(
        maker,
        folder,
        relayed=fault.relayed,
        settings=fault.settings,
        slow_disks=fault.slow_disks,
        name_servers=fault.name_servers,
    )
    async with place:
        # This is enough even for a fault that lasts a minute.
        backlog = int(BACKLOG_RATE * (times.before + times.during + times.after + 70))
        load = (
            Load(place, history, seed, backlog=backlog)
            if java is None
            else JavaLoad(place, history, seed, backlog=backlog, program=java)
        )
        if fault.relayed:
            place.links[f"{SLAVE} clients"].there.open_tap = pull_tap(load.note_pull)
        watch = Watch(place, ROUTE_TOPIC, load.tell)
        try:
            await load.start(topics_known_s=65.0 if theirs else 1.0)
            watch.start()
            await load.until_consuming()
            await asyncio.sleep(times.before)
            scene = Scene(place, load, times)
            await fault.play(scene)
            await asyncio.sleep(times.after)
            end_s = load.now()
            await load.stop_sending()
            await load.settle(SETTLE_S + LONGEST_DELAY_S)
            missing = [name for name, server in place.running.items() if server.process.poll() is not None]
        finally:
            await load.close()
            await watch.stop()
            _keep_logs(place, folder)
    return Outcome(
        fault,
        maker.title,
        history,
        scene.fault_s,
        scene.mended_s,
        end_s,
        scene.stopped_s,
        scene.slave_lines,
        missing,
    )


def _keep_logs(place: Place, folder: Path) -> None:
    """Remove the brokers' stores and keep the logs."""
    for name in place.seats:
        shutil.rmtree(folder / name / "store", ignore_errors=True)


def played(
    maker: Ours | Apache,
    fault: Fault,
    times: Times,
    seed: int,
    *,
    java: Sequence[str] | None = None,
    keep: Path | None = None,
) -> Outcome:
    """Run :func:`play` in a new event loop, with data in a temporary folder.

    Args:
        java: the command of Apache's clients, see :class:`JavaLoad`; None for OrbitMQ's clients.
        keep: a folder for the servers' logs.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return asyncio.run(play(maker, fault, times, seed, keep, java))
    with tempfile.TemporaryDirectory(prefix="orbitmq-fault-") as folder:
        return asyncio.run(play(maker, fault, times, seed, Path(folder), java))
