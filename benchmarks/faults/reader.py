"""A consumer in a separate process, which can be killed: prints each message that it gets.

python -m benchmarks.faults.reader NAME_SERVER TOPIC
"""

from __future__ import annotations

import asyncio
import sys

from orbitmq import ConsumeFrom, Consumer, ReceivedMessage
from orbitmq.client.consumer.puller import FlowLimits

PAUSE_S = 0.02


async def main() -> None:
    name_server, topic = sys.argv[1:]
    consumer = Consumer(
        "restarting_group",
        name_servers=name_server,
        consume_from=ConsumeFrom.FIRST,
        concurrency=1,
        pull_batch_size=8,
        limits=FlowLimits(messages=8),
    )
    consumer.subscribe(topic)

    async def handle(message: ReceivedMessage) -> None:
        place = f"{message.broker_name} {message.queue_id} {message.queue_offset}"
        print(message.body.decode(), place, flush=True)
        await asyncio.sleep(PAUSE_S)

    async with consumer:
        print("ready", flush=True)
        await consumer.run(handle)


if __name__ == "__main__":
    asyncio.run(main())
