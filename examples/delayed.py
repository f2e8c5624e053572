"""A message is delivered later, to the millisecond; the broker keeps it through restarts until then."""

import asyncio
import time

from orbitmq import ConsumeFrom, Message, Producer, PullConsumer

NAME_SERVERS = "127.0.0.1:9876"


async def main() -> None:
    async with Producer("shop", name_servers=NAME_SERVERS) as producer:
        started = time.monotonic()
        await producer.send(Message("example-reminders", "pay", delay=1.5))
        await producer.send(Message("example-reminders", "thanks for your order"))

    consumer = PullConsumer("mail", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        consumer.subscribe("example-reminders")
        left = 2
        while left:
            for message in await consumer.poll():
                late = time.monotonic() - started >= 1.5
                print(message.body.decode(), "- after its delay" if late else "- at once")
                left -= 1


if __name__ == "__main__":
    asyncio.run(main())
