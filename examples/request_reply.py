"""Send a question and wait for the answer of whichever member of a group takes it."""

import asyncio

from orbitmq import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage

NAME_SERVERS = "127.0.0.1:9876"


async def main() -> None:
    consumer = Consumer("quotes", name_servers=NAME_SERVERS, consume_from=ConsumeFrom.FIRST)

    async with Producer("shop", name_servers=NAME_SERVERS) as producer:

        @consumer.on("example-quotes")
        async def answer(question: ReceivedMessage) -> None:
            await producer.reply(question, f"{question.body.decode()}: 17 euro")

        async with consumer:
            running = asyncio.create_task(consumer.run())
            # The time is for sending, handling and answering together.
            reply = await producer.request(Message("example-quotes", "one umbrella"), timeout=20)
            print(reply.body.decode())
            await consumer.close()
            await running


if __name__ == "__main__":
    asyncio.run(main())
