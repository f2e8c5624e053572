"""Send three orders and read them as a member of a group. Start a cluster first: ``orbitmq up``."""

import asyncio

from orbitmq import ConsumeFrom, Consumer, Message, Producer

NAME_SERVERS = "127.0.0.1:9876"


async def main() -> None:
    async with Producer("shop", name_servers=NAME_SERVERS) as producer:
        for number in range(3):
            await producer.send(Message("example-orders", f"order {number}", tags="new", keys=str(number)))

    # A group that has read nothing yet begins with the oldest message.
    consumer = Consumer("billing", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("example-orders", tags="new || paid")
    seen = []
    async with consumer:
        async for message in consumer:
            seen.append(message.body.decode())
            message.ack()
            if len(seen) == 3:
                break
    print(sorted(seen))


if __name__ == "__main__":
    asyncio.run(main())
