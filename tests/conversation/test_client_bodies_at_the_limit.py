"""Bodies of exactly the limit: a body that compression would make longer is sent uncompressed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.conversation.scripted import producer_of

from orbitmq import ConsumeFrom, Consumer, Message, ReceivedMessage, SendStatus, TransactionState
from orbitmq.message.sysflag import CompressionType
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode

LIMIT = 4 * 1024 * 1024
KINDS = pytest.mark.parametrize("kind", [CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD])


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.behaviour("SK-22")
@KINDS
@pytest.mark.parametrize("size", [4096, 65_536, 65_537, LIMIT])
async def test_what_compression_makes_longer_goes_as_it_is(
    world: Any, size: int, kind: CompressionType
) -> None:
    async with producer_of(world, compression=kind) as producer:
        await producer.send(Message("t", noise(size)))
        await producer.send(Message("t", bytes(size)))
    plain, packed = world.brokers["a"].requests(RequestCode.SEND_MESSAGE_V2)
    assert plain.body == noise(size)
    assert plain.ext["f"] == "0"
    assert len(packed.body) < size
    assert packed.ext["f"] == str(kind << 8 | 1)


@pytest.mark.behaviour("SK-22")
@pytest.mark.orbitmq(settings={"mappedFileSizeCommitLog": str(32 * 1024 * 1024)})
async def test_a_body_at_the_limit_takes_every_way(orbitmq_world: World) -> None:
    world = orbitmq_world
    body = noise(LIMIT)
    properties = {"own": "x" * 30_000}
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)
    state = TransactionState.COMMIT
    async with world.transaction_producer("pg", check=lambda _: state) as producer:
        for options in ({}, {"delay_level": 1}, {"delay": 1.5}):
            result = await producer.send(Message("t", body, properties=properties, **options))
            assert result.status is SendStatus.SEND_OK
        await producer.send_in_transaction(Message("t", body, properties=properties), lambda _: state)
    got: list[tuple[int, int]] = []
    done = asyncio.Event()
    consumer = Consumer(
        "g", name_servers=world.name_server, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    )

    async def handle(message: ReceivedMessage) -> None:
        assert message.body == body
        got.append((message.queue_offset, message.reconsume_times))
        if message.reconsume_times < 1:
            message.retry(delay_level=1)
        elif sum(1 for _, times in got if times) == 4:
            done.set()

    async with consumer:
        consumer.subscribe("t")
        running = asyncio.ensure_future(consumer.run(handle))
        async with asyncio.timeout(120):
            await done.wait()
    await running
