"""One load of the Python client, in a process of its own, for `benchmarks.client_speed`.

    python -m benchmarks.client_loads NAME_SERVER TOPIC WAY WARMUP MESSAGES

Prints, as JSON, the seconds and this process's CPU seconds for the messages after the warm-up.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
import uuid

from orbitmq import AutoBatch, ConsumeFrom, Consumer, Message, Producer, ReceivedMessage

BODY = b"x" * 128
MANY, VERY_MANY = 256, 4096
BATCH = 32


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    """Time and CPU of this process from :meth:`begin` to :meth:`report`."""

    def begin(self) -> None:
        self._cpu, self._begin = cpu_seconds(), time.perf_counter()

    def report(self) -> None:
        seconds, cpu = time.perf_counter() - self._begin, cpu_seconds() - self._cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))


async def send(producer: Producer, topic: str, messages: int, in_flight: int) -> None:
    """Send ``messages`` with at most ``in_flight`` awaited at a time."""

    async def work() -> None:
        for _ in range(messages // in_flight):
            await producer.send(Message(topic, BODY))

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def submit(producer: Producer, topic: str, messages: int, in_flight: int) -> None:
    """Send ``messages`` without a task for each, and wait for ``in_flight`` of them together."""
    for _ in range(messages // in_flight):
        for result in [producer.submit(Message(topic, BODY)) for _ in range(in_flight)]:
            await result


async def produce(names: str, topic: str, way: str, warmup: int, messages: int) -> None:
    auto = AutoBatch() if way in ("batch", "submit") else None
    in_flight = {"single": 1, "many": MANY}.get(way, VERY_MANY)
    load = submit if way == "submit" else send
    meter = Meter()
    async with Producer("client_speed", name_servers=names, auto_batch=auto) as producer:
        await load(producer, topic, warmup, in_flight)
        meter.begin()
        await load(producer, topic, messages, in_flight)
        meter.report()


async def consume(names: str, topic: str, warmup: int, messages: int, batch: int | None) -> None:
    """Read a backlog with an async handler, of single messages or of lists."""
    enough = asyncio.Event()
    meter = Meter()
    count = 0

    def handled(number: int) -> None:
        nonlocal count
        before, count = count, count + number
        if before < warmup <= count:
            meter.begin()
        elif before < warmup + messages <= count:
            meter.report()
            enough.set()

    async def handler(_message: ReceivedMessage) -> None:
        handled(1)

    async def handler_of_lists(messages: list[ReceivedMessage]) -> None:
        handled(len(messages))

    group = f"client_speed_{uuid.uuid4().hex}"
    consumer = Consumer(group, name_servers=names, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic)
    async with consumer:
        run = consumer.run(handler_of_lists if batch else handler, batch=batch)
        work = asyncio.create_task(run)
        await enough.wait()
    await work


async def main(names: str, topic: str, way: str, warmup: int, messages: int) -> None:
    if way in ("consume", "consume_batch"):
        await consume(names, topic, warmup, messages, BATCH if way == "consume_batch" else None)
    else:
        await produce(names, topic, way, warmup, messages)


if __name__ == "__main__":
    import uvloop

    names, topic, way, warmup, messages = sys.argv[1:6]
    uvloop.run(main(names, topic, way, int(warmup), int(messages)))
