"""The transactional producer and request-reply, against OrbitMQ's brokers, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from orbitmq.client.consumer.consumer import Consumer
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.transactional import TransactionProducer, TransactionState
from orbitmq.errors import (
    ClientStateError,
    NotStoredSafelyError,
    ReplyTimeoutError,
    SendError,
    ValidationError,
)
from orbitmq.message import property_names
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.record import iter_records
from orbitmq.store import PutStatus
from orbitmq.testing import SimulatedLoop
from orbitmq.testing import World as MemoryWorld
from orbitmq.testing.machine.simulated import SimulatedRuntime

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


class World(MemoryWorld):
    """A cluster whose queues a test may inspect."""

    def __init__(self, runtime: SimulatedRuntime, **options: Any) -> None:
        super().__init__(runtime, **options)
        self.options: dict[str, Any] = {"name_servers": self.name_server, "runtime": runtime}

    def delivered(self, topic: str) -> list[bytes]:
        """The bodies in all queues of a topic."""
        found = []
        for broker in self.brokers.values():
            for queue_id in range(8):
                got = broker.services.store.get(topic, queue_id, 0, 1000)
                found += [record.body for record in iter_records(got.body)]
        return found


@pytest.fixture
def world(orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime, request: pytest.FixtureRequest) -> World:
    mark = request.node.get_closest_marker("orbitmq")
    return orbitmq_loop.enter(World(runtime, **(mark.kwargs if mark else {})))


class Local:
    """The sender's local work: its outcome, and records of its executions and checks."""

    def __init__(self, outcome: TransactionState | None = COMMIT) -> None:
        self.outcome = outcome
        self.executed: list[Message] = []
        self.checked: list[ReceivedMessage] = []

    async def execute(self, message: Message) -> TransactionState:
        self.executed.append(message)
        if self.outcome is None:
            raise ConnectionError("the database is gone")
        return self.outcome

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.checked.append(message)
        return COMMIT if message.body.startswith(b"good") else ROLLBACK


