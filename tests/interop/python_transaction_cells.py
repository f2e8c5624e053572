"""Our transactional producer and our requests against any place."""

from __future__ import annotations

import asyncio
import contextlib

from tests.interop.world import Place, World, equal

from orbitmq.client import Consumer, LocalTransactionState, Producer, TransactionProducer
from orbitmq.client.model import ConsumeFrom
from orbitmq.message import keys
from orbitmq.message.model import Message, ReceivedMessage

RECEIVE_TIMEOUT_S = 60
# The brokers of the matrix ask after 2 s and every 3 s; Apache's writes its marks every 3 s.
SUPERFLUOUS_CHECK_S = 12


def transactions(world: World, place: Place) -> None:
    """Committed and checked-back messages are delivered, rolled back ones are not."""
    topic, group = world.fresh("python_transactions"), world.fresh("python_group")
    with place.client() as client:
        client.create_topic(topic, 4)
    received, checked = asyncio.run(_transactions(place, topic, group))
    # Apache's broker may ask about one that was just committed; the answer commits it once more.
    equal(sorted(set(received)), ["checked good", "commit"], "messages delivered")
    equal(checked >= {"checked good", "checked bad"}, True, f"checks, {checked}")


async def _transactions(place: Place, topic: str, group: str) -> tuple[list[str], set[str]]:
    checked: set[str] = set()
    received: list[str] = []
    states = {
        "commit": LocalTransactionState.COMMIT,
        "rollback": LocalTransactionState.ROLLBACK,
        "checked good": LocalTransactionState.UNKNOWN,
        "checked bad": LocalTransactionState.UNKNOWN,
    }

    async def execute(message: Message) -> LocalTransactionState:
        return states[message.body.decode()]

    async def check(message: ReceivedMessage) -> LocalTransactionState:
        body = message.body.decode()
        checked.add(body)
        good = body in ("commit", "checked good")
        return LocalTransactionState.COMMIT if good else LocalTransactionState.ROLLBACK

    async with (
        TransactionProducer(f"{group}_p", check=check, name_servers=place.ns) as producer,
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
            await asking.request(Message(topic, f"question {i}"), timeout_ms=RECEIVE_TIMEOUT_S * 1000)
            for i in range(4)
        ]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [(reply.body.decode(), reply.properties[keys.MSG_TYPE]) for reply in replies]
