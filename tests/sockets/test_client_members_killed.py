"""Members of a group that are killed in the middle of their work: nothing is lost, little comes twice.

``ORBITMQ_KILL_SECONDS=120`` runs it longer, as a measurement: it prints what came twice, and the bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from orbitmq import Message, MessageQueue, Producer, PullConsumer
from orbitmq.admin import Admin
from orbitmq.errors import OrbitError
from orbitmq.runtime import system_runtime
from orbitmq.testing import running_cluster
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SECONDS = float(os.environ.get("ORBITMQ_KILL_SECONDS", "6"))
KILL_EVERY_S = min(5.0, SECONDS / 4)
RATE = 2000 if SECONDS > 60 else 500
# The first ones come when the members have started.
LEAST_KILLS = int(SECONDS / KILL_EVERY_S) - 4 if SECONDS > 60 else 1
MEMBERS, QUEUES = 3, 8
# For what is left when all is sent: on a machine with other work that may be most of it. The lock of an
# ordered consumer that was killed is free after a minute (LK-01); after a fifth of it when the run is short:
# then broker and members count all its times by that.
DRAIN_S = SECONDS + 90
LOCK_LIVES_S = 60 if SECONDS > 60 else 12
# How long a popped message is its member's, and how many a member has at most: what it may hold, and one more
# pop of each of the two topics.
INVISIBLE_S, IN_FLIGHT = 5, 96 + 2 * 32
# Half of that time is left when it is renewed: a process that stands still, because other programs have the
# processors, may lose its messages while it lives.
STALL_S = 1.0
SOURCE = str(Path(__file__).resolve().parents[2] / "src")

# Notes each message it has handled in one write, which the kernel has when the process is killed behind it.
MEMBER = """
import asyncio, os, sys, time
from orbitmq import ConsumeFrom, Consumer, PullConsumer
from orbitmq.client.consumer import group_consumer, queue_locks
from orbitmq.client.consumer.allocation import ByBroker

name_server, way, path, invisible_s, stall_s, lock_lives_s = sys.argv[1:]
queue_locks.TRUSTED_MS = int(lock_lives_s) * 1000 / 2
group_consumer.RENEW_EVERY_S = int(lock_lives_s) / 3
notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(batch, begun):
    for m in batch:
        line = f"{begun} {time.monotonic()} {os.getpid()} {m.queue_id} {m.queue_offset} {m.body.decode()}\\n"
        os.write(notes, line.encode())

async def single(message):
    begun = time.monotonic()
    await asyncio.sleep(0)
    note([message], begun)

async def many(batch):
    begun = time.monotonic()
    await asyncio.sleep(0.001)
    note(batch, begun)

async def note_stalls():
    while True:
        asleep = time.monotonic()
        await asyncio.sleep(0.1)
        if time.monotonic() - asleep > float(stall_s):
            os.write(notes, f"stalled {asleep} {time.monotonic()}\\n".encode())