@pytest.mark.behaviour("TX-01")
async def test_the_end_goes_where_the_half_message_is_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 5011: a route that arrives meanwhile still shows the slave, which does not end transactions."""
    local = Local()
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        async with producer.transaction(Message("Orders", b"good")):
            monkeypatch.setattr(producer._client, "master_of", lambda *_: "10.9.9.9:10911")
        await asyncio.sleep(1)
    assert world.delivered("Orders") == [b"good"]
    assert local.checked == []


@pytest.mark.behaviour("MV-12")
@pytest.mark.parametrize(("outcome", "delivered"), [(COMMIT, [b"good"]), (ROLLBACK, [])])
async def test_the_senders_own_work_decides_and_nobody_asks(
    world: World, outcome: TransactionState, delivered: list[bytes]
) -> None:
    local = Local(outcome)
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        message = Message("Orders", b"good", tags="a", keys="k1")
        result = await producer.send_in_transaction(message, local.execute)
        assert result.state is outcome
        [executed] = local.executed
        assert executed.message_id == executed.transaction_id == result.sent.message_id
        assert message.transaction_id is None
        assert message.properties == {"TAGS": "a", "KEYS": "k1"}
        await asyncio.sleep(100)
    assert world.delivered("Orders") == delivered
    assert local.checked == []


@pytest.mark.behaviour("MV-12")
@pytest.mark.parametrize(("body", "delivered"), [(b"good", [b"good"]), (b"bad", [])])
async def test_a_broker_asks_when_the_sender_did_not_know(
    world: World, body: bytes, delivered: list[bytes]
) -> None:
    local = Local(UNKNOWN)
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        result = await producer.send_in_transaction(Message("Orders", body), local.execute)
        assert result.state is UNKNOWN
        assert world.delivered("Orders") == []
        await asyncio.sleep(100)
    [asked] = local.checked
    assert (asked.topic, asked.body, asked.message_id) == ("Orders", body, result.sent.message_id)
    assert asked.transaction_id == asked.message_id
    assert asked.properties[property_names.TRANSACTION_CHECK_TIMES] == "1"
    assert world.delivered("Orders") == delivered


async def test_what_the_senders_work_raises_reaches_the_caller_and_the_check_decides(world: World) -> None:
    local = Local(None)
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        with pytest.raises(ConnectionError, match="database"):
            await producer.send_in_transaction(Message("Orders", b"good"), local.execute)
        await asyncio.sleep(10)
    assert world.delivered("Orders") == [b"good"]


@pytest.mark.behaviour("MO-09")
async def test_a_producer_that_closes_leaves_the_checks_to_another_one_of_its_client(world: World) -> None:
    """The remaining producer has to answer the checks, or its transactions are set aside after 15 of them."""
    local = Local(UNKNOWN)
    shared = ClientInstance(world.runtime, world.name_server)
    async with TransactionProducer("pg", check=local.check, client=shared) as staying:
        async with TransactionProducer("pg", check=local.check, client=shared):
            pass
        await staying.send_in_transaction(Message("Orders", b"good"), local.execute)
        await asyncio.sleep(60)
    assert world.delivered("Orders") == [b"good"]


@pytest.mark.behaviour("MV-12")
@pytest.mark.parametrize("raised", [StopIteration, SystemExit])
async def test_whatever_plain_work_raises_reaches_the_caller_and_the_check_decides(
    world: World, raised: type[BaseException]
) -> None:
    asked = []

    def execute(message: Message) -> TransactionState:
        raise raised

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        if len(asked) == 1:
            raise raised
        return COMMIT

    async with TransactionProducer("pg", check=check, **world.options) as producer:
        with pytest.raises(RuntimeError, match="execute raised") as caught:
            async with asyncio.timeout(5):
                await producer.send_in_transaction(Message("Orders", b"good"), execute)
        assert isinstance(caught.value.__cause__, raised)
        await asyncio.sleep(100)
    assert asked == [b"good", b"good"]
    assert world.delivered("Orders") == [b"good"]


@pytest.mark.parametrize(
    ("ending", "delivered", "checks"),
    [("plain", [b"good"], 0), ("roll back", [], 0), ("leave open", [b"good"], 1), ("raise", [b"good"], 1)],
)
async def test_a_transaction_as_a_block(
    world: World, ending: str, delivered: list[bytes], checks: int
) -> None:
    local = Local()
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction(Message("Orders", b"good")) as transaction:
                assert transaction.message.message_id == transaction.sent.message_id
                assert world.delivered("Orders") == []
                if ending == "roll back":
                    transaction.roll_back()
                elif ending == "leave open":
                    transaction.leave_open()
                elif ending == "raise":
                    raise ZeroDivisionError
        await asyncio.sleep(40)
    assert world.delivered("Orders") == delivered
    assert len(local.checked) == checks


async def test_nothing_is_begun_when_the_half_message_is_not_safe(world: World) -> None:
    local = Local()
    [broker] = list(world.brokers.values())

    async def slow(_result: object) -> PutStatus:
        return PutStatus.FLUSH_DISK_TIMEOUT

    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        await producer.send(Message("Orders", b"first"))
        broker.services.append.stored = slow  # type: ignore[assignment, method-assign]
        result = await producer.send_in_transaction(Message("Orders", b"good"), local.execute)
        assert result.state is ROLLBACK
        with pytest.raises(NotStoredSafelyError, match="FLUSH_DISK_TIMEOUT"):
            async with producer.transaction(Message("Orders", b"good")):
                local.executed.append(Message("never", b""))
        await asyncio.sleep(40)
    assert local.executed == local.checked == []
    assert world.delivered("Orders") == [b"first"]


async def test_a_check_that_fails_is_asked_again(world: World) -> None:
    times = []

    def check(_message: ReceivedMessage) -> TransactionState:
        times.append(world.runtime.clock.monotonic())
        if len(times) == 1:
            raise ConnectionError
        return COMMIT

    def execute(_message: Message) -> TransactionState:
        return UNKNOWN

    async with TransactionProducer("pg", check=check, **world.options) as producer:
        await producer.send_in_transaction(Message("Orders", b"x"), execute)
        await asyncio.sleep(60)
    assert 29.9 <= times[1] - times[0] <= 32
    assert world.delivered("Orders") == [b"x"]


async def test_another_member_of_the_group_answers_for_one_that_died(world: World) -> None:
    local, other = Local(UNKNOWN), Local()
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        await producer.send_in_transaction(Message("Orders", b"good"), local.execute)
    async with TransactionProducer("pg", check=other.check, **world.options) as second:
        await second.queues("Orders")
        await asyncio.sleep(40)
    assert [message.body for message in other.checked] == [b"good"]
    assert world.delivered("Orders") == [b"good"]


@pytest.mark.behaviour("SH-05")
async def test_a_producer_that_did_not_start_closes(world: World) -> None:
    """A producer that has not registered for checks must close without a KeyError."""
    client = ClientInstance(**world.options)
    async with Producer("other", client=client):
        pass
    producer = TransactionProducer("pg", check=Local().check, client=client)
    with pytest.raises(ClientStateError, match="instance was closed"):
        await producer.start()
    await producer.close()


@pytest.mark.behaviour("MO-09")
async def test_a_half_message_whose_end_was_lost_waits_for_its_master(world: World) -> None:
    local = Local()

    async def dies(message: Message) -> TransactionState:
        world.crash("broker-a")
        return COMMIT

    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        await producer.send_in_transaction(Message("Orders", b"good"), dies)
        await asyncio.sleep(120)
        assert local.checked == []
        await world.start_broker("broker-a")
        await world.until(lambda: world.delivered("Orders") == [b"good"], 60)
        await asyncio.sleep(60)
    assert len(local.checked) == 1
    assert world.delivered("Orders") == [b"good"]


async def test_transactions_and_requests_inside_a_namespace(world: World) -> None:
    local = Local(UNKNOWN)
    world.options["namespace"] = "space"
    async with TransactionProducer("pg", check=local.check, **world.options) as producer:
        await producer.send_in_transaction(Message("Orders", b"good"), local.execute)
        await asyncio.sleep(20)
    assert [message.topic for message in local.checked] == ["Orders"]
    assert world.delivered("space%Orders") == [b"good"]
    async with (
        answering(world, lambda message: message.topic.encode()),
        Producer("askers", **world.options) as producer,
    ):
        reply = await producer.request(Message("Questions", b"q"), timeout=60)
        assert reply.body == b"Questions"


async def test_what_cannot_be_a_transaction_is_refused(world: World) -> None:
    local = Local()
    producer = TransactionProducer("pg", check=local.check, **world.options)
    with pytest.raises(ClientStateError):
        await producer.send_in_transaction(Message("Orders", b"x"), local.execute)
    async with producer:
        with pytest.raises(ValidationError, match="delayed"):
            await producer.send_in_transaction(Message("Orders", b"x", delay_level=3), local.execute)
    assert local.executed == []


# -- request and reply -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(
    world: World, answer: Callable[[ReceivedMessage], bytes | None]
) -> AsyncIterator[list[Message]]:
    """A consumer of topic Questions that replies with the result of ``answer``."""
    seen: list[Message] = []
    async with (
        Producer("answerers", **world.options) as producer,
        Consumer("cg", consume_from=ConsumeFrom.FIRST, **world.options) as consumer,
    ):
        consumer.subscribe("Questions")

        async def listen(message: ReceivedMessage) -> None:
            seen.append(message)
            body = answer(message)
            if body is not None:
                await producer.reply(message, body)

        task = asyncio.ensure_future(consumer.run(listen))
        yield seen
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.orbitmq(brokers=2)
async def test_a_request_gets_the_reply_of_its_consumer(world: World) -> None:
    async with (
        answering(world, lambda message: message.body.upper()) as seen,
        Producer("askers", **world.options) as producer,
    ):
        replies = await asyncio.gather(
            *(
                producer.request(Message("Questions", b"q%d" % n + b"x" * 5000, tags="a"), timeout=60)
                for n in range(10)
            )
        )
        assert [reply.body[:2] for reply in replies] == [b"Q%d" % n for n in range(10)]
        assert replies[0].body == b"Q0" + b"X" * 5000
        properties = replies[0].properties
        assert properties[property_names.MSG_TYPE] == "reply"
        assert property_names.PUSH_REPLY_TIME in properties
        assert property_names.ARRIVE_TIME in properties
        asked = {message.properties[property_names.CORRELATION_ID] for message in seen}
        assert {reply.properties[property_names.CORRELATION_ID] for reply in replies} == asked
        assert {message.properties[property_names.TTL] for message in seen} == {"60000"}
        # The replies are stored too, as in RocketMQ.
        await asyncio.sleep(1)
        assert len(world.delivered("DefaultCluster_REPLY_TOPIC")) == 10


async def test_a_request_without_reply_times_out(world: World) -> None:
    async with (
        answering(world, lambda _message: None) as seen,
        Producer("askers", **world.options) as producer,
    ):
        started = world.runtime.clock.monotonic()
        with pytest.raises(ReplyTimeoutError, match="no reply came within 2 s"):
            await producer.request(Message("Questions", b"q"), timeout=2)
        assert world.runtime.clock.monotonic() - started == pytest.approx(2.0, abs=0.2)
        await asyncio.sleep(30)
        assert len(seen) == 1


async def test_a_reply_to_a_client_that_left_is_an_error_for_the_one_who_replies(world: World) -> None:
    async with (
        answering(world, lambda _message: None) as seen,
        Producer("late", **world.options) as late,
    ):
        async with Producer("askers", **world.options) as producer:
            with pytest.raises(ReplyTimeoutError):
                await producer.request(Message("Questions", b"q"), timeout=30)
        [question] = seen
        assert isinstance(question, ReceivedMessage)
        with pytest.raises(SendError, match="not found"):
            await late.reply(question, b"too late")


async def test_an_ordinary_message_cannot_be_replied_to(world: World) -> None:
    failures = []

    def answer(message: ReceivedMessage) -> None:
        with pytest.raises(MessageFormatError, match="CORRELATION_ID") as caught:
            message.reply(b"x")
        failures.append(caught.value)

    async with answering(world, answer), Producer("askers", **world.options) as producer:
        await producer.send(Message("Questions", b"q"))
        await asyncio.sleep(30)
    assert len(failures) == 1
