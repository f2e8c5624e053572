"""A client works only in the event loop in which it was started; in another one its methods raise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import orbitmq
from orbitmq import AutoBatch, ClientStateError, Message, MessageQueue
from orbitmq.admin import Admin
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import OrbitError
from orbitmq.runtime.system import system_runtime

pytestmark = pytest.mark.behaviour("CR-30")

# No server listens on this port.
NOWHERE = "127.0.0.1:1"
QUEUE = MessageQueue("t", "a", 0)

MESSAGE = Message("t", b"x")


async def drained(source: Any) -> None:
    async for _ in source:
        pass


async def submitted(producer: Any) -> None:
    await producer.submit(MESSAGE)


async def by_handler(consumer: Any) -> None:
    await consumer.run(print)


CALLS: dict[str, list[Callable[[Any], Awaitable[Any]]]] = {
    "Producer": [
        lambda p: p.send(MESSAGE),
        submitted,
        lambda p: p.send_batch([MESSAGE]),
        lambda p: p.send_oneway(MESSAGE),
        lambda p: p.request(MESSAGE, timeout=0.1),
        lambda p: p.queues("t"),
        lambda p: p.close(),
    ],
    "Consumer": [
        by_handler,
        lambda c: drained(c.messages()),
        lambda c: drained(c.batches(3)),
        lambda c: c.commit(),
        lambda c: c.close(),
    ],
    "PullConsumer": [
        lambda c: c.poll(timeout=0.1),
        lambda c: c.commit(),
        lambda c: c.committed(QUEUE),
        lambda c: c.queues("t"),
        lambda c: c.close(),
    ],
    "SimpleConsumer": [
        lambda c: c.receive(wait=0.1),
        by_handler,
        lambda c: drained(c.messages()),
        lambda c: c.close(),
    ],
    "Reader": [
        lambda c: drained(c.messages()),
        lambda c: drained(c.batches()),
        lambda c: drained(c.steps()),
        lambda c: c.offsets(),
        lambda c: c.close(),
    ],
}


async def started(client: Any) -> None:
    await client.start()
    if hasattr(client, "subscribe"):
        client.subscribe("t")


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in CALLS.items() for call in calls])
def test_a_call_in_another_event_loop_is_refused(name: str, call: Callable[[Any], Awaitable[Any]]) -> None:
    async def called(client: Any) -> None:
        with pytest.raises(ClientStateError, match="event loop"):
            await call(client)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        client = getattr(orbitmq, name)("group", name_servers=NOWHERE)
        first.run(started(client))
        second.run(called(client))
        first.run(client.close())


def test_a_producer_that_collects_is_refused_too() -> None:
    async def sends(producer: Any) -> None:
        with pytest.raises(ClientStateError, match="was started in another event loop"):
            await producer.send(MESSAGE)
        with pytest.raises(ClientStateError, match="was started in another event loop"):
            producer.submit(MESSAGE)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        producer = orbitmq.Producer("group", name_servers=NOWHERE, auto_batch=AutoBatch())
        first.run(started(producer))
        second.run(sends(producer))
        first.run(producer.close())


def test_an_admin_belongs_to_the_loop_of_its_first_request() -> None:
    async def ask(admin: Admin, error: type[OrbitError], text: str) -> None:
        with pytest.raises(error, match=text):
            await admin.brokers.list()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        admin = Admin(NOWHERE, timeout=0.1)
        first.run(ask(admin, OrbitError, "no name server|name server"))
        second.run(ask(admin, ClientStateError, "used in another event loop"))
        first.run(admin.close())


def test_a_shared_client_belongs_to_the_loop_of_its_first_user() -> None:
    async def starts(client: Any) -> None:
        with pytest.raises(ClientStateError, match="used in another event loop"):
            await client.start()
        await client.close()

    async def made() -> ClientInstance:
        return ClientInstance(system_runtime(), NOWHERE)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        shared = first.run(made())
        producer = orbitmq.Producer("group", client=shared)
        first.run(producer.start())
        for name in CALLS:
            second.run(starts(getattr(orbitmq, name)("group", client=shared)))
        assert not shared._closed
        first.run(producer.close())
