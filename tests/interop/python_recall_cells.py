"""Our producer takes back messages that wait for their time at Apache's broker."""

from __future__ import annotations

import asyncio

from tests.interop.world import CellError, Place, World, check, equal

from orbitmq import Consumer, Producer
from orbitmq.client.model import ConsumeFrom
from orbitmq.errors import BrokerError
from orbitmq.message import property_names
from orbitmq.message.model import Message, ReceivedMessage

# Apache's broker delivers timer messages on whole seconds.
DELAY_MS = 6000
RECEIVE_TIMEOUT_S = 60
ILLEGAL_OPERATION = 604


def recall(world: World, place: Place) -> None:
    """Of two timer messages the recalled one is never delivered; the other one cannot be recalled later."""
    topic, group = world.fresh("python_recall"), world.fresh("python_group")
    with place.client() as client:
        client.create_topic(topic, 4)
    kept, recalled, received = asyncio.run(_recall(place, topic, group))
    check(kept != recalled, "both messages have one id")
    equal([message.message_id for message in received], [kept], "messages delivered")
    waited_ms = received[0].store_timestamp_ms - received[0].born_timestamp_ms
    check(DELAY_MS - 1000 <= waited_ms < DELAY_MS + 10_000, f"delivered after {waited_ms} ms")


async def _recall(place: Place, topic: str, group: str) -> tuple[str, str, list[ReceivedMessage]]:
    received: list[ReceivedMessage] = []

    async def keep(message: ReceivedMessage) -> None:
        received.append(message)

    later = {property_names.TIMER_DELAY_MS: str(DELAY_MS)}
    consumer = Consumer(group, name_servers=place.ns, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic)
    async with Producer("interop_python", name_servers=place.ns, timeout=10) as producer:
        plain = await producer.send(Message(topic, "now"))
        equal(plain.recall_handle, "", "recall handle of a message without a delay")
        recalled = await producer.send(Message(topic, "recalled", properties=later))
        kept = await producer.send(Message(topic, "kept", properties=later))
        check(recalled.recall_handle and kept.recall_handle, "a timer message has no recall handle")
        said = await producer.recall(topic, recalled.recall_handle)
        equal(said, recalled.message_id, "id that the broker gives for the recalled message")
        async with consumer, asyncio.timeout(RECEIVE_TIMEOUT_S):
            running = asyncio.create_task(consumer.run(keep))
            while not any(message.message_id == kept.message_id for message in received):
                await asyncio.sleep(0.1)
            await asyncio.sleep(3)  # in which the recalled one would come
        await running
        await _too_late(producer, topic, kept.recall_handle)
    return kept.message_id, recalled.message_id, [m for m in received if m.message_id != plain.message_id]


async def _too_late(producer: Producer, topic: str, handle: str) -> None:
    """What has been delivered cannot be taken back."""
    try:
        await producer.recall(topic, handle)
    except BrokerError as error:
        equal(error.code, ILLEGAL_OPERATION, f"code of a recall after the delivery ({error.remark})")
    else:
        raise CellError("a delivered message was recalled")
