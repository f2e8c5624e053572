"""Sends every flight to the topic and keeps the ledger that the audit compares with."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from examples.flights.data import TOPIC, WARM_UP_TOPIC, Table, Value, body_of, rows

from orbitmq import Message, MessageQueue, Producer, SendStatus
from orbitmq.admin import Admin

BATCH = 128
IN_FLIGHT = 8
QUEUES_PER_BROKER = 4


@dataclass
class Ledger:
    """What was sent and acknowledged.

    Attributes:
        digest: sum of the CRC-32 of all bodies.
        ends: by queue, the offset after the last acknowledged message.
        expected: the statistics of the file itself.
    """

    sent: int = 0
    digest: int = 0
    without_key: int = 0
    not_ok: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    expected: Table = field(default_factory=Table)


async def create_topics(name_server: str) -> None:
    """Make both topics on every broker, so that consumers and Spark find them before the first message."""
    async with Admin(name_server) as admin:
        for topic in (TOPIC, WARM_UP_TOPIC):
            await admin.topics.create(topic, queues=QUEUES_PER_BROKER)


def message_of(topic: str, row: dict[str, Value]) -> Message:
    """A flight: tag = carrier, key = tail number when there is one, body = the row as JSON."""
    tail = row["tailnum"]
    return Message(topic, body_of(row), tags=str(row["carrier"]), keys="" if tail is None else str(tail))


def messages(ledger: Ledger, times: int) -> Iterator[Message]:
    """The flights as messages, ``times`` over, written into the ledger."""
    for row in chain.from_iterable(rows() for _ in range(times)):
        message = message_of(TOPIC, row)
        ledger.expected.add(row)
        ledger.digest += zlib.crc32(message.body)
        ledger.without_key += row["tailnum"] is None
        yield message


async def send_warm_up(name_server: str) -> None:
    """Send a few flights to a topic of their own."""
    async with Producer("flights_warm_up", name_servers=name_server) as producer:
        await producer.send_batch([message_of(WARM_UP_TOPIC, row) for row in islice(rows(), BATCH)])


async def send_all(name_server: str, ledger: Ledger, times: int = 1) -> None:
    """Send every flight, ``times`` over, some batches in flight at a time."""
    source = messages(ledger, times)

    async def work(producer: Producer) -> None:
        while batch := list(islice(source, BATCH)):
            result = await producer.send_batch(batch)
            ledger.sent += len(batch)
            ledger.not_ok += len(batch) * (result.status is not SendStatus.SEND_OK)
            queue: MessageQueue = result.queue
            name = f"{queue.broker_name}/{queue.queue_id}"
            ledger.ends[name] = max(ledger.ends.get(name, 0), result.queue_offset + len(batch))

    async with Producer("flights_sender", name_servers=name_server) as producer, asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work(producer))
