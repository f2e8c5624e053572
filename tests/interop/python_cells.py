"""Our Python client against any place, alone and with Apache's Java client at the other end."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tests.interop.java_cells import expected, same_messages
from tests.interop.world import Place, World, check, equal

from orbitmq import Consumer, Producer
from orbitmq.client.model import ConsumeFrom, SendStatus
from orbitmq.message.model import Message, ReceivedMessage

RECEIVE_TIMEOUT_S = 60


def messages(topic: str, how: str, count: int, padding: int = 0) -> list[Message]:
    """The same messages as the Java program Send makes."""
    return [
        Message(
            topic,
            f"{how}-{i}-größe{'x' * padding}",
            tags="odd" if i % 2 else "even",
            keys=f"key-{i}",
            flag=i,
            properties={"colour": f"blå {i}"},
        )
        for i in range(count)
    ]


def as_content(message: ReceivedMessage) -> tuple[str, str, str, str, str]:
    return (
        message.body.decode(),
        message.tags or "",
        " ".join(message.keys),
        str(message.flag),
        message.properties.get("colour", ""),
    )


async def send(place: Place, batch: list[Message], how: str) -> None:
    """Send by `how`: sync (concurrent sends), batch or oneway."""
    async with Producer("interop_python", name_servers=place.ns, timeout=RECEIVE_TIMEOUT_S) as producer:
        if how == "batch":
            result = await producer.send_batch(batch)
            equal(len(result.offset_message_id.split(",")), len(batch), "offset ids of the batch")
        elif how == "oneway":
            for message in batch:
                await producer.send_oneway(message)
            await asyncio.sleep(0.5)
        else:
            results = await asyncio.gather(*(producer.send(message) for message in batch))
            check(all(result.status is SendStatus.SEND_OK for result in results), "not all SEND_OK")
            check(all(len(result.offset_message_id) == 32 for result in results), "offset ids")


async def receive(
    place: Place,
    topic: str,
    group: str,
    count: int,
    *,
    members: int,
    tags: str = "*",
    wait: asyncio.Event,
    broadcast_folder: Path | None = None,
) -> list[tuple[int, ReceivedMessage]]:
    """Receive `count` messages with that many members of a group; sets `wait` when all have joined."""
    received: list[tuple[int, ReceivedMessage]] = []
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        running, joined = [], []
        for number in range(members):
            consumer = Consumer(
                group,
                name_servers=place.ns,
                consume_from=ConsumeFrom.FIRST,
                broadcast=broadcast_folder is not None,
                offsets_folder=str(broadcast_folder / str(number)) if broadcast_folder else None,
            )
            consumer.subscribe(topic, tags)
            await stack.enter_async_context(consumer)
            joined.append(consumer)

            async def keep(message: ReceivedMessage, number: int = number) -> None:
                received.append((number, message))

            running.append(tasks.create_task(consumer.run(keep)))
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            while members > 1 and not _all_have_queues(joined, topic, alone=broadcast_folder is None):
                await asyncio.sleep(0.05)
        wait.set()
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            while len(received) < count:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # in which a duplicate would show
        for task in running:
            task.cancel()
    return received


def _all_have_queues(members: list[Consumer], topic: str, *, alone: bool) -> bool:
    """Whether each member has queues of the topic; ``alone``: and no other member has them, too."""
    shares = [[queue for queue in member.assignment() if queue.topic == topic] for member in members]
    several = [queue for share in shares for queue in share]
    return all(shares) and (not alone or len(several) == len(set(several)))


def two_consumers(world: World, place: Place) -> None:
    """Single sends, consumed by two members of one group, each message once."""
    topic, group, count = world.fresh("python_two"), world.fresh("python_group"), 60
    with place.client() as client:
        client.create_topic(topic, 4)

    async def main() -> list[tuple[int, ReceivedMessage]]:
        joined = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive(place, topic, group, count, members=2, wait=joined))
            await joined.wait()
            await send(place, messages(topic, "sync", count), "sync")
        return receiving.result()

    received = asyncio.run(main())
    equal(
        Counter(as_content(message) for _, message in received), Counter(expected("sync", count)), "messages"
    )
    equal({number for number, _ in received}, {0, 1}, "members that received something")


def orderly(world: World, place: Place) -> None:
    """Messages of one key come in order at two members; one that fails holds up its queue."""
    topic, group, count = world.fresh("python_orderly"), world.fresh("python_group"), 30
    with place.client() as client:
        client.create_topic(topic, 4)
    deliveries: list[tuple[int, int]] = []

    async def main() -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            running = []
            for _ in range(2):
                consumer = Consumer(
                    group,
                    name_servers=place.ns,
                    consume_from=ConsumeFrom.FIRST,
                    ordered=True,
                    failure_pause=0.2,
                )
                consumer.subscribe(topic)
                await stack.enter_async_context(consumer)

                async def fail_first(message: ReceivedMessage) -> None:
                    known = (message.flag, 0) in deliveries
                    deliveries.append((message.flag, int(known)))
                    if message.flag < 3 and not known:
                        raise ValueError("not yet")

                running.append(tasks.create_task(consumer.run(fail_first)))
            async with Producer(
                "interop_python", name_servers=place.ns, timeout=RECEIVE_TIMEOUT_S
            ) as producer:
                for message in messages(topic, "sync", count):
                    await producer.send(message, ordering_key=message.flag % 3)
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                while len(deliveries) < count + 3:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            for task in running:
                task.cancel()

    asyncio.run(main())
    for key in range(3):
        numbers = [flag for flag, _ in deliveries if flag % 3 == key]
        equal(numbers, [key, *range(key, count, 3)], f"deliveries of the messages with key {key}")


def broadcast(world: World, place: Place) -> None:
    """Both members of a broadcasting group get everything."""
    topic, group, count = world.fresh("python_broadcast"), world.fresh("python_group"), 20
    folder = world.folder / world.fresh("broadcast")
    with place.client() as client:
        client.create_topic(topic, 4)

    async def main() -> list[tuple[int, ReceivedMessage]]:
        joined = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(
                receive(place, topic, group, 2 * count, members=2, wait=joined, broadcast_folder=folder)
            )
            await joined.wait()
            await send(place, messages(topic, "sync", count), "sync")
        return receiving.result()

    received = asyncio.run(main())
    for member in (0, 1):
        contents = Counter(as_content(message) for number, message in received if number == member)
        equal(contents, Counter(expected("sync", count)), f"messages of member {member}")


def round_trip(world: World, place: Place, how: str, *, padding: int = 0) -> None:
    """Our producer to a topic that does not exist yet, our consumer."""
    topic, group, count = world.fresh(f"python_{how}"), world.fresh("python_group"), 30

    async def main() -> list[tuple[int, ReceivedMessage]]:
        await send(place, messages(topic, how, count, padding), how)
        return await receive(place, topic, group, count, members=1, wait=asyncio.Event())

    received = asyncio.run(main())
    wanted = Counter(expected(how, count, padding))
    equal(Counter(as_content(message) for _, message in received), wanted, "messages")


def batch(world: World, place: Place) -> None:
    round_trip(world, place, "batch")


def oneway(world: World, place: Place) -> None:
    round_trip(world, place, "oneway")


def compressed(world: World, place: Place) -> None:
    round_trip(world, place, "sync", padding=9000)


def tags(world: World, place: Place) -> None:
    """Our consumer with a tag expression."""
    topic, count = world.fresh("python_tags"), 40
    group = world.fresh("python_group")

    async def main() -> list[tuple[int, ReceivedMessage]]:
        await send(place, messages(topic, "sync", count), "sync")
        half = count // 2
        return await receive(place, topic, group, half, members=1, tags="even || no", wait=asyncio.Event())

    received = asyncio.run(main())
    wanted = {wanted for wanted in expected("sync", count) if wanted[1] == "even"}
    equal(Counter(as_content(message) for _, message in received), Counter(wanted), "messages")


def to_java(world: World, place: Place) -> None:
    """Our producer (single, batch, compressed), Apache's push consumer."""
    topic = world.fresh("python_to_java")
    asyncio.run(send(place, messages(topic, "sync", 10, padding=6000), "sync"))
    asyncio.run(send(place, messages(topic, "batch", 10), "batch"))
    facts = world.facts("Receive", ns=place.ns, topic=topic, group=world.fresh("java_group"), count=20)
    same_messages(facts, expected("sync", 10, 6000) | expected("batch", 10))


