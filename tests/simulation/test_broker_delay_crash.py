"""Delayed and timer messages on a machine that loses power again and again: each is delivered once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.seeds import seeds

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.properties import properties_text
from orbitmq.message.record import iter_records
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.send import SendMessageV2Request

KIB = 1024
TOPICS = ("orders", "bills")
CRASHES = 3


def settings(port: int, flush: str) -> BrokerConfig:
    return BrokerConfig(
        listen_port=port,
        store_path_root_dir="/store",
        mapped_file_size_commit_log=64 * KIB,
        mapped_file_size_consume_queue=2000,
        flush_disk_type=flush,
        message_delay_level="1s 2s 5s",
    )


class Senders:
    """Clients that send delayed messages, plain ones between them, and a delayed one twice now and then."""

    def __init__(self, runtime: SimulatedRuntime, address: str, dice: random.Random, run: int) -> None:
        self.client = RemotingClient(runtime)
        self.runtime = runtime
        self.address = address
        self.dice = dice
        self.run = run
        self.sent: Counter[bytes] = Counter()
        self.acknowledged: Counter[bytes] = Counter()

    async def work(self, name: int) -> None:
        for number in range(100_000):
            body = f"{self.run}-{name}-{number} ".encode() + b"x" * self.dice.randrange(500)
            properties = {"REAL_TOPIC": "orders"} if self.dice.random() < 0.1 else {}
            delayed = self.dice.random() < 0.7
            if delayed:
                if self.dice.random() < 0.5:
                    properties["DELAY"] = str(self.dice.choice([1, 1, 1, 2, 3]))
                else:
                    properties["TIMER_DELAY_MS"] = str(self.dice.randrange(100, 5000))
            if self.dice.random() < 0.8:
                properties["UNIQ_KEY"] = body.split()[0].decode()
            header = SendMessageV2Request(
                producer_group="pg",
                topic=self.dice.choice(TOPICS),
                default_topic="TBW102",
                default_topic_queue_nums=2,
                queue_id=self.dice.randrange(2),
                sys_flag=0,
                born_timestamp=self.runtime.clock.now_ms(),
                flag=0,
                properties=properties_text(properties),
            )
            try:
                for _ in range(2 if delayed and self.dice.random() < 0.1 else 1):
                    self.sent[body] += 1
                    answer = await self.client.request(self.address, header.command(body), 10_000)
                    if answer.code == ResponseCode.SUCCESS:
                        self.acknowledged[body] += 1
            except TransportError:
                return
            await asyncio.sleep(self.dice.random() / 20)


def delivered(broker: Broker) -> Counter[bytes]:
    store = broker.services.store
    found: Counter[bytes] = Counter()
    for topic in TOPICS:
        for queue_id in range(2):
            at = store.min_offset(topic, queue_id)
            while at < store.max_offset(topic, queue_id):
                page = store.get(topic, queue_id, at, 1000)
                found.update(record.body for record in iter_records(page.body))
                at = page.next_offset
    return found


@pytest.mark.behaviour("DL-09")
@pytest.mark.parametrize("orbitmq_seed", seeds(8))
async def test_each_delayed_message_is_delivered_once(runtime: SimulatedRuntime, orbitmq_seed: int) -> None:
    dice = random.Random(orbitmq_seed)
    flush = dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
    sent: Counter[bytes] = Counter()
    acknowledged: Counter[bytes] = Counter()
    for run in range(CRASHES):
        # Another port: the machine is another one, nothing that the dead broker still does reaches the disk.
        broker = Broker(runtime, settings(10911 + 10 * run, flush))
        await broker.start()
        senders = Senders(runtime, broker.address, dice, run)
        tasks = [asyncio.ensure_future(senders.work(name)) for name in range(3)]
        await asyncio.sleep(1 + 8 * dice.random())
        runtime.files.crash(keep=dice.choice(list(Keep)))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await senders.client.close()
        sent += senders.sent
        acknowledged += senders.acknowledged
    async with Broker(runtime, settings(10991, flush)) as broker:
        await asyncio.sleep(7)
        found = delivered(broker)
    assert found
    assert found <= sent, found - sent
    if flush == "SYNC_FLUSH":
        assert acknowledged <= found, acknowledged - found
