"""Every kind of send passes middleware, telemetry, hooks, namespace, back pressure and checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.scripted import producer_of, until

from orbitmq import AutoBatch, Message, Producer, TransactionProducer, TransactionState, ValidationError
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.observe.telemetry import Telemetry
from orbitmq.errors import ReplyTimeoutError
from orbitmq.message.batch import iter_batch
from orbitmq.message.properties import parse_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE

Send = Callable[[Any, Any], Awaitable[Any]]


async def send(producer: Producer, message: Any) -> None:
    await producer.send(message)


async def submit(producer: Producer, message: Any) -> None:
    await producer.submit(message)


async def send_batch(producer: Producer, message: Any) -> None:
    await producer.send_batch([message, message])


async def send_oneway(producer: Producer, message: Any) -> None:
    await producer.send_oneway(message)


async def request(producer: Producer, message: Any) -> None:
    with pytest.raises(ReplyTimeoutError):
        await producer.request(message, timeout=0.1)


async def in_transaction(producer: Any, message: Any) -> None:
    await producer.send_in_transaction(message, lambda _message: TransactionState.COMMIT)


EVERY = [send, submit, send_batch, send_oneway, request, in_transaction]


def every_producer(world: Any, **options: Any) -> TransactionProducer:
    world.topics["t"] = world.topics["ns%t"] = {"a": 1}
    return TransactionProducer(
        "pg",
        check=lambda _message: TransactionState.COMMIT,
        name_servers=world.name_servers,
        runtime=world.runtime,
        **options,
    )


def properties_sent(world: Any) -> list[dict[str, str]]:
    """The topic and body of each message that the brokers received."""
    broker = world.brokers["a"]
    found = [parse_properties(command.ext["i"]) for command in broker.requests(SEND)]
    for command in broker.requests(BATCH):
        found += [parse_properties(item.properties.decode()) for item in iter_batch(command.body)]
    return found


@pytest.mark.behaviour("SK-21")
@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_every_kind_of_send_passes_the_middleware(world: Any, way: Send, namespace: str) -> None:
    """Batches and one-way sends pass the middleware too."""
    given: list[Any] = []

    async def around(message: Any, go_on: Any) -> Any:
        given.append(message)
        for each in message if isinstance(message, list) else [message]:
            each.properties["seen"] = "yes"
        return await go_on(message)

    async with every_producer(world, middleware=[around], namespace=namespace) as producer:
        await way(producer, Message("t", b"x"))
        await until(world, lambda: properties_sent(world))
    assert len(given) == 1
    assert all(properties["seen"] == "yes" for properties in properties_sent(world))


@pytest.mark.behaviour("SK-21")
@pytest.mark.parametrize("way", EVERY)
async def test_every_kind_of_send_has_one_span_and_counts_its_messages(world: Any, way: Send) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(
        tracer_provider=provider,
        meter_provider=MeterProvider(metric_readers=[reader]),
        runtime=world.runtime,
    )
    async with every_producer(world, middleware=[telemetry.sending("pg")]) as producer:
        await way(producer, Message("t", b"x"))
        await until(world, lambda: properties_sent(world))
    [span] = spans.get_finished_spans()
    assert span.name == "send t"
    assert all("traceparent" in properties for properties in properties_sent(world))
    points = [
        point.value
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "messaging.client.sent.messages"
        for point in metric.data.data_points
    ]
    assert points == [len(properties_sent(world))]


class Watch(SendHook):
    """A hook that records sends and forbids some."""

    def __init__(self) -> None:
        self.forbidden = False
        self.calls: list[str] = []

    def check_forbidden(self, context: SendContext) -> None:
        if self.forbidden:
            raise PermissionError("not this topic")

    def before(self, context: SendContext) -> None:
        self.calls.append("before")

    def after(self, context: SendContext) -> None:
        self.calls.append("after")


@pytest.mark.behaviour("SK-21")
@pytest.mark.parametrize("way", EVERY)
async def test_every_kind_of_send_is_seen_and_may_be_forbidden_by_hooks(world: Any, way: Send) -> None:
    """A one-way send passes the hooks too, so that a hook can forbid it."""
    watch = Watch()
    async with every_producer(world, hooks=[watch]) as producer:
        await way(producer, Message("t", b"x"))
        await until(world, lambda: properties_sent(world))
        assert watch.calls == ["before", "after"]
        watch.forbidden, sent = True, len(properties_sent(world))
        with pytest.raises(PermissionError):
            await way(producer, Message("t", b"y"))
        await world.runtime.clock.sleep(1)
        assert len(properties_sent(world)) == sent


@pytest.mark.behaviour("SK-21")
@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("options", [{}, {"namespace": "ns"}, {"middleware": "telemetry"}])
async def test_what_is_no_message_is_refused_by_every_kind_of_send(
    world: Any, way: Send, options: Any
) -> None:
    if "middleware" in options:
        pytest.importorskip("opentelemetry", reason="needs opentelemetry-api")
        options = {"middleware": [Telemetry(runtime=world.runtime).sending("pg")]}
    async with every_producer(world, **options) as producer:
        with pytest.raises(ValidationError, match="a Message is needed, got str"):
            await way(producer, "text")


@pytest.mark.behaviour("SK-20")
async def test_a_time_that_no_send_can_have_is_refused_by_every_kind_of_send(world: Any) -> None:
    message = Message("t", b"x")
    async with every_producer(world) as producer:
        for wrong in (0, -1, "1"):
            sends: list[Callable[[Any], Awaitable[object]]] = [
                lambda wait: producer.send(message, timeout=wait),
                lambda wait: producer.send_batch([message], timeout=wait),
                lambda wait: producer.send_oneway(message, timeout=wait),
                lambda wait: producer.request(message, timeout=wait),
                lambda wait: producer.recall("t", "handle", timeout=wait),
                lambda wait: producer.send_in_transaction(
                    message, lambda _message: TransactionState.COMMIT, timeout=wait
                ),
            ]
            for each in sends:
                with pytest.raises(ValidationError, match=r"timeout must be 0\.001 to 600 seconds"):
                    await each(wrong)
            with pytest.raises(ValidationError, match=r"timeout must be 0\.001 to 600 seconds"):
                producer.submit(message, timeout=wrong)


@pytest.mark.behaviour("AS-09")
async def test_collected_batches_wait_for_room_like_other_sends(world: Any) -> None:
    """Collected batches obey ``max_in_flight`` too."""
    world.topics["t"] = {"a": 1}
    under_way = most = 0

    async def slow(command: Command) -> Command:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await world.runtime.clock.sleep(0.1)
        under_way -= 1
        return command.reply(ext={"msgId": "m", "queueId": "0", "queueOffset": "0"})

    world.brokers["a"].script = lambda c: slow(c) if c.code in (SEND, BATCH) else "default"
    async with producer_of(world, max_in_flight=10, auto_batch=AutoBatch(max_messages=1)) as producer:
        await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(100)))
    assert most == 10
