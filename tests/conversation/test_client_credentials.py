"""Clients whose cluster requires signed requests: a gate before each server checks the signatures."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, until
from tests.conversation.scripted import running as consuming
from tests.conversation.scripted_cluster import ClientWorld
from tests.signature_gate import Gate, gated

from orbitmq import (
    AutoBatch,
    BrokerError,
    ClientInstance,
    Consumer,
    Credentials,
    Message,
    NotPermittedError,
    PullConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    ValidationError,
)
from orbitmq.admin import Admin
from orbitmq.errors import CredentialsError, SendError
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

APP = Credentials("app", "app-secret-1")
ROOT = Credentials("root", "root-secret-1")
QUICK_CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}
WRONG = Credentials("app", "app-secret-2")


@pytest.fixture
def gate() -> Gate:
    return Gate({"app": "app-secret-1", "root": "root-secret-1"})


@pytest.fixture
def secured(
    request: pytest.FixtureRequest, gate: Gate, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: SimulatedLoop
) -> World:
    """A cluster behind the gate with the topic "orders"; a parameter sets its options."""
    return orbitmq_loop.enter(running(gated(orbitmq_runtime, gate, **getattr(request, "param", {})), gate))


@asynccontextmanager
async def running(world: World, gate: Gate) -> AsyncIterator[World]:
    async with world:
        gate.is_shut = True
        async with admin(world, ROOT) as client:
            await client.topics.create("orders", queues=2)
        gate.requests.clear()
        yield world
        gate.is_shut = False


def admin(world: World, credentials: Any, **more: Any) -> Admin:
    return Admin(world.name_server, runtime=world.runtime, credentials=credentials, **more)


async def gathered(items: AsyncIterator[ReceivedMessage]) -> list[bytes]:
    return [message.body async for message in items]


# -- every request is signed -----------------------------------------------------------------------------


@pytest.mark.behaviour("AU-01")
@pytest.mark.parametrize("secured", [{"settings": QUICK_CHECKS}], indirect=True)
async def test_every_request_of_every_kind_of_client_is_signed(secured: World, gate: Gate) -> None:
    """That includes one-way requests, heartbeats, traces, replies and the requests of closing."""
    seen: list[bytes] = []
    asked: list[str] = []

    async def failing_once(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.reconsume_times == 0 and message.body == b"again":
            raise ValueError("once")

    async def answer(message: ReceivedMessage) -> None:
        await producer.reply(message, message.body * 2)

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    async with secured.producer(credentials=APP, trace=True, auto_batch=AutoBatch(linger=0.01)) as producer:
        await producer.send(Message("orders", b"again"))
        await producer.send_batch([Message("orders", b"b1"), Message("orders", b"b2")])
        await producer.send_oneway(Message("orders", b"one-way"))
        await producer.submit(Message("orders", b"collected"))
        async with consuming(secured.consumer(credentials=APP, trace=True), failing_once, "orders"):
            await secured.until(lambda: len(seen) >= 6, 200)
        async with consuming(secured.consumer("replies", credentials=APP), answer, "questions"):
            for _ in range(3):
                try:
                    found = await producer.request(Message("questions", b"ab"), timeout=20)
                    break
                except SendError:
                    await secured.sleep(1)
            assert found.body == b"abab"

    async with TransactionProducer(
        "tx", check=check, name_servers=secured.name_server, runtime=secured.runtime, credentials=APP
    ) as transactions:
        async with transactions.transaction(Message("orders", b"tx")):
            pass
        async with transactions.transaction(Message("orders", b"open")) as transaction:
            transaction.leave_open()
        await secured.until(lambda: asked == ["orders"], 100)
        await secured.sleep(1)
    async with secured.pull_consumer("pulling", credentials=APP) as pulling:
        pulling.subscribe("orders")
        assert await pulling.poll(timeout=30)
        await pulling.commit()
    async with secured.simple_consumer("popping", credentials=APP) as simple:
        simple.subscribe("orders")
        [message, *_] = await simple.receive(wait=10)
        await simple.ack(message)
    async with secured.reader("orders", credentials=APP) as reader:
        assert len(await gathered(reader)) >= 7
    async with admin(secured, APP) as client:
        assert (await client.groups.lag("pulling")).found is not None
        assert await client.messages.find("orders", key="none") is not None
    refused = [one for one in gate.requests if one[3]]
    assert not refused
    assert gate.codes() >= {
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.HEART_BEAT,
        Code.UNREGISTER_CLIENT,
        Code.PULL_MESSAGE,
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.END_TRANSACTION,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.SEND_REPLY_MESSAGE_V2,
    }
    assert {server.partition(":")[2] for server, *_ in gate.requests} == {"9876", "10911"}


@pytest.mark.behaviour("AU-02")
async def test_the_namespace_and_the_security_token_are_signed_too(secured: World, gate: Gate) -> None:
    lent = Credentials("app", "app-secret-1", "lent for an hour")
    async with secured.producer(credentials=lent, namespace_v2="tenant") as producer:
        await producer.send(Message("orders", b"x"))
    assert [one for one in gate.requests if one[3]] == []
    assert gate.tokens >= {"lent for an hour"}


# -- changes of keys -------------------------------------------------------------------------------------


@pytest.mark.behaviour("AU-03")
async def test_new_keys_count_from_the_next_request_on(secured: World, gate: Gate) -> None:
    now = [Credentials("app", "app-secret-1", "token 1")]
    async with secured.producer(credentials=lambda: now[0]) as producer:
        await producer.send(Message("orders", b"x"))
        gate.users = {"new": "new-secret"}
        now[0] = Credentials("new", "new-secret")
        gate.tokens.clear()
        gate.requests.clear()
        await producer.send(Message("orders", b"x"))
    assert {(user, why) for _, _, user, why in gate.requests} == {("new", "")}
    assert gate.tokens == {""}


@pytest.mark.behaviour("AU-04")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: None, "returned NoneType, not Credentials"),
        (lambda: "app-secret-1", "returned str, not Credentials"),
    ],
)
async def test_a_function_without_credentials_fails_each_request(
    secured: World, gate: Gate, source: Any, text: str
) -> None:
    now: list[Any] = [lambda: APP]
    async with secured.producer(credentials=lambda: now[0]()) as producer:
        await producer.send(Message("orders", b"x"))
        now[0] = source
        gate.requests.clear()
        with pytest.raises(CredentialsError, match=text) as caught:
            await producer.send(Message("orders", b"x"))
        with pytest.raises(CredentialsError, match=text):
            await producer.send_oneway(Message("orders", b"x"))
        assert gate.requests == []
        assert "app-secret-1" not in str(caught.value)
        now[0] = lambda: APP
        await producer.send(Message("orders", b"x"))


# -- refusals --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("AU-05")
@pytest.mark.parametrize("secured", [{"brokers": 2}], indirect=True)
@pytest.mark.parametrize(
    ("credentials", "text", "user"),
    [
        (
            WRONG,
            r"refuses SEND_MESSAGE_V2, topic orders, group .*the access key 'app' or its secret key is",
            "app",
        ),
        (
            Credentials("nobody", "x"),
            r"the access key 'nobody' or its secret key is wrong: User:nobody is",
            "nobody",
        ),
        (None, r"does not permit SEND_MESSAGE_V2, topic orders, .* to a client without credentials", ""),
    ],
    ids=["wrong secret", "unknown user", "no credentials"],
)
async def test_a_refused_send_says_who_what_and_where_and_is_not_tried_elsewhere(
    secured: World, gate: Gate, credentials: Any, text: str, user: str
) -> None:
    real = gate.verdict

    def at_brokers_only(server: str, command: Command) -> str:
        return "" if server.endswith(":9876") else real(server, command)

    gate.verdict = at_brokers_only  # type: ignore[method-assign]
    async with secured.producer(credentials=credentials, timeout=10) as producer:
        with pytest.raises(NotPermittedError, match=text) as caught:
            await producer.send(Message("orders", b"x"))
    error = caught.value
    assert len(gate.sends(Code.SEND_MESSAGE_V2)) == 1
    assert (error.code, error.user, error.address) == (16, user, gate.sends(Code.SEND_MESSAGE_V2)[0])
    assert error.what.startswith("SEND_MESSAGE_V2, topic orders")
    assert error.remark
    assert error.remark in str(error)
    assert "app-secret" not in str(error)
    assert isinstance(error, BrokerError)


@pytest.mark.behaviour("AU-05")
@pytest.mark.parametrize("secured", [{"brokers": 2}], indirect=True)
async def test_missing_rights_end_a_send_and_leave_other_topics(secured: World, gate: Gate) -> None:
    def denies(user: str, command: Command) -> str:
        if user == "app" and command.code == Code.SEND_MESSAGE_V2 and command.ext["b"] == "invoices":
            return "User:app has no permission to access Topic:invoices from 127.0.0.1, no matched policies."
        return ""

    async with admin(secured, ROOT) as client:
        await client.topics.create("invoices", queues=2)
    gate.denies = denies
    async with secured.producer(credentials=APP) as producer:
        gate.requests.clear()
        with pytest.raises(
            NotPermittedError, match=r"topic invoices, group test_producer to 'app': User:app"
        ):
            await producer.send(Message("invoices", b"x"))
        assert len(gate.sends(Code.SEND_MESSAGE_V2)) == 1
        await producer.send(Message("orders", b"x"))


@pytest.mark.behaviour("AU-05")
async def test_a_name_server_that_refuses_is_an_error_of_permission(secured: World, gate: Gate) -> None:
    async with secured.producer(credentials=WRONG) as producer:
        with pytest.raises(NotPermittedError, match=r":9876 refuses GET_ROUTEINFO_BY_TOPIC, topic orders"):
            await producer.send(Message("orders", b"x"))
    async with admin(secured, WRONG) as client:
        with pytest.raises(NotPermittedError, match="GET_BROKER_CLUSTER_INFO"):
            await client.brokers.list()


@pytest.mark.behaviour("AU-06")
async def test_consumers_without_rights_say_so(
    secured: World, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def denies(user: str, command: Command) -> str:
        broker_only = command.code != Code.GET_ROUTEINFO_BY_TOPIC
        return "User:app has no permission to access Group:g from 127.0.0.1." if broker_only else ""

    gate.denies = denies
    async with secured.pull_consumer("g", credentials=APP) as pulling:
        pulling.subscribe("orders")
        with pytest.raises(NotPermittedError, match=r"HEART_BEAT to 'app'.*Group:g"):
            await pulling.poll(timeout=10)
        gate.denies = lambda user, command: ""
        async with secured.producer(credentials=APP) as producer:
            await producer.send(Message("orders", b"x"))
        assert [message.body for message in await pulling.poll(timeout=60)] == [b"x"]
    gate.denies = denies
    async with secured.simple_consumer("g", credentials=APP) as simple:
        simple.subscribe("orders")
        with pytest.raises(NotPermittedError, match="POP_MESSAGE, topic orders, group g"):
            await simple.receive(wait=1)
    caplog.clear()
    async with consuming(secured.consumer("g", credentials=APP), lambda message: None, "orders"):
        await secured.sleep(100)
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len([text for text in warnings if "HEART_BEAT" in text]) == 1
    assert not [one for one in caplog.records if one.exc_info]


# -- options ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("AU-07")
@pytest.mark.parametrize("wrong", ["app-secret-1", ("app", "app-secret-1"), 7, {"access_key": "app"}])
def test_what_gives_no_credentials_is_refused_without_showing_it(wrong: Any) -> None:
    makers: list[Any] = [PullConsumer, SimpleConsumer, Consumer]
    for maker in makers:
        with pytest.raises(ValidationError, match="credentials must be Credentials") as caught:
            maker("g", credentials=wrong)
        assert "secret" not in str(caught.value).replace("secret_key", "")
    with pytest.raises(ValidationError, match="credentials must be Credentials"):
        Admin("127.0.0.1:9876", credentials=wrong)


@pytest.mark.behaviour("AU-07")
async def test_credentials_belong_to_the_connections(runtime: SimulatedRuntime) -> None:
    shared = ClientInstance(runtime, "127.0.0.1:9876", credentials=APP)
    with pytest.raises(ValidationError, match="credentials belongs to the connections"):
        PullConsumer("g", client=shared, credentials=APP)


@pytest.mark.behaviour("AU-05")
@pytest.mark.parametrize("secured", [{"brokers": 2}], indirect=True)
async def test_a_broker_that_is_closed_to_writes_still_leads_to_another_one(secured: World) -> None:
    """This refusal also has code 16, but does not concern the client's rights."""
    async with admin(secured, ROOT) as client:
        brokers = [one.address for one in await client.brokers.list()]
        assert len(brokers) == 2
        await client.brokers.change_settings(brokers[0], {"brokerPermission": "4"})
    async with secured.producer(credentials=APP) as producer:
        results = [await producer.send(Message("orders", b"x")) for _ in range(6)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}


