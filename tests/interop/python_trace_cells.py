"""What our clients record of messages, read by Apache's tools."""

from __future__ import annotations

import asyncio

from tests.interop.world import Place, World, check

from orbitmq import Consumer, Producer
from orbitmq.admin import Admin, TraceStep
from orbitmq.client.model import ConsumeFrom
from orbitmq.message.model import Message, ReceivedMessage


def trace(world: World, place: Place) -> None:
    """`mqadmin queryMsgTraceById` shows who sent a message and who consumed it."""
    topic, group = world.fresh("python_trace"), world.fresh("python_group")

    async def main() -> str:
        received = asyncio.Event()

        async def keep(message: ReceivedMessage) -> None:
            received.set()

        async with Producer("python_tracing", name_servers=place.ns, trace=True) as producer:
            sent = await producer.send(Message(topic, "traced", tags="x", keys="a b"))
        consumer = Consumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST, trace=True)
        consumer.subscribe(topic)
        async with consumer, asyncio.timeout(60):
            running = asyncio.create_task(consumer.run(keep))
            await received.wait()
            await asyncio.sleep(0.2)
        await running
        return sent.message_id

    message_id = asyncio.run(main())
    # The index of the broker follows its log.
    for attempt in range(10):
        (said,) = world.admin([["queryMsgTraceById", "-n", place.ns, "-i", message_id]])
        rows = [line.split() for line in said.splitlines()]
        pub = [row for row in rows if row[:2] == ["Pub", "python_tracing"]]
        sub = [row for row in rows if row[:2] == ["Sub", group]]
        if (pub and sub) or attempt == 9:
            break
    check(len(pub) == 1 and pub[0][-1] == "success", f"the line of the producer in {said!r}")
    check(len(sub) == 1 and sub[0][-1] == "success", f"the line of the consumer in {said!r}")

    async def told() -> list[TraceStep]:
        async with Admin(place.ns) as admin:
            return (await admin.messages.trace(message_id)).whole()

    found = [(step.kind, step.result) for step in asyncio.run(told())]
    check(found == [("send", "success"), ("delivery", "success")], f"the trace has {found}")
