"""A message is delivered later, to the millisecond; the broker keeps it through restarts until then."""

import asyncio

from orbitmq import ConsumeFrom, Message, Producer, PullConsumer, ReceivedMessage

NAME_SERVERS = "127.0.0.1:9876"


async def main() -> None:
    async with Producer("shop", name_servers=NAME_SERVERS) as producer:
        await producer.send(Message("example-reminders", "pay", delay=1.5))
        await producer.send(Message("example-reminders", "thanks for your order"))

    consumer = PullConsumer("mail", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        consumer.subscribe("example-reminders")
        received: list[ReceivedMessage] = []
        while len(received) < 2:
            received += await consumer.poll()
    for message in sorted(received, key=lambda message: message.store_timestamp_ms):
        # A delayed message is stored under its topic when it is due.
        late = message.store_timestamp_ms - message.born_timestamp_ms >= 1500
        print(message.body.decode(), "- after its delay" if late else "- at once")


if __name__ == "__main__":
    asyncio.run(main())
