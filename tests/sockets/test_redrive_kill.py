"""A redrive whose broker is killed again and again, and the command that asks for it too: nothing doubles.

``ORBITMQ_REDRIVE=1000000`` redrives so many with 50 kills; ``ORBITMQ_SEED`` chooses their moments.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from orbitmq import Message, Producer, PullConsumer
from orbitmq.admin import Admin, RedriveJob
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import OrbitError
from orbitmq.message.reserved import dead_letter_topic

COUNT = int(os.environ.get("ORBITMQ_REDRIVE", "10000"))
SEED = int(os.environ.get("ORBITMQ_SEED", "7"))
KILLS = max(5, min(50, COUNT // 20_000))
# So that it is still at work when the last kill comes.
RATE = max(4000, COUNT // KILLS)
SECONDS = 120 + COUNT / 2000
# Of a start, on a machine that does other things at the same time.
READY_S = 300.0
SOURCE = str(Path(__file__).resolve().parents[2] / "src")


async def fill(servers: str) -> None:
    """Dead letters as RocketMQ makes them, sent by hand."""
    dead = dead_letter_topic("g")
    async with Producer("pg", name_servers=servers, timeout=60) as producer, Admin(servers) as admin:
        await admin.topics.create(dead, queues=1)
        await admin.topics.create("orders", queues=4)
        for first in range(0, COUNT, 500):
            numbers = range(first, first + 500)
            await producer.send_batch(
                [Message(dead, b"%d" % n, properties={"DLQ_ORIGIN_TOPIC": "orders"}) for n in numbers]
            )


async def asked(servers: str, life_s: float | None) -> None:
    """Run ``orbitmq dlq redrive``, and kill it after a time. It is refused while a redrive runs."""
    command = [sys.executable, "-m", "orbitmq", "dlq", "redrive", "g", "--rate", str(RATE), "-n", servers]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(life_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def status(servers: str) -> RedriveJob | None:
    """The redrive, ``None`` while its broker is not there, or nobody has asked for one."""
    try:
        async with Admin(servers) as admin:
            return next(iter((await admin.dead_letters.redrives("g")).whole()), None)
    except OrbitError:
        return None


async def reaches(servers: str, place: int) -> None:
    """Return when the redrive looks at this dead letter, or has ended; it may have to look back first."""
    async with asyncio.timeout(SECONDS):
        while (job := await status(servers)) is None or (
            job.state == "running" and COUNT - job.remaining < place
        ):
            if job is None:
                await asked(servers, life_s=None)  # no command was heard
            await asyncio.sleep(0.05)


async def arrived(servers: str) -> Counter[int]:
    found: Counter[int] = Counter()
    async with PullConsumer("reader", name_servers=servers, auto_commit=False) as consumer:
        queues = await consumer.queues("orders")
        consumer.assign(queues)
        await consumer.seek_to_begin(*queues)
        quiet = 0
        while quiet < (2 if len(found) >= COUNT else 15):
            messages = await consumer.poll(1000, timeout=1)
            found.update(int(message.body) for message in messages)
            quiet = 0 if messages else quiet + 1
    return found


async def redriven_through_kills(folder: Path) -> tuple[RedriveJob, Counter[int]]:
    chance = random.Random(SEED)
    async with ProcessCluster(brokers=1, root=str(folder), ready_seconds=READY_S) as cluster:
        servers = cluster.name_server
        await fill(servers)
        begun = time.monotonic()
        for place in sorted(chance.randrange(COUNT) for _ in range(KILLS)):
            # The command is killed before it was heard, while its job begins, or ends with its answer; then
            # the broker, at any place of the job, or at any moment while it looks for what it has sent.
            await asked(servers, life_s=chance.uniform(0.1, 1.0))
            if chance.random() < 0.8:
                await reaches(servers, place)
            else:
                await asyncio.sleep(chance.random())
            await cluster.stop_broker("broker-a", kill=True)
            await cluster.start_broker("broker-a")
        passed_s = time.monotonic() - begun
        print(f"{KILLS} kills in {passed_s:.0f} s, seed {SEED}: the last at dead letter {place} of {COUNT}")
        async with asyncio.timeout(SECONDS):
            while (job := await status(servers)) is None or job.state == "running":
                if job is None:
                    await asked(servers, life_s=None)
                await asyncio.sleep(0.1)
        # What an earlier job of the group has sent is passed over.
        async with Admin(servers) as admin:
            await admin.dead_letters.redrive("g")
        while (last := await status(servers)) is None or last.state == "running":
            await asyncio.sleep(0.1)
        assert (last.sent, last.passed_over) == (0, COUNT)
        return job, await arrived(servers)


@pytest.mark.slow
@pytest.mark.behaviour("DQ-08")
def test_each_dead_letter_arrives_once_though_broker_and_client_are_killed(tmp_path: Path) -> None:
    job, found = asyncio.run(redriven_through_kills(tmp_path))
    assert job.state == "done"
    assert {number: count for number, count in found.items() if count != 1} == {}
    assert sorted(found) == list(range(COUNT))
