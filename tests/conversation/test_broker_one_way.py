"""One-way sends: they get no response and are stored as soon as other sends."""

from __future__ import annotations

import asyncio

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from orbitmq.wire.headers.send import SendMessageV2Request


async def test_one_way_sends_alone_are_stored_at_once(runtime: SimulatedRuntime) -> None:
    broker = Broker(runtime, BrokerConfig(listen_port=10911, store_path_root_dir="/store"))
    await broker.start()
    client = RemotingClient(runtime)
    header = SendMessageV2Request(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
    )
    # The first send creates the topic; the later ones take the fast path.
    await client.request(broker.address, header.command(b"first"), 5000)
    for _ in range(3):
        await client.oneway(broker.address, header.command(b"more"), 5000)
    await asyncio.sleep(0.1)
    answer = await client.request(broker.address, GetMaxOffsetRequest(topic="T", queue_id=0).command(), 5000)
    assert GetMaxOffsetResponse.from_ext(answer.ext).offset == 4
    await client.close()
    await broker.stop()
