"""The memory that a waiting push consumer needs in the broker."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from tests.conversation.grpc_rpc import RpcClient, receiving

from orbitmq.broker.broker import Broker

FIRST, MORE = 60, 200
# The measured value is 2,311; uncompiled modules need some 400 more. It counts objects only, no buffers or
# sockets.
MOST_BYTES = 2800
BROKER = [tracemalloc.Filter(True, f"*/orbitmq/{room}/*") for room in ("gateway", "broker")]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def kept_bytes() -> int:
    """The bytes that gateway and broker have allocated and not freed."""
    gc.collect()
    kept = tracemalloc.take_snapshot().filter_traces(BROKER)
    return sum(each.size for each in kept.statistics("filename"))


@pytest.mark.behaviour("GW-61")
async def test_a_waiting_consumer_keeps_little(grpc_broker: Broker, rpc: RpcClient, traced: None) -> None:
    await rpc.route()

    async def wait(numbers: range) -> None:
        for number in numbers:
            rpc.client_id = f"waiting-{number}"
            await rpc.start()
            receiving(rpc, wait_ms=20_000, renew=True, timeout="60S")
        await asyncio.sleep(0.1)

    await wait(range(FIRST))
    before = kept_bytes()
    await wait(range(FIRST, FIRST + MORE))
    each = (kept_bytes() - before) / MORE
    assert each <= MOST_BYTES