def from_java(world: World, place: Place) -> None:
    """Apache's producer (single, batch, compressed), our consumer."""
    topic, group = world.fresh("java_to_python"), world.fresh("python_group")
    world.facts("Send", ns=place.ns, topic=topic, how="sync", count=10, padding=6000)
    world.facts("Send", ns=place.ns, topic=topic, how="batch", count=10)
    received = asyncio.run(receive(place, topic, group, 20, members=1, wait=asyncio.Event()))
    wanted = Counter(expected("sync", 10, 6000) | expected("batch", 10))
    equal(Counter(as_content(message) for _, message in received), wanted, "messages")


def retry(world: World, place: Place) -> None:
    """A listener that fails gets the message again, through the broker's retry topic."""
    topic, group, count = world.fresh("python_retry"), world.fresh("python_group"), 3
    deliveries: list[ReceivedMessage] = []

    async def main() -> None:
        await send(place, messages(topic, "sync", count), "sync")
        consumer = Consumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST)
        consumer.subscribe(topic)

        async def fail_once(message: ReceivedMessage) -> None:
            deliveries.append(message)
            if message.reconsume_times == 0:
                raise ValueError("not yet")

        async with consumer, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(consumer.run(fail_once))
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                while len(deliveries) < 2 * count:
                    await asyncio.sleep(0.05)
            running.cancel()

    asyncio.run(main())
    again = Counter(as_content(message) for message in deliveries if message.reconsume_times == 1)
    equal(again, Counter(expected("sync", count)), "messages that came again")
    topics = {message.topic for message in deliveries}
    equal(topics, {topic}, "topics as the listener sees them")


def delayed(world: World, place: Place) -> None:
    """Messages with delay level 2 come after 5 s, not before."""
    topic, group = world.fresh("python_delayed"), world.fresh("python_group")
    with place.client() as client:
        client.create_topic(topic, 4)

    async def main() -> list[tuple[int, ReceivedMessage]]:
        batch = [Message(topic, f"later {i}", delay_level=2) for i in range(4)]
        await send(place, batch, "sync")
        return await receive(place, topic, group, 4, members=1, wait=asyncio.Event())

    for _, message in asyncio.run(main()):
        waited_ms = message.store_timestamp_ms - message.born_timestamp_ms
        check(4900 <= waited_ms < 20_000, f"delivered after {waited_ms} ms")
