"""A redrive whose broker is killed again and again: each dead letter is in its topic once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from orbitmq import AssignedConsumer, Message, Producer
from orbitmq.admin import Admin
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import OrbitError
from orbitmq.message.reserved import dead_letter_topic
from orbitmq.wire.bodies import Redrive, RedriveRequest, RedriveState

COUNT, KILLS, RATE = 10_000, 5, 4000
SECONDS = 120


async def fill(servers: str) -> None:
    """Dead letters as RocketMQ makes them, sent by hand."""
    dead = dead_letter_topic("g")
    async with Producer("pg", name_servers=servers) as producer, Admin(servers) as admin:
        await admin.create_topic(dead, queues=1)
        await admin.create_topic("orders", queues=4)
        for first in range(0, COUNT, 500):
            numbers = range(first, first + 500)
            await producer.send_batch(
                [Message(dead, b"%d" % n, properties={"DLQ_ORIGIN_TOPIC": "orders"}) for n in numbers]
            )


async def status(servers: str) -> Redrive | None:
    """The redrive, ``None`` while its broker is not there."""
    try:
        async with Admin(servers) as admin:
            return next(iter(await admin.dead_letters.status("g")), None)
    except OrbitError:
        return None


async def arrived(servers: str) -> Counter[int]:
    found: Counter[int] = Counter()
    async with AssignedConsumer("reader", name_servers=servers) as consumer:
        queues = await consumer.queues("orders")
        consumer.assign(queues)
        await consumer.seek_to_begin(*queues)
        while messages := await consumer.poll(1000, timeout_ms=2000):
            found.update(int(message.body) for message in messages)
    return found


async def redriven_through_kills(folder: Path) -> tuple[Redrive, Counter[int]]:
    chance = random.Random(7)
    async with ProcessCluster(brokers=1, root=str(folder)) as cluster:
        servers = cluster.name_server
        await fill(servers)
        async with Admin(servers) as admin:
            await admin.dead_letters.redrive(RedriveRequest("g", rate=RATE))
        for _ in range(KILLS):
            await asyncio.sleep(chance.random())
            await cluster.stop_broker("broker-a", kill=True)
            await cluster.start_broker("broker-a")
        async with asyncio.timeout(SECONDS):
            while (job := await status(servers)) is None or job.state is RedriveState.RUNNING:
                await asyncio.sleep(0.1)
        return job, await arrived(servers)


@pytest.mark.slow
@pytest.mark.behaviour("DQ-08")
def test_each_dead_letter_arrives_once_though_its_broker_is_killed(tmp_path: Path) -> None:
    job, found = asyncio.run(redriven_through_kills(tmp_path))
    assert (job.state, job.sent) == (RedriveState.DONE, COUNT)
    assert {number: count for number, count in found.items() if count != 1} == {}
    assert sorted(found) == list(range(COUNT))
