"""OpenTelemetry spans and metrics of a producer or a consumer. Needs ``orbitmq[otel]``.

::

    telemetry = Telemetry()
    producer = Producer("shop", middleware=[telemetry.sending("shop")])
    consumer = Consumer("billing", middleware=[telemetry.handling("billing")])

Names follow OpenTelemetry's conventions for messaging systems. The trace context travels as message
properties (``traceparent``), so that a consumer's span continues the producer's trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orbitmq.client.hooks import ConsumeMiddleware, HandleOne, SendMiddleware, SendOne
from orbitmq.client.model import SendResult
from orbitmq.errors import OrbitError, ValidationError
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.runtime.seam import Clock, Runtime
from orbitmq.runtime.system import system_runtime

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SCOPE = "orbitmq"
# Seconds; the buckets that the conventions ask for.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class Telemetry:
    """Makes the middleware that records spans and metrics.

    Args:
        tracer_provider, meter_provider: OpenTelemetry's; those set globally by default.
        runtime: its clock is read.

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
        """Middleware for a producer of this group."""

        async def around(message: Message, send: SendOne) -> SendResult:
            with self._span("send", self._trace.SpanKind.PRODUCER, message, group, None) as (span, facts):
                carrier: dict[str, str] = {}
                self._propagate.inject(carrier)
                outgoing = Message(
                    message.topic,
                    message.body,
                    flag=message.flag,
                    properties={**message.properties, **carrier},
                )
                result = await send(outgoing)
                span.set_attribute("messaging.message.id", result.message_id)
                span.set_attribute("messaging.destination.partition.id", _partition(result.queue))
                self._sent.add(1, facts)
                return result

        return around

    def handling(self, group: str) -> ConsumeMiddleware:
        """Middleware for a consumer of this group; works around the listener of ``run``."""

        async def around(message: ReceivedMessage, handle: HandleOne) -> object:
            parent = self._propagate.extract(message.properties)
            with self._span("process", self._trace.SpanKind.CONSUMER, message, group, parent) as (
                span,
                facts,
            ):
                span.set_attribute("messaging.message.id", message.message_id)
                span.set_attribute("messaging.destination.partition.id", _partition(message.queue))
                span.set_attribute("messaging.rocketmq.reconsume_times", message.reconsume_times)
                self._consumed.add(1, facts)
                return await handle(message)

        return around

    @contextmanager
    def _span(
        self, operation: str, kind: Any, message: Message, group: str, parent: Any
    ) -> Iterator[tuple[Span, dict[str, str]]]:
        """A span around one message, current inside, and the attributes of its metrics."""
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
        # Errors are recorded on the span as they pass.
        with self._tracer.start_as_current_span(
            f"{operation} {message.topic}", context=parent, kind=kind, attributes=details
        ) as span:
            try:
                yield span, facts
            except Exception as error:
                name = type(error).__name__
                span.set_attribute("error.type", name)
                facts = {**facts, "error.type": name}
                if isinstance(error, OrbitError) and operation == "send":
                    self._sent.add(1, facts)
                raise
            finally:
                histogram.record(self._clock.monotonic() - begun, facts)


def _partition(queue: Any) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
