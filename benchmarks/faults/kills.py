"""Kills a broker again and again under a steady load, and checks that no acknowledged message is lost.

    python -m benchmarks.faults.kills [MODE ...] [--kills 1000] [--rate 5000] [--seed N] [--at-once N]

=============  =========================================================  ==================================
mode           what is killed                                             promise
=============  =========================================================  ==================================
sync-flush     a master with SYNC_FLUSH                                   0 acknowledged lost
power          the same, whose machine loses power: what was not          0 acknowledged lost, nor a topic
               flushed is gone; one in five after a clean stop
quorum         master or slave of quorum 2, whose disk is removed         0 acknowledged lost
async          a master with a slave, whose disk is removed               0 lost of what the slave had
=============  =========================================================  ==================================
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.forgetful import library
from benchmarks.faults.nursery import nursery
from benchmarks.faults.place import ACTING, MASTER, SLAVE, Place
from benchmarks.faults.record import commit
from benchmarks.measure import keep, machine, record, table
from benchmarks.servers import ROOT

from orbitmq import ConsumeFrom, Message, MessageQueue, Producer, PullConsumer, SendStatus
from orbitmq.admin import Admin
from orbitmq.errors import OrbitError
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse

TOPIC = "kills"
QUEUES = 4
SENDERS = 64
BODY_BYTES = 128
UNDER_LOAD_S = (0.2, 0.7)
LINKED_S = 180.0
READ_S = 180.0
KILLS_A_STORE = 50
"""After this many kills all servers begin anew: a lost disk is copied whole each time, and an old log would
be most of the work.
"""
ASKED_MS = 2000
TURNS = 5
CLEAN_STOP, LONGER = 3, 1
"""In each round of power losses, the index of the loss after a clean stop, and of the one after the table
files were written.
"""
LONGER_S = (2.0, 3.0)
SETTLED_S = 0.05
"""A slave whose queues do not grow for this long has stored everything that it received."""
NAMED = 10
"""Number of lost messages that the record names."""
NAME = "kills"
HEADINGS = [
    "mode", "kills", "acknowledged", "a second", "lost", "the oldest of them", "back after p50, max", "seeds",
    "time", "taken",
]  # fmt: skip


@dataclass(frozen=True)
class Mode:
    """The brokers that a mode kills, and the losses that it allows.

    Attributes:
        victims: the brokers, one of which is killed each time.
        disk_lost: whether the killed broker's disk is removed.
        may_lose: whether acknowledged messages that the slave did not have may be lost.
        power_lost: whether the disk keeps only flushed data, see :mod:`benchmarks.faults.forgetful`.
    """

    settings: Mapping[str, str]
    brokers: Sequence[str]
    victims: Sequence[str]
    disk_lost: bool
    may_lose: bool = False
    power_lost: bool = False


SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
# Strict: a message is acknowledged only when two brokers have it.
QUORUM = {
    **ACTING,
    **SYNC_FLUSH,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "2",
}
# Small log files, so that each load fills some of them: this covers flushes across the end of a file, and new
# files. Small consume queue files would flush everything to the device every second.
SMALL_FILES = {"mappedFileSizeCommitLog": str(256 * 1024)}
MODES: Mapping[str, Mode] = {
    "sync-flush": Mode(SYNC_FLUSH, (MASTER,), (MASTER,), disk_lost=False),
    "power": Mode({**SYNC_FLUSH, **SMALL_FILES}, (MASTER,), (MASTER,), disk_lost=False, power_lost=True),
    "quorum": Mode(QUORUM, (MASTER, SLAVE), (MASTER, SLAVE), disk_lost=True),
    "async": Mode({**ACTING, **SYNC_FLUSH}, (MASTER, SLAVE), (MASTER,), disk_lost=True, may_lose=True),
}


@dataclass
class Tally:
    """The results of the kills.

    Attributes:
        lost: acknowledged messages that are missing after the next kill, or at the end of their store.
        lost_topics: topics whose creation was answered and that are missing at the end of their store.
        oldest_lost_s: how long before the kill the oldest lost message was acknowledged, in seconds.
        had: lost messages that the slave had when its master was killed.
        twice: number of messages stored more than once, although each was sent once.
        unknown: number of stored messages that were never sent.
        seeds: the seeds of the counted runs.
        sending_s: how long the senders sent, in seconds.
        took_s: the wall time of all kills.
        back_s: for each start of the killed broker, the time until it accepted messages again.
    """

    mode: str
    kills: int = 0
    acknowledged: int = 0
    lost: list[int] = field(default_factory=list)
    lost_topics: list[str] = field(default_factory=list)
    oldest_lost_s: float = 0.0
    had: int = 0
    twice: int = 0
    unknown: int = 0
    sending_s: float = 0.0
    took_s: float = 0.0
    back_s: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another run of the same mode, which ran at the same time."""
        self.kills += other.kills
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.lost_topics += other.lost_topics
        self.oldest_lost_s = max(self.oldest_lost_s, other.oldest_lost_s)
        self.had += other.had
        self.twice += other.twice
        self.unknown += other.unknown
        self.sending_s += other.sending_s
        self.took_s = max(self.took_s, other.took_s)
        self.back_s += other.back_s
        self.seeds += other.seeds


