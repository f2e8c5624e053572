"""Pop: Java's push consumer in POP mode, our SimpleConsumer, and folders with messages in flight."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.remoting import Client
from benchmarks.servers import free_ports
from tests.interop.disk_cells import COMMITS_KEPT_S
from tests.interop.java_cells import expected, same_messages
from tests.interop.kill_load import Load
from tests.interop.python_cells import as_content, messages, send
from tests.interop.world import Place, World, check, equal, wait_registered

from orbitmq import ConsumeFrom, Consumer, Producer, SimpleConsumer
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.errors import OrbitError
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.settling import Settled

COUNT = 40
QUEUES = 4
IN_FLIGHT, INVISIBLE_S = 12, 30
"""What is in flight when a folder changes hands, and for how long: until the next broker has started."""
APACHE_LATE_S = 15
"""Apache's broker looks at check points every second, more seldom when it has found none."""


def pop_mode(world: World, place: Place, topic: str, group: str) -> None:
    """mqadmin setConsumeMode, for a topic that is there."""
    with Client(place.broker.port) as client:
        client.create_topic(topic, QUEUES)
    address = place.broker.address
    command = [
        "setConsumeMode",
        "-n",
        place.ns,
        "-b",
        address,
        "-t",
        topic,
        "-g",
        group,
        "-m",
        "POP",
        "-q",
        "0",
    ]
    [said] = world.admin([command])
    check("success" in said.lower(), f"setConsumeMode: {said}")


def java_push(world: World, place: Place) -> None:
    """Apache's push consumers of a group that was switched to POP, two of them."""
    topic, group = world.fresh("java_pop"), world.fresh("java_group")
    pop_mode(world, place, topic, group)
    world.facts("Send", ns=place.ns, topic=topic, how="sync", count=COUNT)
    facts = world.facts(
        "Receive", ns=place.ns, topic=topic, group=group, count=COUNT, pop=1, consumers=2, seconds=60
    )
    same_messages(facts, expected("sync", COUNT))


def java_retry(world: World, place: Place) -> None:
    """What Apache's listener refuses comes again, counted once more."""
    topic, group = world.fresh("java_pop"), world.fresh("java_group")
    pop_mode(world, place, topic, group)
    world.facts("Send", ns=place.ns, topic=topic, how="sync", count=4)
    facts = world.facts(
        "Receive", ns=place.ns, topic=topic, group=group, count=4, pop=1, refuse=1, seconds=90
    )
    kinds = Counter(fact["fact"] for fact in facts)
    equal((kinds["refused"], kinds["received"]), (4, 4), "deliveries")


def java_orderly(world: World, place: Place) -> None:
    """Apache's orderly listener in POP mode: the messages of each queue in order."""
    topic, group = world.fresh("java_pop"), world.fresh("java_group")
    pop_mode(world, place, topic, group)
    world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=COUNT)
    facts = world.facts(
        "Receive", ns=place.ns, topic=topic, group=group, count=COUNT, pop=1, orderly=1, seconds=90
    )
    by_queue: dict[str, list[int]] = {}
    for fact in facts:
        if fact["fact"] == "received":
            by_queue.setdefault(fact["queue"], []).append(int(fact["offset"]))
    for queue, offsets in by_queue.items():
        equal(offsets, sorted(set(offsets)), f"order in queue {queue}")
    equal(sum(map(len, by_queue.values())), COUNT, "messages")


def python_push(world: World, place: Place) -> None:
    """Our push consumer in POP mode: a message that its handler refuses comes again, counted once more."""
    got: list[ReceivedMessage] = []
    refused: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        if not refused:
            refused.append(message.message_id)
            raise RuntimeError("refused once")
        got.append(message)

    _python_pops(world, place, "sync", handle, got)
    again = [message.message_id for message in got if message.reconsume_times == 1]
    equal(again, refused, "messages that came again")


def python_orderly(world: World, place: Place) -> None:
    """The same in order: a failure holds its queue up, and nothing overtakes."""
    got: list[ReceivedMessage] = []
    refused: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 3 and message.message_id not in refused:
            refused.append(message.message_id)
            raise RuntimeError("refused once")
        got.append(message)

    _python_pops(world, place, "orderly", handle, got, ordered=True)
    by_queue: dict[int, list[int]] = {}
    for message in got:
        by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
    for queue_id, offsets in by_queue.items():
        equal(offsets, list(range(len(offsets))), f"order in queue {queue_id}")
    check(refused, "no queue had four messages")


def _python_pops(
    world: World,
    place: Place,
    how: str,
    handle: Callable[[ReceivedMessage], Awaitable[None]],
    got: list[ReceivedMessage],
    *,
    ordered: bool = False,
) -> None:
    """Send, and let two members pop until all has come."""
    topic, group = world.fresh("python_pop"), world.fresh("python_group")
    pop_mode(world, place, topic, group)

    async def main() -> None:
        await send(place, messages(topic, how, COUNT), how)
        async with AsyncExitStack() as stack:
            working = []
            for _ in range(2):
                consumer = Consumer(
                    group,
                    name_servers=place.ns,
                    consume_from=ConsumeFrom.FIRST,
                    allocate=ByBroker(),
                    ordered=ordered,
                )
                consumer.subscribe(topic)
                await stack.enter_async_context(consumer)
                working.append((consumer, asyncio.create_task(consumer.run(handle))))
            deadline = time.monotonic() + 90
            while len(got) < COUNT:
                check(time.monotonic() < deadline, f"{len(got)} of {COUNT} messages came")
                await asyncio.sleep(0.1)
            for consumer, task in working:
                places = {queue.queue_id for queue in consumer.assignment() if queue.topic == topic}
                equal(places, {-1}, "what the broker told a member to pop")
                await consumer.close()
                await task

    asyncio.run(main())
    equal(Counter(map(as_content, got)), Counter(expected(how, COUNT)), "messages")


