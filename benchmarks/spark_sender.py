"""Sends messages of 1 KiB to a topic at a steady rate, one by one, for a given time."""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks import spark_rows

from orbitmq import Message, Producer

BODY_BYTES = 1024
# Number of different bodies; their content does not matter.
BODIES = 64
TICK_S = 0.002


async def send(name_server: str, topic: str, per_second: int, seconds: int) -> None:
    """Send messages; arguments as for :func:`main`."""
    bodies = list(spark_rows.bodies(0, BODIES, BODY_BYTES))
    begin = time.monotonic()
    sent = 0
    async with Producer("bench_sender", name_servers=name_server) as producer, asyncio.TaskGroup() as group:
        while (gone := time.monotonic() - begin) < seconds:
            for number in range(sent, int(gone * per_second)):
                group.create_task(producer.send(Message(topic, bodies[number % BODIES])))
            sent = max(sent, int(gone * per_second))
            await asyncio.sleep(TICK_S)


def main() -> None:
    name_server, topic, per_second, seconds = sys.argv[1:]
    asyncio.run(send(name_server, topic, int(per_second), int(seconds)))


if __name__ == "__main__":
    main()