class Acknowledged(NamedTuple):
    """Time and place of a stored message, from its answer, and the number of kills before it."""

    at_s: float
    kills: int
    queue_id: int
    offset: int


class Run:
    """One run of a mode on its own servers; adds its counts to ``tally``."""

    def __init__(self, place: Place, rate: int, source: random.Random, tally: Tally) -> None:
        self._place = place
        self._mode = MODES[tally.mode]
        self._rate = rate
        self._random = source
        self._numbers = count()
        self._acknowledged: dict[int, Acknowledged] = {}
        self._unchecked: list[int] = []
        self._topics: list[str] = []
        # The slave's queue ends after each kill.
        self._slave_ends: list[list[int]] = []
        self._places: dict[MessageQueue, int] = {}
        self._sending = False
        self._kills = 0
        self._killed_s = self._started_s = 0.0
        self.tally = tally

    async def run(self, kills: int) -> None:
        """Run the load with this many kills."""
        await self._create(TOPIC)
        for number in range(kills + 1):
            # A new producer each time: an old one would request the route of the lost broker twice a second.
            async with Producer(
                "kills", name_servers=self._place.name_server, retries=0, timeout=2
            ) as producer:
                await self._until_taken(producer)
                if number:
                    self.tally.back_s.append(time.monotonic() - self._started_s)
                    await self._check()
                    self.tally.kills += 1
                if number < kills:
                    await self._kill_one(producer)
        await self._audit()

    async def _kill_one(self, producer: Producer) -> None:
        """Send for a while, kill a broker under the load, and start it again."""
        victim = self._random.choice(self._mode.victims)
        turn = self._kills % TURNS if self._mode.power_lost else -1
        loaded_s = self._random.uniform(*(LONGER_S if turn == LONGER else UNDER_LOAD_S))
        self._sending = True
        sending = [asyncio.create_task(self._send(producer)) for _ in range(SENDERS)]
        if self._mode.power_lost:
            sending.append(asyncio.create_task(self._create_meanwhile(f"made-{self._kills}")))
        await asyncio.sleep(loaded_s)
        if turn == CLEAN_STOP:
            await self._place.term(victim)
        else:
            self._place.kill(victim)
        self._killed_s = time.monotonic()
        self._sending = False
        # A send in flight ends by itself, since its answer may already have arrived.
        await asyncio.gather(*sending)
        self.tally.sending_s += loaded_s
        if self._mode.power_lost:
            self._place.lose_power(victim)
        if self._mode.may_lose:
            self._slave_ends.append(await self._settled_ends(SLAVE))
        if self._mode.disk_lost:
            self._place.empty(victim)
        self._place.launch(victim)
        self._started_s = time.monotonic()

    async def _create(self, topic: str) -> None:
        async with Admin(self._place.name_server, timeout=ASKED_MS / 1000) as admin:
            await admin.topics.create(topic, queues=QUEUES)
        self._topics.append(topic)

    async def _create_meanwhile(self, topic: str) -> None:
        with contextlib.suppress(OrbitError):
            await self._create(topic)

    async def _settled_ends(self, broker: str) -> list[int]:
        """The end of each queue at a broker, once it does not grow any more."""
        before: list[int] = []
        while (ends := await self._ends(broker)) != before:
            before = ends
            await asyncio.sleep(SETTLED_S)
        return ends

    async def _ends(self, broker: str) -> list[int]:
        address = str(self._place.seats[broker].bound)
        ends = []
        for queue_id in range(QUEUES):
            request = GetMaxOffsetRequest(topic=TOPIC, queue_id=queue_id).command()
            answer = await self._place.client.request(address, request, ASKED_MS)
            ends.append(GetMaxOffsetResponse.from_ext(answer.ext).offset)
        return ends

    async def _send(self, producer: Producer) -> None:
        due = time.monotonic() + self._random.random() * SENDERS / self._rate
        while self._sending:
            await self._send_one(producer)
            due = max(due + SENDERS / self._rate, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _send_one(self, producer: Producer) -> bool:
        number = next(self._numbers)
        with contextlib.suppress(OrbitError):
            result = await producer.send(Message(TOPIC, str(number).ljust(BODY_BYTES)))
            if result.status is SendStatus.SEND_OK:
                self._unchecked.append(number)
                self._acknowledged[number] = Acknowledged(
                    time.monotonic(), self._kills, result.queue.queue_id, result.queue_offset
                )
                return True
        return False

    async def _until_taken(self, producer: Producer) -> None:
        """Wait until all servers run, are linked, and a message is acknowledged."""
        deadline = time.monotonic() + LINKED_S
        await self._place.until_registered(*self._mode.brokers)
        while not await self._send_one(producer):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no message is taken {LINKED_S:.0f} s after the start")
            await asyncio.sleep(0.02)

    async def _check(self) -> None:
        """Read the messages stored since the last check."""
        self._kills += 1
        self.tally.acknowledged += len(self._unchecked)
        missing = self._count_lost(self._unchecked, await self._read(self._places))
        self._unchecked.clear()
        if missing:
            oldest_s = min(self._acknowledged[number].at_s for number in missing)
            self.tally.oldest_lost_s = max(self.tally.oldest_lost_s, self._killed_s - oldest_s)

    async def _audit(self) -> None:
        """Read all messages: a kill may lose messages that survived an earlier kill."""
        self._count_lost(self._acknowledged, found := await self._read({}))
        self.tally.twice += sum(times - 1 for times in found.values())
        highest = next(self._numbers)
        self.tally.unknown += sum(number > highest for number in found)
        # Ask the broker, since a name server keeps every topic that was registered.
        address = str(self._place.seats[MASTER].bound)
        answer = await self._place.client.request(
            address, Command(RequestCode.GET_ALL_TOPIC_CONFIG), ASKED_MS
        )
        known = json.loads(answer.body)["topicConfigTable"]
        self.tally.lost_topics += [topic for topic in self._topics if topic not in known]

    def _count_lost(self, expected: Iterable[int], found: Mapping[int, int]) -> list[int]:
        known = set(self.tally.lost)
        missing = [number for number in expected if number not in found and number not in known]
        self.tally.lost += missing
        if self._mode.may_lose:
            self.tally.had += sum(self._slave_had(self._acknowledged[number]) for number in missing)
        return missing

    def _slave_had(self, message: Acknowledged) -> bool:
        """Whether the slave had the message at every kill since, so that no kill may lose it."""
        return all(message.offset < ends[message.queue_id] for ends in self._slave_ends[message.kills :])

    async def _read(self, places: Mapping[MessageQueue, int]) -> dict[int, int]:
        """For each message stored after these offsets, how often it is stored."""
        found: dict[int, int] = {}
        consumer = PullConsumer(
            "kills_audit", name_servers=self._place.name_server, consume_from=ConsumeFrom.FIRST
        )
        async with consumer, asyncio.timeout(READ_S):
            queues = await consumer.queues(TOPIC)
            consumer.assign(queues)
            ends = {queue: await consumer.max_offset(queue) for queue in queues}
            for queue in queues:
                # The loss of a disk may have moved the queue's end back.
                await consumer.seek(queue, min(places.get(queue, 0), ends[queue]))
            while any([await consumer.position(queue) < end for queue, end in ends.items()]):
                for message in await consumer.poll(4096):
                    number = int(message.body)
                    found[number] = found.get(number, 0) + 1
            self._places = ends
        return found


async def run(
    mode: str, kills: int, rate: int, seed: int, folder: Path, *, tell: bool = False, planted: str = ""
) -> Tally:
    """Run one mode, from the start of its servers to their end.

    Args:
        tell: whether to print interim results.
        planted: a bug of the brokers, see :meth:`benchmarks.faults.nursery.Nursery.start`.
    """
    wanted = MODES[mode]
    tally = Tally(mode, seeds=[seed])
    source = random.Random(seed)
    began = time.monotonic()
    preload = library(folder) if wanted.power_lost else None
    with nursery(preload, planted) as servers:
        while tally.kills < kills:
            store = folder / f"{mode}-{seed}"
            placed = Place(
                servers, store, names=wanted.brokers, settings=wanted.settings, forgetful=wanted.power_lost
            )
            async with placed as place:
                await Run(place, rate, source, tally).run(min(KILLS_A_STORE, kills - tally.kills))
            shutil.rmtree(store)
            tally.took_s = time.monotonic() - began
            if tell:
                print(" | ".join(row(tally)), flush=True)
    return tally


def run_apart(mode: str, kills: int, rate: int, seed: int) -> Tally:
    """Run one mode in a separate process, with data in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-kills-") as folder:
        return asyncio.run(run(mode, kills, rate, seed, Path(folder), tell=True))


def run_at_once(mode: str, kills: int, rate: int, seeds: Iterable[int]) -> Tally:
    """Divide the kills among several runs, one for each seed, each with its own servers and the whole
    rate.
    """
    chosen = list(seeds)
    shares = [kills // len(chosen) + (number < kills % len(chosen)) for number in range(len(chosen))]
    whole = Tally(mode)
    # Spawned, not forked: each run has its own event loop.
    with ProcessPoolExecutor(len(chosen), multiprocessing.get_context("spawn")) as pool:
        for tally in pool.map(run_apart, repeat(mode), shares, repeat(rate), chosen):
            whole.add(tally)
    return whole


def failures(tally: Tally) -> list[str]:
    """The promises that were broken."""
    found = []
    if tally.lost and not MODES[tally.mode].may_lose:
        found.append(f"{len(tally.lost)} acknowledged messages are lost, the first is {tally.lost[0]}")
    if tally.lost_topics:
        found.append(f"{len(tally.lost_topics)} topics are lost, the first is {tally.lost_topics[0]}")
    if tally.had:
        found.append(f"{tally.had} acknowledged messages are lost that the slave had")
    if tally.twice:
        found.append(f"{tally.twice} messages are stored twice")
    if tally.unknown:
        found.append(f"{tally.unknown} messages are there that nobody sent")
    return found


def row(tally: Tally) -> list[str]:
    """The cells of the mode's row in the table."""
    back = sorted(tally.back_s)
    return [
        tally.mode,
        str(tally.kills),
        f"{tally.acknowledged:,}",
        f"{tally.acknowledged / max(0.001, tally.sending_s):,.0f}",
        str(len(tally.lost)),
        f"{tally.oldest_lost_s * 1000:.0f} ms" if tally.lost else "",
        f"{back[len(back) // 2]:.2f}, {back[-1]:.2f} s" if back else "",
        f"{tally.seeds[0]}-{tally.seeds[-1]}",
        f"{tally.took_s:.0f} s",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE", help="all by default")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second (5000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at-once", type=int, default=1, help="so many seeds at the same time, sharing the kills"
    )
    parser.add_argument("--record", action="store_true", help="add the outcome to benchmarks/results")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.at_once)
    tallies = []
    for mode in options.modes or MODES:
        tallies.append(run_at_once(mode, options.kills, options.rate, seeds))
        if options.record:
            add(tallies[-1])
    print(table(HEADINGS[:-1], [row(tally) for tally in tallies]))
    wrong = [f"{tally.mode}, seeds {seeds}: {text}" for tally in tallies for text in failures(tally)]
    if wrong:
        sys.exit("\n".join(wrong))


def add(tally: Tally) -> None:
    """Add a run to the record, in place of the last run of its mode."""
    path = ROOT / "benchmarks" / "results" / f"{NAME}.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    place = machine()
    where = f"{place['taken']}, {commit()}, {place['cpus']} CPUs, load {place['load_before']:.1f}"
    content = asdict(tally) | {"lost": tally.lost[:NAMED]}
    del content["back_s"]
    runs = [one for one in runs if one["mode"] != tally.mode]
    runs.append({**content, "cells": [*row(tally), where], "failures": failures(tally)})
    keep(NAME, page(runs), {"record": record(short=False), "runs": runs})


def page(runs: list[dict[str, Any]]) -> str:
    """The record's runs as Markdown."""
    wrong = [f"- {one['mode']}, seeds {one['seeds']}: {text}" for one in runs for text in one["failures"]]
    parts = [
        "# Brokers killed again and again",
        "Written by `python -m benchmarks.faults.kills --record`, the last run of each mode; what a "
        "mode is and promises stands at the beginning of `benchmarks/faults/kills.py`.",
        table(HEADINGS, [one["cells"] for one in runs]),
        "\n".join(wrong) if wrong else "No promise was broken.",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
