"""Consumers see a message only when the sender's own work has succeeded."""

import asyncio

from orbitmq import ConsumeFrom, Consumer, Message, ReceivedMessage, TransactionProducer
from orbitmq import TransactionState as State

NAME_SERVERS = "127.0.0.1:9876"
paid: set[str] = set()  # stands for a table of your database


async def check(message: ReceivedMessage) -> State:
    """A broker that does not know how a transaction ended asks here, also after a restart."""
    return State.COMMIT if message.keys[0] in paid else State.ROLLBACK


async def main() -> None:
    async with TransactionProducer("till", check=check, name_servers=NAME_SERVERS) as producer:
        for number in range(4):
            async with producer.transaction(Message("example-paid", f"bill {number}", keys=str(number))) as t:
                if number % 2:
                    paid.add(str(number))  # the work succeeds: leaving the block commits
                else:
                    t.roll_back()  # no consumer gets this one

    consumer = Consumer("books", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("example-paid")
    seen = []
    async with consumer:
        async for message in consumer:
            seen.append(message.body.decode())
            if len(seen) == 2:
                break
    print(sorted(seen))


if __name__ == "__main__":
    asyncio.run(main())