def python_simple(world: World, place: Place) -> None:
    """Our SimpleConsumer: receive, acknowledge, ask for more time; what is forgotten comes again."""
    topic, group = world.fresh("python_pop"), world.fresh("python_group")

    async def main() -> None:
        await send(place, messages(topic, "sync", COUNT), "sync")
        async with SimpleConsumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe(topic)
            found = await received(consumer, COUNT, invisible_s=60)
            equal(Counter(map(as_content, found)), Counter(expected("sync", COUNT)), "messages")
            await consumer.change_invisible(found[0], 3)
            await consumer.change_invisible(found[1], 120)
            outcome = await consumer.ack_all(found[2:])
            equal(set(outcome), {Settled.DONE}, "acknowledgements")
            asked = time.monotonic()
            [again] = await received(consumer, 1, invisible_s=60, seconds=3 + APACHE_LATE_S)
            check(time.monotonic() - asked >= 2, "a message came before its time was over")
            equal(as_content(again), as_content(found[0]), "the message that comes again")
            equal(again.reconsume_times, 1, "its number of redeliveries")
            equal(await consumer.ack(again), Settled.DONE, "its acknowledgement")
            equal(await consumer.ack(found[1]), Settled.DONE, "one with a longer time")
            equal(await consumer.receive(wait=5), [], "messages left")

    asyncio.run(main())


async def received(
    consumer: SimpleConsumer, count: int, *, invisible_s: float, seconds: float = 30
) -> list[ReceivedMessage]:
    """So many messages, within so many seconds."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        check(time.monotonic() < deadline, f"{len(found)} of {count} messages came")
        found += await consumer.receive(min(32, count - len(found)), invisible_s, wait=2)
    return found


# -- folders ---------------------------------------------------------------------------------------------


def folder(world: World, first: str, second: str, *, crash: bool) -> None:
    """One broker deals messages out and ends; the next one takes the folder over.

    Some are acknowledged to the first broker, some to the second, with the receipts of the first; the others
    come again, once each after a clean stop.
    """
    place = world.folder / world.fresh("pop_disk")
    with world.server_stopped(world.ours.name_server(place / "ns")) as name_server:
        port = free_ports(5) + 2
        asyncio.run(_folder(world, place, name_server.address, name_server.port, port, first, second, crash))


async def _folder(
    world: World, place: Path, ns: str, ns_port: int, port: int, first: str, second: str, crash: bool
) -> None:
    topic, group = world.fresh("pop_folder"), world.fresh("pop_group")
    consumer = SimpleConsumer(group, name_servers=ns, consume_from=ConsumeFrom.FIRST)
    with world.server_stopped(world.broker(first, place, ns, port=port)) as broker:
        wait_registered(ns_port)
        with Client(broker.port) as client:
            client.create_topic(topic, QUEUES)
        async with Producer("interop_pop", name_servers=ns, timeout=10) as producer:
            for number in range(IN_FLIGHT):
                await producer.send(Message(topic, str(number)))
        await consumer.start()
        consumer.subscribe(topic)
        found = await received(consumer, IN_FLIGHT, invisible_s=INVISIBLE_S)
        until = time.monotonic() + INVISIBLE_S
        equal(set(await consumer.ack_all(found[:3])), {Settled.DONE}, "acknowledged to the first broker")
        # Offsets and check points are on disk some seconds later.
        await asyncio.sleep(7)
        load = Load(broker.port, "pop_loaded", "pop_loaded_group")
        if crash:
            with load:
                await asyncio.sleep(COMMITS_KEPT_S + 1)
                broker.kill()
    with world.server_stopped(world.broker(second, place, ns, port=port)) as broker:
        await registered(consumer, topic)
        early = 0
        for message in found[3:6]:
            try:
                early += await consumer.ack(message) is Settled.DONE
            except OrbitError as error:
                world.remarks.append(f"an acknowledgement failed: {error}")
        left = {message.body for message in found[6:]}
        again: Counter[bytes] = Counter()
        deadline = until + 60
        quiet = 0
        while quiet < 3 and time.monotonic() < deadline:
            came = await consumer.receive(32, 60, wait=3)
            again.update(message.body for message in came)
            await consumer.ack_all(came)
            quiet = quiet + 1 if left <= again.keys() and not came else 0
        check(left <= again.keys(), f"lost in the folder: {left - again.keys()}")
        if not crash:
            equal(max(again.values()), 1, "deliveries of one message by the second broker")
            done = {message.body for message in found[:3]}
            check(
                not done & again.keys(),
                f"acknowledged to the first broker, and came again: {done & again.keys()}",
            )
            if early == 3:
                equal(set(again), left, "what comes again")
        await consumer.close()
        if crash:
            load.kept(broker, COMMITS_KEPT_S, f"as {second} serves them")


async def registered(consumer: SimpleConsumer, topic: str) -> None:
    """Return when the route leads to a broker that answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await consumer._client.refresh(topic)
            await consumer._client.heartbeat()
            await consumer._asking._pops.notice(consumer._asking._options, topic, "broker-a", 0, None)
            return
        except OrbitError:
            check(time.monotonic() < deadline, "the second broker does not answer")
            await asyncio.sleep(0.3)


def apache_to_ours(world: World) -> None:
    folder(world, "apache", "ours", crash=False)


def ours_to_apache(world: World) -> None:
    folder(world, "ours", "apache", crash=False)


def apache_to_ours_killed(world: World) -> None:
    folder(world, "apache", "ours", crash=True)


def ours_to_apache_killed(world: World) -> None:
    folder(world, "ours", "apache", crash=True)
