"""The messages of one customer stay in order: one key, one queue, one handler at a time."""

import asyncio
from collections import defaultdict

from orbitmq import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage

NAME_SERVERS = "127.0.0.1:9876"
STEPS = ["ordered", "paid", "shipped"]


async def main() -> None:
    async with Producer("shop", name_servers=NAME_SERVERS) as producer:
        for step in STEPS:
            for customer in ("ann", "bob", "eve"):
                await producer.send(Message("example-steps", step, keys=customer), ordering_key=customer)

    seen: defaultdict[str, list[str]] = defaultdict(list)
    complete = asyncio.Event()
    consumer = Consumer("tracking", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST, ordered=True)

    @consumer.on("example-steps")
    async def track(message: ReceivedMessage) -> None:
        seen[message.keys[0]].append(message.body.decode())
        if sum(map(len, seen.values())) == 9:
            complete.set()

    async with consumer:
        running = asyncio.create_task(consumer.run())
        await complete.wait()
        await consumer.close()
        await running
    print(sorted(seen), all(steps == STEPS for steps in seen.values()))


if __name__ == "__main__":
    asyncio.run(main())
