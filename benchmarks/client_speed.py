"""How fast the Python clients are, in messages per second and CPU of this process per message.

    python benchmarks/client_speed.py [messages]

Starts a broker process of its own with ASYNC_FLUSH; 128-byte bodies; uvloop when it is installed.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orbitmq import AutoBatch, ConsumeFrom, Consumer, Message, Producer, ReceivedMessage
from orbitmq.cluster.processes import ProcessCluster

TOPIC = "client_speed"
BODY = b"x" * 128


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@asynccontextmanager
async def measured(name: str, messages: int) -> AsyncIterator[None]:
    """Print the rate and the CPU of what runs inside."""
    cpu, begin = _cpu_seconds(), time.perf_counter()
    yield
    seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
    print(f"{name:38} {messages / seconds:10,.0f}/s {cpu / messages * 1e6:8.1f} us")


async def send(producer: Producer, messages: int, in_flight: int) -> None:
    """Send ``messages``, so many awaited at a time."""

    async def work() -> None:
        for _ in range(messages // in_flight):
            await producer.send(Message(TOPIC, BODY))

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def submit(producer: Producer, messages: int, in_flight: int) -> None:
    """Send ``messages`` without a task for each; so many are waited for together."""
    for _ in range(messages // in_flight):
        for result in [producer.submit(Message(TOPIC, BODY)) for _ in range(in_flight)]:
            await result


async def consume(name_server: str, messages: int) -> None:
    """Read what the producers sent, with an async listener."""
    enough = asyncio.Event()
    count = 0

    async def listener(message: ReceivedMessage) -> None:
        nonlocal count
        count += 1
        if count == messages:
            enough.set()

    consumer = Consumer("client_speed", name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(TOPIC)
    async with consumer, measured("consume, async listener", messages):
        work = asyncio.create_task(consumer.run(listener))
        await enough.wait()
    await work


async def main(messages: int) -> None:
    """Measure one way of sending after the other."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"flushDiskType": "ASYNC_FLUSH"}
        async with ProcessCluster(brokers=1, root=folder, settings=settings) as cluster:
            async with Producer("single", name_servers=cluster.name_server) as producer:
                await send(producer, 100, 1)
                async with measured("await send, 1 in flight", messages // 20):
                    await send(producer, messages // 20, 1)
                async with measured("await send, 256 in flight", messages):
                    await send(producer, messages, 256)
            auto = Producer("auto", name_servers=cluster.name_server, auto_batch=AutoBatch())
            async with auto, measured("auto-batch, 4096 in flight", messages):
                await send(auto, messages, 4096)
            auto = Producer("auto", name_servers=cluster.name_server, auto_batch=AutoBatch())
            async with auto, measured("auto-batch, submit, 4096 in flight", messages):
                await submit(auto, messages, 4096)
            await consume(cluster.name_server, messages)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 102_400
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(count))
    else:
        uvloop.run(main(count))
