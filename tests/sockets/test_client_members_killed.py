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

from orbitmq import AssignedConsumer, Message, MessageQueue, Producer
from orbitmq.admin import Admin
from orbitmq.errors import OrbitError
from orbitmq.runtime import system_runtime
from orbitmq.testing import running_cluster
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SECONDS = float(os.environ.get("ORBITMQ_KILL_SECONDS", "6"))
KILL_EVERY_S = min(5.0, SECONDS / 4)
RATE = 2000 if SECONDS > 60 else 500
MEMBERS, QUEUES = 3, 8
# The lock of an ordered consumer that was killed is free after a minute (LK-01).
WAIT_S = {"ordered": 100}
# How long a popped message is its member's, and how many a member has at most: what it may hold, and one more
# pop of each of the two topics.
INVISIBLE_S, IN_FLIGHT = 5, 96 + 2 * 32
SOURCE = str(Path(__file__).resolve().parents[2] / "src")

# Notes each message it has handled in one write, which the kernel has when the process is killed behind it.
MEMBER = """
import asyncio, os, sys, time
from orbitmq import ConsumeFrom, Consumer, PullConsumer
from orbitmq.client.consumer.allocation import ByBroker

name_server, way, path, invisible_s = sys.argv[1:]
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

async def main():
    options = dict(name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    if way == "pull":
        async with PullConsumer("members", **options) as consumer:
            consumer.subscribe("killed")
            while True:
                note(await consumer.poll(16, timeout_ms=500), time.monotonic())
    if way.startswith("popped"):
        options.update(allocate=ByBroker(), pop_invisible_s=int(invisible_s))
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
    command = [sys.executable, "-c", MEMBER, name_server, way, str(path), str(INVISIBLE_S)]
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
    """All that was noted whole, as it was."""
    if not path.exists():
        return []
    fields = [line.split() for line in path.read_text().split("\n")[:-1]]
    return [Note(float(a), float(b), *map(int, rest)) for a, b, *rest in fields]


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
def test_killed_members_lose_nothing(tmp_path: Path, way: str) -> None:
    path = tmp_path / "handled"
    with running_cluster(str(tmp_path / "cluster"), brokers=1) as cluster:
        changes, sent = asyncio.run(asyncio.wait_for(_load(cluster.name_server, way, path), SECONDS + 300))
    found = handled(path)
    times: dict[int, list[Note]] = defaultdict(list)
    for note in found:
        times[note.number].append(note)
    assert set(times) == set(range(sent))
    if way.endswith("ordered"):
        check_order(found)
    again = [pair for deliveries in times.values() for pair in pairwise(deliveries)]
    kills = len(changes) // 2
    if way.startswith("popped"):
        bound = kills * IN_FLIGHT
        killed = {change.killed for change in changes}
        assert all(first.process in killed for first, _ in again)
    else:
        bound = kills * RATE * 5
        for _, second in again:
            # Its new owner began where the group was, at the last change of members or, if that was only a
            # moment ago, at the one before.
            before = [change.committed[second.queue_id] for change in changes if change.at <= second.ended]
            assert second.offset >= min(before[-2:], default=-1), (second, before)
    print(f"{way}: {sent} messages, {kills} members killed, {len(again)} came twice, at most {bound} may")
    assert kills
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


async def _load(name_server: str, way: str, path: Path) -> tuple[list[Change], int]:
    async with Admin(name_server) as admin:
        await admin.create_topic("killed", queues=QUEUES)
        (broker,) = await admin.cluster_list()
    if way.startswith("popped"):
        await _let_pop(broker.address)
    members = [member(name_server, way, path) for _ in range(MEMBERS)]
    changes: list[Change] = []
    try:
        async with Producer("pg", name_servers=name_server, timeout_ms=60_000) as producer:
            sending = asyncio.create_task(_send(producer))
            async with AssignedConsumer("members", name_servers=name_server) as reader:
                queues = await reader.queues("killed")
                await _until(lambda: len(handled(path)) > 100, 30)
                while not sending.done():
                    await asyncio.sleep(KILL_EVERY_S / 2)
                    victim = members.pop(0)
                    victim.send_signal(signal.SIGKILL)
                    victim.wait()
                    changes.append(Change(time.monotonic(), await _committed(reader, queues), victim.pid))
                    await asyncio.sleep(KILL_EVERY_S / 2)
                    changes.append(Change(time.monotonic(), await _committed(reader, queues)))
                    members.append(member(name_server, way, path))
            sent = await sending
            await _until(lambda: len({note.number for note in handled(path)}) == sent, WAIT_S.get(way, 30))
            await asyncio.sleep(1)
        return changes, sent
    finally:
        for process in members:
            process.kill()
            process.wait()


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


async def _send(producer: Producer) -> int:
    begun, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < SECONDS:
        due = min(RATE // 4, int(passed * RATE) - sent)
        await asyncio.gather(*(producer.send(Message("killed", str(sent + n))) for n in range(due)))
        sent += due
        await asyncio.sleep(0.01)
    return sent


async def _committed(reader: AssignedConsumer, queues: list[MessageQueue]) -> dict[int, int]:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OrbitError):  # on a starved machine
                return {queue.queue_id: await reader.committed(queue) for queue in queues}


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    for _ in range(int(seconds * 10)):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the condition did not come true")
