"""A user's program with each public class; it is type-checked, not run (test_client_surface.py)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import orbitmq.sync as sync
from orbitmq import (
    AutoBatch,
    ByBroker,
    CompressionType,
    ConsumeContext,
    ConsumeFrom,
    ConsumeHook,
    Consumer,
    Duration,
    FaultItem,
    FlowLimits,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    Reader,
    ReceivedMessage,
    Runtime,
    SendContext,
    SendError,
    SendHook,
    SendResult,
    SendStatus,
    Settled,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    UnreadableMessage,
    consistent_hash,
)
from orbitmq.admin import Admin, BrokerInfo, GroupSettings, Partial, QueueLag, QueueStatus
from orbitmq.errors import Attempt, SendErrorKind
from orbitmq.testing import World

SERVERS = "127.0.0.1:9876"


class Slow(SendHook):
    def after(self, context: SendContext) -> None:
        took: float = context.took
        print(context.queue.broker_name, took, context.begun.isoformat())


class Seen(ConsumeHook):
    def before(self, context: ConsumeContext) -> None:
        print(context.message.message_id)


def pause(tries: int) -> Duration:
    return timedelta(seconds=tries) if tries else 0.5


async def check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT if message.message_id else TransactionState.UNKNOWN


async def produce() -> SendResult | None:
    batches = AutoBatch(linger=timedelta(milliseconds=5))
    async with Producer(
        "shop",
        name_servers=SERVERS,
        timeout=3.0,
        auto_batch=batches,
        compression=CompressionType.ZLIB,
        hooks=[Slow()],
    ) as producer:
        queues: list[MessageQueue] = await producer.queues("orders")
        later = datetime.now(UTC) + timedelta(hours=1)
        await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")], queue=queues[0])
        await producer.send_oneway(Message("orders", "3", tags="new", keys=["a"]))
        await producer.send(Message("orders", b"4", deliver_at=later), timeout=pause(1))
        answer: ReceivedMessage = await producer.request(Message("ask", b"?"), timeout=2)
        faults: list[FaultItem] = producer.fault_table()
        print(answer.born_at, [item.latency for item in faults])
        try:
            result = await producer.send(Message("orders", b"5"), ordering_key=4711)
        except SendError as error:
            attempts: tuple[Attempt, ...] = error.attempts
            print(attempts, error.kind is SendErrorKind.TIMEOUT)
            return None
        return result if result.status is SendStatus.SEND_OK else None


async def transact() -> None:
    async with (
        TransactionProducer("shop", check=check, name_servers=SERVERS) as producer,
        producer.transaction(Message("orders", b"6")) as transaction,
    ):
        transaction.roll_back()


async def consume() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if isinstance(message, UnreadableMessage):
            message.reject("damaged")
        settled: Settled = message.retry(delay=30)
        print(settled)

    limits = FlowLimits(messages=100)
    async with Consumer("billing", limits=limits, allocate=ByBroker(), hooks=[Seen()]) as consumer:
        consumer.subscribe("orders", "new || paid")
        await consumer.run(handle)
    async with PullConsumer("audit", allocate=consistent_hash(), consume_from=ConsumeFrom.FIRST) as puller:
        for each in await puller.poll(timeout=1):
            each.ack()
        await puller.commit()
    async with SimpleConsumer("market", invisible_for=30) as simple:
        for each in await simple.receive(16, wait=timedelta(seconds=5)):
            outcome: Settled = await simple.ack(each)
            print(outcome)
        await simple.subscribe("refunds", sql="amount > 10")
    async with PullConsumer("reader", auto_commit=False) as chosen:
        chosen.assign(await chosen.queues("orders"), tags="new")
        for queue in chosen.assignment():
            await chosen.seek(queue, await chosen.offset_by_time(queue, datetime(2026, 1, 1, tzinfo=UTC)))
        await chosen.commit({queue: await chosen.position(queue) for queue in chosen.assignment()})
    async with Reader("orders", start=datetime(2026, 1, 1, tzinfo=UTC), follow=True) as looking:
        async for each in looking:
            print(each.message_id)
        offsets: dict[MessageQueue, int] = await looking.offsets(ConsumeFrom.LAST)
        print(offsets)


async def administrate() -> None:
    async with Admin([SERVERS], timeout=timedelta(seconds=2)) as admin:
        brokers: list[str] = [
            *await admin.topics.create("orders", queues=4, attributes={"message.type": "FIFO"})
        ]
        await admin.groups.create("billing", GroupSettings(max_retries=3))
        lag: Partial[Sequence[QueueLag]] = await admin.groups.lag("billing")
        behind: int = sum(each.lag for each in lag.whole())
        print(brokers, behind, [each.reason for each in lag.left_out])
        message: ReceivedMessage = await admin.messages.get("0A0000020000", topic="orders")
        print(message.born_at, (await admin.dead_letters.show("billing")).found.count)


def administrate_without_asyncio() -> None:
    with sync.Admin(SERVERS, timeout=2) as admin:
        brokers: Sequence[BrokerInfo] = admin.brokers.list()
        names: Sequence[str] = admin.topics.create("orders", queues=4)
        status: Partial[Sequence[QueueStatus]] = admin.topics.status("orders")
        print([each.address for each in brokers], names, [each.count for each in status.whole()])
        for job in admin.dead_letters.redrive("billing", rate=100, dry_run=True):
            state: str = job.state
            print(state, job.started)


def blocking() -> None:
    with sync.Producer("shop", name_servers=SERVERS, timeout=3) as producer:
        result: SendResult = producer.send(Message("orders", b"7"), timeout=1.5)
        print(result.message_id, producer.submit(Message("orders", b"8")).result().queue)
    with (
        sync.TransactionProducer("shop", check=check) as transactions,
        transactions.transaction(Message("orders", b"9")) as transaction,
    ):
        transaction.leave_open()
    with sync.Consumer("billing") as consumer:

        @consumer.on("refunds", sql="amount > 10")
        def refund(message: ReceivedMessage) -> int:
            return len(message.body)

        length: int = refund(next(consumer.messages()))
        print(length)
        for message in consumer:
            print(message.stored_at)
    with sync.PullConsumer("audit") as puller:
        polled: list[ReceivedMessage] = puller.poll(timeout=1)
        print(polled, puller.assignment())
    with sync.SimpleConsumer("market") as simple:
        print([simple.ack(each) for each in simple.receive(wait=1)])
    with sync.PullConsumer("reader", auto_commit=False) as reader:
        reader.assign(reader.queues("orders"))
        ends: dict[MessageQueue, int] = {queue: reader.max_offset(queue) for queue in reader.assignment()}
        reader.commit(ends)
    with sync.Reader("orders") as looking:
        for batch in looking.batches():
            print(len(batch))


async def bill(name_servers: str, runtime: Runtime | None = None) -> None:
    async with Producer("billing", name_servers=name_servers, runtime=runtime) as producer:
        await producer.send(Message("bills", b"11"))


async def in_a_test(orbitmq_world: World) -> None:
    await bill(orbitmq_world.name_server, orbitmq_world.runtime)
    async with orbitmq_world.producer(timeout=1) as producer:
        await producer.send(Message("orders", b"10"))
