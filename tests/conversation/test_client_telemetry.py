"""Spans and metrics of OpenTelemetry, when it is installed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until

from orbitmq import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage, SendError, ValidationError
from orbitmq.client.observe.telemetry import Telemetry
from orbitmq.message.properties import encode_properties
from orbitmq.wire.codes import RequestCode


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ValidationError, match="orbitmq\\[otel\\]"):
        Telemetry()


def metrics_of(reader: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = list(metric.data.data_points)
    return found


async def test_a_consumers_span_continues_the_producers_trace(world: Any) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import SpanKind, get_current_span

    world.topics["t"] = {"a": 1}
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(
        tracer_provider=provider,
        meter_provider=MeterProvider(metric_readers=[reader]),
        runtime=world.runtime,
    )
    options = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with Producer("pg", middleware=[telemetry.sending("pg")], retries=0, **options) as producer:
        result = await producer.send(Message("t", b"x", tags="blue", keys="k"))
        world.brokers["a"].script = lambda c: (
            c.reply(13, "no") if c.code == RequestCode.SEND_MESSAGE_V2 else "default"
        )
        with pytest.raises(SendError):
            await producer.send(Message("t", b"y"))
        world.brokers["a"].script = None
    inside: list[Any] = []

    async def listener(message: ReceivedMessage) -> None:
        inside.append(get_current_span().get_span_context().span_id)
        await world.runtime.clock.sleep(0.25)

    consumer = Consumer(
        "cg", middleware=[telemetry.handling("cg")], consume_from=ConsumeFrom.FIRST, **options
    )
    consumer.subscribe("t")
    async with consumer:
        task = asyncio.get_running_loop().create_task(consumer.run(listener))
        await world.runtime.clock.sleep(2)
    await task
    send, failed, process = spans.get_finished_spans()
    assert (send.name, failed.name, process.name) == ("send t", "send t", "process t")
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id
    assert inside == [process.context.span_id]
    assert send.attributes["messaging.message.id"] == result.message_id
    assert process.attributes["messaging.rocketmq.message.tag"] == "blue"
    assert failed.attributes["error.type"] == "SendError"
    metrics = metrics_of(reader)
    assert sum(point.value for point in metrics["messaging.client.sent.messages"]) == 2
    assert sum(point.value for point in metrics["messaging.client.consumed.messages"]) == 1
    (took,) = metrics["messaging.process.duration"]
    assert took.sum == pytest.approx(0.25, abs=0.01)


async def test_spans_tell_how_a_handler_ended(world: Any) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    world.topics["t"] = {"a": 1}
    for number in range(5):
        parent = f"00-{number + 1:032x}-{number + 1:016x}-01"
        world.brokers["a"].store("t", b"%d" % number, 0, encode_properties({"traceparent": parent}))
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider(metric_readers=[reader])
    telemetry = Telemetry(tracer_provider=provider, meter_provider=meters, runtime=world.runtime)
    handling = telemetry.handling("cg", consume_timeout=10)

    async def handler(message: ReceivedMessage) -> None:
        match message.body:
            case b"1":
                raise RuntimeError("no stock")
            case b"2":
                message.retry(reason="closed on Sundays")
            case b"3":
                await world.runtime.clock.sleep(11)
            case b"4":
                async with message.process():
                    raise KeyError("x")

    async with running(consumer_of(world, middleware=[handling]), handler):
        await until(world, lambda: len(spans.get_finished_spans()) == 5, 20)
    by_trace = {span.context.trace_id: span for span in spans.get_finished_spans()}
    results = [by_trace[n].attributes["messaging.rocketmq.consume_result"] for n in range(1, 6)]
    assert results == ["success", "exception", "failed", "time_out", "exception"]
    assert by_trace[3].status.description == "closed on Sundays"
    points = metrics_of(reader)["messaging.process.duration"]
    assert sum(point.count for point in points) == 5
    assert len({point.attributes["messaging.rocketmq.consume_result"] for point in points}) == 4
    spans.clear()

    async def handler_of_many(batch: list[ReceivedMessage]) -> None:
        batch[1].reject("broken")

    consumer = consumer_of(world, "other", middleware=[handling])
    consumer.subscribe("t")
    async with consumer:
        task = asyncio.get_running_loop().create_task(consumer.run(handler_of_many, batch=5))
        await until(world, lambda: spans.get_finished_spans())
    await task
    (span,) = spans.get_finished_spans()
    assert span.attributes["messaging.batch.message_count"] == 5
    assert span.attributes["messaging.rocketmq.consume_result"] == "failed"
    assert [link.context.trace_id for link in span.links] == [1, 2, 3, 4, 5]
