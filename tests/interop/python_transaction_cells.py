"""Our transactional producer and our requests against any place."""

from __future__ import annotations

import asyncio
import contextlib

from benchmarks.remoting import Client
from benchmarks.servers import free_ports
from tests.interop.records import read_queue
from tests.interop.world import Place, World, equal, wait_registered

from orbitmq import Consumer, Producer, TransactionProducer, TransactionState
from orbitmq.client.model import ConsumeFrom
from orbitmq.message import property_names
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.record import decode_record

RECEIVE_TIMEOUT_S = 60
# Brokers of the matrix ask after 1 s and every 2 s; Apache's writes every second what has ended.
SUPERFLUOUS_CHECK_S = 7


def transactions(world: World, place: Place) -> None:
    """Committed and checked-back messages are delivered, rolled back ones are not."""
    topic, group = world.fresh("python_transactions"), world.fresh("python_group")
    with place.client() as client:
        client.create_topic(topic, 4)
    received, checked = asyncio.run(_transactions(place, topic, group))
    if place.kind.rpartition("/")[2].startswith("apache"):
        # Apache's broker may ask about one that was just committed; the answer commits it once more.
        received = sorted(set(received))
    equal(sorted(received), ["checked good", "commit"], "messages delivered")
    equal(checked >= {"checked good", "checked bad"}, True, f"checks, {checked}")


async def _transactions(place: Place, topic: str, group: str) -> tuple[list[str], set[str]]:
    checked: set[str] = set()
    received: list[str] = []
    states = {
        "commit": TransactionState.COMMIT,
        "rollback": TransactionState.ROLLBACK,
        "checked good": TransactionState.UNKNOWN,
        "checked bad": TransactionState.UNKNOWN,
    }

    async def execute(message: Message) -> TransactionState:
        return states[message.body.decode()]

    async def check(message: ReceivedMessage) -> TransactionState:
        body = message.body.decode()
        checked.add(body)
        good = body in ("commit", "checked good")
        return TransactionState.COMMIT if good else TransactionState.ROLLBACK

    async with (
        TransactionProducer(
            f"{group}_p", check=check, name_servers=place.ns, timeout=RECEIVE_TIMEOUT_S
        ) as producer,
        Consumer(group, consume_from=ConsumeFrom.FIRST, name_servers=place.ns) as consumer,
    ):
        consumer.subscribe(topic)

        async def listen(message: ReceivedMessage) -> None:
            received.append(message.body.decode())

        task = asyncio.create_task(consumer.run(listen))
        for body, state in states.items():
            result = await producer.send_in_transaction(Message(topic, body), execute)
            equal(result.state, state, f"state of {body}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                while len(received) < 2 or len(checked) < 2:
                    await asyncio.sleep(0.2)
        await asyncio.sleep(SUPERFLUOUS_CHECK_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return received, checked


def request_reply(world: World, place: Place) -> None:
    """Each request gets its own answer."""
    topic, group = world.fresh("python_request"), world.fresh("python_group")
    with place.client() as client:
        client.create_topic(topic, 4)
    answers = asyncio.run(_requests(place, topic, group))
    equal([body for body, _ in answers], [f"answer to question {i}" for i in range(4)], "replies")
    equal({kind for _, kind in answers}, {"reply"}, "kinds of the replies")


async def _requests(place: Place, topic: str, group: str) -> list[tuple[str, str]]:
    async with (
        Producer(f"{group}_q", name_servers=place.ns) as asking,
        Producer(f"{group}_a", name_servers=place.ns) as answering,
        Consumer(group, consume_from=ConsumeFrom.FIRST, name_servers=place.ns) as consumer,
    ):
        consumer.subscribe(topic)

        async def listen(message: ReceivedMessage) -> None:
            await answering.reply(message, f"answer to {message.body.decode()}")

        task = asyncio.create_task(consumer.run(listen))
        replies = [
            await asking.request(Message(topic, f"question {i}"), timeout=RECEIVE_TIMEOUT_S) for i in range(4)
        ]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [(reply.body.decode(), reply.properties[property_names.MSG_TYPE]) for reply in replies]


def handed_over(world: World, first: str, second: str) -> None:
    """Transactions that one broker leaves open are ended with the other, on the same folder."""
    folder, topic = world.folder / world.fresh("open"), "OpenTransactions"
    with world.server_stopped(world.ours.name_server(folder / "ns")) as name_server:
        port = free_ports(5) + 2
        for kind in (first, second):
            broker = world.broker(kind, folder, name_server.address, port=port)
            with world.server_stopped(broker):
                wait_registered(name_server.port)
                if kind == first:
                    with Client(broker.port) as client:
                        client.create_topic(topic, 1)
                    asyncio.run(_leave_open(name_server.address, topic))
                    continue
                asked = asyncio.run(_end_all(name_server.address, topic))
                equal(asked, {f"open {outcome} {i}" for outcome in OUTCOMES for i in range(3)}, "asked about")
                with Client(broker.port) as client:
                    bodies = sorted(decode_record(r).body.decode() for r in read_queue(client, topic, 0))
                if second == "apache":
                    # It may ask again before it has marked the first answer, and delivers for each.
                    bodies = sorted(set(bodies))
                wanted = [f"{how} commit {i}" for how in ("ended", "open") for i in range(3)]
                equal(bodies, wanted, "messages delivered")


OUTCOMES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


async def _leave_open(ns: str, topic: str) -> None:
    """End some, and let the others be asked about once, in vain."""
    asked: set[str] = set()

    async def execute(message: Message) -> TransactionState:
        how, outcome, _ = message.body.decode().split()
        return OUTCOMES[outcome] if how == "ended" else TransactionState.UNKNOWN

    async def check(message: ReceivedMessage) -> TransactionState:
        how, _outcome, _ = message.body.decode().split()
        if how == "ended":
            # Apache's broker asks about ended ones too; a second commit would be a second message.
            return TransactionState.ROLLBACK
        asked.add(message.body.decode())
        return TransactionState.UNKNOWN

    async with TransactionProducer(
        "interop_open", check=check, name_servers=ns, timeout=RECEIVE_TIMEOUT_S
    ) as producer:
        for how in ("ended", "open"):
            for outcome in OUTCOMES:
                for i in range(3):
                    await producer.send_in_transaction(Message(topic, f"{how} {outcome} {i}"), execute)
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            while len(asked) < 6:
                await asyncio.sleep(0.2)
        await asyncio.sleep(SUPERFLUOUS_CHECK_S)


async def _end_all(ns: str, topic: str) -> set[str]:
    asked: set[str] = set()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.add(message.body.decode())
        return OUTCOMES[message.body.decode().split()[1]]

    async with TransactionProducer(
        "interop_open", check=check, name_servers=ns, timeout=RECEIVE_TIMEOUT_S
    ) as producer:
        await producer.queues(topic)
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            while len(asked) < 6:
                await asyncio.sleep(0.2)
        await asyncio.sleep(SUPERFLUOUS_CHECK_S)
    return asked


def apache_to_ours(world: World) -> None:
    handed_over(world, "apache", "ours")


def ours_to_apache(world: World) -> None:
    handed_over(world, "ours", "apache")