async def main():
    stalls = asyncio.create_task(note_stalls())
    options = dict(name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    if way == "pull":
        async with PullConsumer("members", **options) as consumer:
            consumer.subscribe("killed")
            while True:
                note(await consumer.poll(16, timeout=0.5), time.monotonic())
    if way.startswith("popped"):
        options.update(allocate=ByBroker(), pop_invisible_for=int(invisible_s))
    async with Consumer("members", ordered="ordered" in way, **options) as consumer:
        consumer.subscribe("killed")
        await (consumer.run(many, batch=16) if way == "batch" else consumer.run(single))

asyncio.run(main())
"""


@dataclass
class Change:
    """A member was killed or is about to join, and how far each queue was then."""

    at: float
    committed: dict[int, int]
    killed: int | None = None


def member(name_server: str, way: str, path: Path) -> subprocess.Popen[bytes]:
    times = map(str, (INVISIBLE_S, STALL_S, LOCK_LIVES_S))
    command = [sys.executable, "-c", MEMBER, name_server, way, str(path), *times]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SOURCE}, stderr=subprocess.DEVNULL)


@dataclass
class Note:
    begun: float
    ended: float
    process: int
    queue_id: int
    offset: int
    number: int


def handled(path: Path) -> list[Note]:
    """What was handled, as far as it was noted whole."""
    return [Note(float(a), float(b), *map(int, rest)) for a, b, *rest in _noted(path) if a != "stalled"]


def stalls(path: Path) -> list[tuple[float, float]]:
    """From when to when members stood still."""
    return [(float(begun), float(ended)) for word, begun, ended, *_ in _noted(path) if word == "stalled"]


def _noted(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.mark.parametrize(
    "way",
    [
        "single",
        "batch",
        "pull",
        "popped",
        pytest.param("popped ordered", marks=pytest.mark.slow),
        pytest.param("ordered", marks=pytest.mark.slow),
    ],
)
def test_killed_members_lose_nothing(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "handled"
    monkeypatch.setattr("orbitmq.broker.clients.queue_locks.LOCK_LIVES_MS", LOCK_LIVES_S * 1000)
    with running_cluster(str(tmp_path / "cluster"), brokers=1) as cluster:
        load = Load(cluster.name_server, way, path)
        asyncio.run(asyncio.wait_for(load.run(), SECONDS + 300))
    found, changes = handled(path), load.changes
    times: dict[int, list[Note]] = defaultdict(list)
    for note in found:
        times[note.number].append(note)
    assert set(times) == set(range(load.sent))
    if way.endswith("ordered"):
        check_order(found)
    again = [pair for deliveries in times.values() for pair in pairwise(deliveries)]
    kills = len(changes) // 2
    bound = kills * RATE * 5
    if way.startswith("popped"):
        bound = kills * IN_FLIGHT
        killed = {change.killed for change in changes}
        of_living = [pair for pair in again if pair[0].process not in killed]
        stood_still = [*load.stalls, *stalls(path)]
        for pair in of_living:
            assert after_a_stall(*pair, stood_still), pair
        print(f"{len(of_living)} came twice because a process stood still for {STALL_S:g} s and more")
        bound += len(of_living)
    else:
        for _, second in again:
            # Its new owner began where the group was, at the last change of members or, if that was only a
            # moment ago, at the one before.
            before = [change.committed[second.queue_id] for change in changes if change.at <= second.ended]
            assert second.offset >= min(before[-2:], default=-1), (second, before)
    print(
        f"{way}: {load.sent} messages, {kills} members killed, {len(again)} came twice, at most {bound} may"
    )
    assert kills >= LEAST_KILLS
    assert len(again) <= bound


def check_order(found: list[Note]) -> None:
    """One member at a time in a queue, and each goes forward only."""
    queues: dict[int, list[Note]] = defaultdict(list)
    for note in sorted(found, key=lambda note: note.begun):
        queues[note.queue_id].append(note)
    for notes in queues.values():
        for one, two in pairwise(notes):
            assert one.ended <= two.begun, (one, two)
            assert one.process != two.process or one.offset < two.offset, (one, two)


def after_a_stall(first: Note, second: Note, stood_still: list[tuple[float, float]]) -> bool:
    """Whether somebody stood still while the first delivery was under way."""
    return any(begun <= second.begun and ended >= first.begun - INVISIBLE_S for begun, ended in stood_still)


class Load:
    """Sends messages to a group, and kills one of its members each ``KILL_EVERY_S``.

    Attributes:
        changes: of the group's members, two for each kill.
        sent: how many messages.
        stalls: from when to when this process, and so the broker in it, stood still.
    """

    def __init__(self, name_server: str, way: str, path: Path) -> None:
        self.name_server, self.way, self.path = name_server, way, path
        self.changes: list[Change] = []
        self.sent = 0
        self.stalls: list[tuple[float, float]] = []
        self._members_work = asyncio.Event()

    async def run(self) -> None:
        async with Admin(self.name_server) as admin:
            await admin.topics.create("killed", queues=QUEUES)
            (broker,) = await admin.brokers.list()
        if self.way.startswith("popped"):
            await _let_pop(broker.address)
        members = [member(self.name_server, self.way, self.path) for _ in range(MEMBERS)]
        watching = asyncio.create_task(self._note_stalls())
        try:
            async with Producer("pg", name_servers=self.name_server, timeout=60) as producer:
                sending = asyncio.create_task(self._send(producer))
                await _until(lambda: len(handled(self.path)) > 100, 120)
                self._members_work.set()
                await self._kill(members, sending)
                await sending
            await _until(self._all_handled, DRAIN_S)
            await asyncio.sleep(1)
        finally:
            watching.cancel()
            for process in members:
                process.kill()
                process.wait()

    async def _kill(self, members: list[subprocess.Popen[bytes]], sending: asyncio.Task[None]) -> None:
        """Kill the oldest member, half the time later begin a new one, until all is sent."""
        async with PullConsumer("members", name_servers=self.name_server) as reader:
            queues = await reader.queues("killed")
            due = time.monotonic()
            while not sending.done():
                due += KILL_EVERY_S
                await asyncio.sleep(due - KILL_EVERY_S / 2 - time.monotonic())
                victim = members.pop(0)
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                self.changes.append(Change(time.monotonic(), await _committed(reader, queues), victim.pid))
                await asyncio.sleep(due - time.monotonic())
                self.changes.append(Change(time.monotonic(), await _committed(reader, queues)))
                members.append(member(self.name_server, self.way, self.path))

    async def _send(self, producer: Producer) -> None:
        """Send until the members have worked for ``SECONDS``: a busy machine starts them slowly."""
        begun, works_since = time.monotonic(), float("inf")
        while (now := time.monotonic()) - works_since < SECONDS:
            if self._members_work.is_set():
                works_since = min(now, works_since)
            due = min(RATE // 4, int((now - begun) * RATE) - self.sent)
            numbers = range(self.sent, self.sent + due)
            await asyncio.gather(*(producer.send(Message("killed", str(number))) for number in numbers))
            self.sent += due
            await asyncio.sleep(0.01)

    def _all_handled(self) -> bool:
        return len({note.number for note in handled(self.path)}) == self.sent

    async def _note_stalls(self) -> None:
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(0.1)
            if time.monotonic() - asleep > STALL_S:
                self.stalls.append((asleep, time.monotonic()))


async def _let_pop(address: str) -> None:
    """As mqadmin setConsumeMode does."""
    client = RemotingClient(system_runtime())
    try:
        body = SetMessageRequestModeRequestBody("killed", "members", MessageRequestMode.POP, 0)
        command = Command(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body.encode())
        answer = await client.request(address, command, 5000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    finally:
        await client.close()


async def _committed(reader: PullConsumer, queues: list[MessageQueue]) -> dict[int, int]:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OrbitError):  # on a starved machine
                return {queue.queue_id: await reader.committed(queue) for queue in queues}


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        await asyncio.sleep(0.5)
    raise AssertionError("the condition did not come true")
