"""A broker whose machine loses power at any time: what it acknowledged is there again."""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from dataclasses import dataclass

import pytest
from tests.seeds import seeds

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.record import iter_records
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendMessageV2Request

KIB = 1024
TOPICS = [f"topic-{number}" for number in range(6)]
# Offsets are saved every 5 s.
SAVED_MS = 5000 + 100


def settings(port: int) -> BrokerConfig:
    return BrokerConfig(
        listen_port=port,
        store_path_root_dir="/store",
        mapped_file_size_commit_log=256 * KIB,
        mapped_file_size_consume_queue=2000,
    )


@dataclass
class Commit:
    """Commits of one connection are applied in the order they were asked for."""

    offset: int
    answered_ms: float = math.inf


class Workload:
    """Senders that also commit offsets, and what they were promised."""

    def __init__(self, runtime: SimulatedRuntime, address: str, dice: random.Random) -> None:
        self.client = RemotingClient(runtime)
        self.clock = runtime.clock
        self.address = address
        self.dice = dice
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
        self.commits: dict[str, list[Commit]] = defaultdict(list)

    async def sender(self, name: int) -> None:
        for number in range(100_000):
            topic = self.dice.choice(TOPICS)
            body = f"{name}-{number}-".encode() + b"x" * self.dice.randrange(2000)
            header = SendMessageV2Request(
                producer_group="pg",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=2,
                queue_id=self.dice.randrange(2),
                sys_flag=0,
                born_timestamp=0,
                flag=0,
            )
            try:
                answer = await self.client.request(self.address, header.command(body), 10_000)
                if answer.code == ResponseCode.SUCCESS:
                    queue = self.acknowledged.setdefault((topic, header.queue_id), {})
                    queue[int(answer.ext["queueOffset"])] = body
                await self.commit(topic, number)
            except TransportError:
                return
            await asyncio.sleep(self.dice.random() / 20)

    async def commit(self, topic: str, offset: int) -> None:
        ext = {"consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
        request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        commit = Commit(offset)
        self.commits[topic].append(commit)
        answer = await self.client.request(self.address, request, 10_000)
        if answer.code == ResponseCode.SUCCESS:
            commit.answered_ms = self.clock.now_ms()

    def possible(self, topic: str, crashed_ms: int) -> set[int] | None:
        """The values that may be on the disk: of the last commit that is old enough, and of all after it."""
        commits = self.commits[topic]
        old = [place for place, commit in enumerate(commits) if commit.answered_ms < crashed_ms - SAVED_MS]
        return {commit.offset for commit in commits[old[-1] :]} if old else None


async def stored(client: RemotingClient, address: str, topic: str, queue_id: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while True:
        header = PullMessageRequest(
            consumer_group="TOOLS_CONSUMER",
            topic=topic,
            queue_id=queue_id,
            queue_offset=len(found),
            max_msg_nums=100,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        answer = await client.request(address, header.command(), 10_000)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
            return found
        for record in iter_records(answer.body):
            assert record.queue_offset == len(found)
            found[record.queue_offset] = record.body


@pytest.mark.parametrize("orbitmq_seed", seeds(6))
async def test_what_was_acknowledged_is_there_after_power_loss(
    runtime: SimulatedRuntime, orbitmq_seed: int
) -> None:
    dice = random.Random(orbitmq_seed)
    broker = Broker(runtime, settings(10911))
    await broker.start()
    work = Workload(runtime, broker.address, dice)
    senders = [asyncio.ensure_future(work.sender(name)) for name in range(4)]
    await asyncio.sleep(0.5 + 12 * dice.random())
    crashed_ms = runtime.clock.now_ms()
    runtime.files.crash(keep=dice.choice(list(Keep)))
    for sender in senders:
        sender.cancel()
    await asyncio.gather(*senders, return_exceptions=True)

    async with Broker(runtime, settings(10921)) as again:
        assert work.acknowledged
        for (topic, queue_id), promised in work.acknowledged.items():
            found = await stored(work.client, again.address, topic, queue_id)
            assert promised.items() <= found.items(), (topic, queue_id)
        for topic in work.commits:
            possible = work.possible(topic, crashed_ms)
            if possible is not None:
                assert again.services.offsets.query("TOOLS_CONSUMER", topic, 0) in possible, topic
        await work.client.close()
