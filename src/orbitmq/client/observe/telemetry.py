"""OpenTelemetry spans and metrics of a producer or a consumer. Needs ``orbitmq[otel]``.

::

    telemetry = Telemetry()
    producer = Producer("shop", middleware=[telemetry.sending("shop")])
    consumer = Consumer("billing", middleware=[telemetry.handling("billing")])

Names follow OpenTelemetry's conventions for messaging systems. The trace context travels as message
properties (``traceparent``), so that a consumer's span continues the producer's trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orbitmq.client.hooks import (
    ConsumeMiddleware,
    ConsumeReturnType,
    HandleOne,
    SendMiddleware,
    SendOne,
    return_type,
)
from orbitmq.client.model import SendResult
from orbitmq.durations import Duration, as_seconds
from orbitmq.errors import OrbitError, ValidationError
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.settling import ACK
from orbitmq.runtime.seam import Clock, Runtime
from orbitmq.runtime.system import system_runtime

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SCOPE = "orbitmq"
RESULT = "messaging.rocketmq.consume_result"
# Bucket limits in seconds, from the conventions.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class Telemetry:
    """Makes the middleware that records spans and metrics.

    Args:
        tracer_provider, meter_provider: OpenTelemetry's providers; by default the global ones.
        runtime: the machine; only its clock is used.

    Raises:
        ValidationError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, propagate, trace
        except ImportError as error:
            raise ValidationError("telemetry needs OpenTelemetry: pip install 'orbitmq[otel]'") from error
        self._trace = trace
        self._propagate = propagate
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._clock: Clock = (runtime or system_runtime()).clock
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Messages that were to be sent."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Messages given to a listener.",
        )
        self._send_time = self._histogram(meter, "messaging.client.operation.duration")
        self._process_time = self._histogram(meter, "messaging.process.duration")

    @staticmethod
    def _histogram(meter: Any, name: str) -> Any:
        return meter.create_histogram(name, unit="s", explicit_bucket_boundaries_advisory=_BUCKETS)

    def sending(self, group: str) -> SendMiddleware:
        """Middleware for a producer of this group. A batch is one span, and so is a one-way send."""

        async def around(given: Message | list[Message], send: SendOne) -> SendResult | None:
            batch = given if isinstance(given, list) else [given]
            kind = self._trace.SpanKind.PRODUCER
            with self._span("send", kind, batch[0], group, None, count=len(batch)) as (span, facts):
                carrier: dict[str, str] = {}
                self._propagate.inject(carrier)
                carried = [_with_properties(message, carrier) for message in batch]
                if isinstance(given, list):
                    span.set_attribute("messaging.batch.message_count", len(batch))
                    result: SendResult | None = await send(carried)
                else:
                    result = await send(carried[0])
                    if result is not None:
                        span.set_attribute("messaging.message.id", result.message_id)
                if result is not None:
                    span.set_attribute("messaging.destination.partition.id", _partition(result.queue))
                self._sent.add(len(batch), facts)
                return result

        return around

    def handling(self, group: str, *, consume_timeout: Duration = 900.0) -> ConsumeMiddleware:
        """Middleware for a consumer of this group; it wraps the handlers of ``run``, batch handlers included.

        Spans and the histogram of handler times carry the result (``messaging.rocketmq.consume_result``:
        success, failed, exception or time_out). A batch is one span that links to the traces of its messages.

        Args:
            consume_timeout: the consumer's consume timeout; a handler that takes longer counts as timed out.
        """

        async def around(given: ReceivedMessage | list[ReceivedMessage], handle: HandleOne) -> object:
            batch = given if isinstance(given, list) else [given]
            message, begun = batch[0], self._clock.monotonic()
            parent, links = self._origin(batch)
            kind = self._trace.SpanKind.CONSUMER
            with self._span("process", kind, message, group, parent, links) as (span, facts):
                if given is message:
                    span.set_attribute("messaging.message.id", message.message_id)
                    span.set_attribute("messaging.destination.partition.id", _partition(message.queue))
                    span.set_attribute("messaging.rocketmq.reconsume_times", message.reconsume_times)
                else:
                    span.set_attribute("messaging.batch.message_count", len(batch))
                self._consumed.add(len(batch), dict(facts))
                try:
                    return await handle(given)
                except Exception:
                    facts[RESULT] = ConsumeReturnType.EXCEPTION.name.lower()
                    raise
                finally:
                    if RESULT not in facts:
                        facts[RESULT] = self._result(batch, begun, as_seconds(consume_timeout))
                    span.set_attribute(RESULT, facts[RESULT])
                    reason = next((m.verdict.reason for m in batch if m.verdict is not None), "")
                    if facts[RESULT] != "success":
                        status = self._trace.Status(self._trace.StatusCode.ERROR, reason or facts[RESULT])
                        span.set_status(status)

        return around

    def _origin(self, batch: list[ReceivedMessage]) -> tuple[Any, list[Any]]:
        """The trace that a message continues, and links: a batch belongs to several traces and only links to
        them.
        """
        contexts = [self._propagate.extract(message.properties) for message in batch]
        if len(batch) == 1:
            return contexts[0], []
        spans = [self._trace.get_current_span(context).get_span_context() for context in contexts]
        return None, [self._trace.Link(span) for span in spans if span.is_valid]

    def _result(self, batch: list[ReceivedMessage], begun: float, timeout_s: float) -> str:
        """The result of a handler that did not raise: the worst verdict among its messages."""
        took = self._clock.monotonic() - begun
        kinds = {return_type(message.verdict or ACK, took, timeout_s) for message in batch}
        order = (ConsumeReturnType.EXCEPTION, ConsumeReturnType.TIME_OUT, ConsumeReturnType.FAILED)
        return next((kind for kind in order if kind in kinds), ConsumeReturnType.SUCCESS).name.lower()

    @contextmanager
    def _span(
        self,
        operation: str,
        kind: Any,
        message: Message,
        group: str,
        parent: Any,
        links: Sequence[Any] = (),
        count: int = 1,
    ) -> Iterator[tuple[Span, dict[str, str]]]:
        """A span for one message, or for a batch with its first message's data; yields the attributes for the
        metrics.

        In the block the span is the current one.
        """
        group_name = "messaging.consumer.group.name" if operation == "process" else "messaging.rocketmq.group"
        facts = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.destination.name": message.topic,
            group_name: group,
        }
        details: dict[str, Any] = {**facts, "messaging.operation.type": operation}
        if message.tags:
            details["messaging.rocketmq.message.tag"] = message.tags
        if message.keys:
            details["messaging.rocketmq.message.keys"] = message.keys
        histogram = self._send_time if operation == "send" else self._process_time
        begun = self._clock.monotonic()
        # The span records an exception raised in its block.
        with self._tracer.start_as_current_span(
            f"{operation} {message.topic}", context=parent, kind=kind, attributes=details, links=links
        ) as span:
            try:
                yield span, facts
            except Exception as error:
                name = type(error).__name__
                span.set_attribute("error.type", name)
                facts["error.type"] = name
                if isinstance(error, OrbitError) and operation == "send":
                    self._sent.add(count, facts)
                raise
            finally:
                histogram.record(self._clock.monotonic() - begun, facts)


def _with_properties(message: Message, more: dict[str, str]) -> Message:
    return Message(message.topic, message.body, flag=message.flag, properties={**message.properties, **more})


def _partition(queue: Any) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
