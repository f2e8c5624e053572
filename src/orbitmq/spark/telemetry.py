"""The progress of queries as OpenTelemetry metrics. Needs ``orbitmq[otel]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.errors import ValidationError

if TYPE_CHECKING:
    from orbitmq.spark.progress import QueryState

SCOPE = "orbitmq.spark"


class Gauges:
    """The metrics of all queries: one value for each queue, broker or query.

    Args:
        meter_provider: OpenTelemetry's; the one set globally by default.

    Raises:
        ValidationError: OpenTelemetry is not installed.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ValidationError("telemetry needs OpenTelemetry: pip install 'orbitmq[otel]'") from error
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._rows = meter.create_gauge("orbitmq.spark.lag.rows", "{message}", "Rows behind the queue's end.")
        self._seconds = meter.create_gauge(
            "orbitmq.spark.lag.time", "s", "Since the first message that is not read yet was stored."
        )
        self._silent = meter.create_gauge(
            "orbitmq.spark.broker.silent", "{broker}", "1 for a broker that does not answer, else 0."
        )
        self._counts = {
            "pulled_bytes": meter.create_gauge("orbitmq.spark.pulled", "By", "Pulled since the query began."),
            "retries": meter.create_gauge("orbitmq.spark.retries", "{retry}", "Since the query began."),
            "skipped": meter.create_gauge(
                "orbitmq.spark.skipped", "{message}", "Offsets given up since the query began."
            ),
        }

    def show(self, state: QueryState) -> None:
        """Set every value of one query."""
        query = {"spark.query": state.name or state.query_id}
        for name, gauge in self._counts.items():
            gauge.set(getattr(state.tally, name), query)
        for broker in {queue.broker_name for queue in state.queues} | set(state.silent):
            self._silent.set(int(broker in state.silent), {**query, "messaging.rocketmq.broker": broker})
        for queue, lag in state.queues.items():
            place = {
                **query,
                "messaging.destination.name": queue.topic,
                "messaging.rocketmq.broker": queue.broker_name,
                "messaging.destination.partition.id": str(queue.queue_id),
            }
            self._rows.set(lag.rows, place)
            if lag.seconds is not None:
                self._seconds.set(lag.seconds, place)