@pytest.mark.behaviour("AU-09")
async def test_who_may_consume_needs_not_ask_where_a_queue_begins(world: ClientWorld) -> None:
    """In the rules of ACL 2.0, GET_MIN_OFFSET needs the right Get, for the retry topic too."""
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for body in (b"one", b"two"):
        broker.store("t", body)

    def script(command: Command) -> Command | str:
        if command.code == Code.GET_MIN_OFFSET:
            return command.reply(16, "User:app has no permission to access Topic:t from 127.0.0.1")
        return "default"

    broker.script = script
    seen: list[bytes] = []
    async with consuming(consumer_of(world, credentials=APP), lambda message: seen.append(message.body)):
        await until(world, lambda: seen == [b"one", b"two"])
        await until(world, lambda: broker.requests(Code.GET_MIN_OFFSET))


@pytest.mark.behaviour("AU-10")
@pytest.mark.parametrize("secured", [{"settings": QUICK_CHECKS}], indirect=True)
async def test_the_end_of_a_checked_transaction_names_the_topic_of_the_message(
    secured: World, gate: Gate
) -> None:
    named: list[str] = []

    def denies(user: str, command: Command) -> str:
        if command.code == Code.END_TRANSACTION:
            named.append(command.ext["topic"])
        return ""

    gate.denies = denies
    async with TransactionProducer(
        "tx",
        check=lambda message: TransactionState.COMMIT,
        name_servers=secured.name_server,
        runtime=secured.runtime,
        credentials=APP,
        namespace="space",
    ) as transactions:
        async with transactions.transaction(Message("orders", b"open")) as transaction:
            transaction.leave_open()
        await secured.until(lambda: len(named) == 2, 100)
    assert named == ["space%orders"] * 2
    async with secured.reader("orders", credentials=APP, namespace="space") as reader:
        assert await gathered(reader) == [b"open"]
