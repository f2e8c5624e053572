"""Transactions on a machine that loses power: every one ends as its producer says."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.seeds import seeds

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message import property_names
from orbitmq.message.properties import properties_text
from orbitmq.message.record import decode_record, iter_records
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.client import HeartbeatData, ProducerData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageResponse, SendMessageV2Request
from orbitmq.wire.headers.transaction import CheckTransactionStateRequest, EndTransactionRequest

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
KIB = 1024


def settings(port: int) -> BrokerConfig:
    return BrokerConfig(
        listen_port=port,
        store_path_root_dir="/store",
        flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=256 * KIB,
        mapped_file_size_consume_queue=2000,
        transaction_check_interval_ms=5000,
    )


class Producers:
    """Half messages whose bodies begin with what shall become of them: commit or rollback."""

    def __init__(self, runtime: SimulatedRuntime, address: str, dice: random.Random) -> None:
        self.runtime = runtime
        self.address = address
        self.dice = dice
        self.client = RemotingClient(runtime, handle=self._asked)
        self.promised: set[bytes] = set()
        self.ended: set[bytes] = set()

    async def beat(self) -> None:
        body = HeartbeatData("client", [ProducerData("pg")], []).encode()
        await self.client.request(self.address, Command(RequestCode.HEART_BEAT, body=body), 10_000)

    async def run(self, name: int) -> None:
        for number in range(100_000):
            outcome = self.dice.choice(["commit", "rollback"])
            body = f"{outcome} {name}-{number} ".encode() + b"x" * self.dice.randrange(1000)
            try:
                await self._transaction(body)
            except TransportError:
                return
            await asyncio.sleep(self.dice.random() / 20)

    async def _transaction(self, body: bytes) -> None:
        marked = {property_names.TRANSACTION_PREPARED: "true", property_names.PRODUCER_GROUP: "pg"}
        header = SendMessageV2Request(
            producer_group="pg",
            topic="Orders",
            default_topic="TBW102",
            default_topic_queue_nums=2,
            queue_id=self.dice.randrange(2),
            sys_flag=4,
            born_timestamp=self.runtime.clock.now_ms(),
            flag=0,
            properties=properties_text(marked),
        )
        answer = await self.client.request(self.address, header.command(body), 10_000)
        if answer.code != ResponseCode.SUCCESS:
            return
        self.promised.add(body)
        if self.dice.random() < 0.2:
            return  # it dies before it can say how it ended
        sent = SendMessageResponse.from_ext(answer.ext)
        await asyncio.sleep(self.dice.random() / 10)
        end = _end(sent.queue_offset, int(sent.msg_id[16:], 16), body, check=False)
        answer = await self.client.request(self.address, end.command(), 10_000)
        if answer.code == ResponseCode.SUCCESS:
            self.ended.add(body)

    async def _asked(self, _connection: object, command: Command) -> None:
        header = CheckTransactionStateRequest.from_ext(command.ext)
        body = decode_record(command.body).body
        if self.dice.random() < 0.2:
            return
        end = _end(header.tran_state_table_offset, header.commit_log_offset, body, check=True)
        await self.client.oneway(self.address, end.command(), 3000)


def _end(offset: int, physical: int, body: bytes, *, check: bool) -> EndTransactionRequest:
    return EndTransactionRequest(
        producer_group="pg",
        tran_state_table_offset=offset,
        commit_log_offset=physical,
        commit_or_rollback=8 if body.startswith(b"commit") else 12,
        from_transaction_check=check,
        msg_id="unused",
    )


def delivered(broker: Broker) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for queue_id in range(2):
        offset = 0
        while (got := broker.services.store.get("Orders", queue_id, offset, 100)).count:
            found.update(record.body for record in iter_records(got.body))
            offset = got.next_offset
    return found


@pytest.mark.parametrize("orbitmq_seed", seeds(6))
async def test_every_transaction_ends_as_its_producer_says(
    runtime: SimulatedRuntime, orbitmq_seed: int
) -> None:
    dice = random.Random(orbitmq_seed)
    broker = Broker(runtime, settings(10911))
    await broker.start()
    work = Producers(runtime, broker.address, dice)
    await work.beat()
    tasks = [asyncio.ensure_future(work.run(name)) for name in range(4)]
    await asyncio.sleep(1 + 20 * dice.random())
    runtime.files.crash(keep=dice.choice(list(Keep)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await broker._lifecycle.kill()

    async with Broker(runtime, settings(10921)) as again:
        work.address = again.address
        tasks = [asyncio.ensure_future(work.run(name)) for name in range(10, 13)]
        for _ in range(3):
            await work.beat()
            await asyncio.sleep(2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(10):
            await work.beat()
            await asyncio.sleep(10)
        found = delivered(again)
        assert work.promised
        wanted = {body for body in work.promised if body.startswith(b"commit")}
        assert wanted <= found.keys()
        assert not [body for body in found if body.startswith(b"rollback")]
        twice = {body for body, count in found.items() if count > 1}
        assert not twice & work.ended
        high = again.services.store.max_offset(HALF, 0)
        assert again.services.offsets.query(GROUP, HALF, 0) == high
        await work.client.close()
