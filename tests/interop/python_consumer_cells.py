"""Our consumers in their newer shapes against any place: batches that settle each message, polling."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.interop.python_cells import RECEIVE_TIMEOUT_S, messages, send
from tests.interop.world import Place, World, check, equal

from orbitmq import ConsumeFrom, Consumer, PullConsumer, ReceivedMessage, Settled


def settling(world: World, place: Place) -> None:
    """In batches some messages are done, some come again after a level or a time, one is a dead letter."""
    topic, group, count = world.fresh("python_settling"), world.fresh("python_group"), 12
    first: list[ReceivedMessage] = []
    again: list[int] = []
    told: list[Settled] = []

    async def handler(batch: list[ReceivedMessage]) -> None:
        for message in batch:
            number = message.flag
            if message.reconsume_times:
                again.append(number)
                continue
            first.append(message)
            if number == 1:
                told.append(message.retry(delay_level=1))
            elif number == 2:
                told.append(message.retry(delay=2, reason="soon"))
            elif number == 3:
                told.append(message.reject("never"))
            elif number == 4:
                async with message.process():
                    raise ValueError("again in 10 s")

    async def main() -> list[ReceivedMessage]:
        await send(place, messages(topic, "sync", count), "sync")
        consumer = Consumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST)
        consumer.subscribe(topic)
        async with consumer, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(consumer.run(handler, batch=8))
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                while len(first) < count or len(again) < 3:
                    await asyncio.sleep(0.05)
            running.cancel()
        options = {"name_servers": place.ns, "consume_from": ConsumeFrom.FIRST}
        async with PullConsumer(world.fresh("python_audit"), **options) as reader:
            reader.assign(await reader.queues(f"%DLQ%{group}"))
            return await reader.poll(timeout=RECEIVE_TIMEOUT_S)

    dead = asyncio.run(main())
    equal(Counter(message.flag for message in first), Counter(range(count)), "messages")
    equal(sorted(again), [1, 2, 4], "messages that came again")
    equal([message.flag for message in dead], [3], "dead letters")
    equal(told, [Settled.DONE] * 3, "outcomes")


def polling(world: World, place: Place) -> None:
    """Two pull consumers share the queues; what is committed by hand is where the next one goes on."""
    topic, group, count = world.fresh("python_polling"), world.fresh("python_group"), 40
    with place.client() as client:
        client.create_topic(topic, 4)
    got: list[int] = []

    def member() -> PullConsumer:
        consumer = PullConsumer(
            group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST, auto_commit=False
        )
        consumer.subscribe(topic)
        return consumer

    def shared(consumer: PullConsumer) -> int:
        """How many of the topic's queues a member has; one has the group's retry queue besides."""
        return sum(queue.topic == topic for queue in consumer.assignment())

    async def main() -> None:
        await send(place, messages(topic, "sync", count), "sync")
        async with member() as one, member() as two, asyncio.timeout(RECEIVE_TIMEOUT_S):
            while [shared(one), shared(two)] != [2, 2]:
                await asyncio.sleep(0.1)
            while len(got) < count:
                for consumer in (one, two):
                    got.extend(message.flag for message in await consumer.poll(8, timeout=0.2))
                    await consumer.commit()
        await send(place, messages(topic, "late", 1), "sync")
        async with member() as three, asyncio.timeout(RECEIVE_TIMEOUT_S):
            late = await three.poll(timeout=RECEIVE_TIMEOUT_S)
            check(late[0].body.startswith(b"late"), f"went on with {late[0].body!r}")

    asyncio.run(main())
    equal(Counter(got), Counter(range(count)), "messages")
