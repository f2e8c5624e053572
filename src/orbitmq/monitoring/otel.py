"""Passes metrics to OpenTelemetry's exporters. It needs the extra ``otel``, so only servers that export
import it.

The exporters are the SDK's. The exported numbers are read from the server as a scrape reads them; the SDK's
instruments do not count them a second time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from orbitmq.monitoring import collection
from orbitmq.settings.exports import OTLP_GRPC, ExportSettings

log = logging.getLogger(__name__)

SCOPE: Final = "broker-meter"  # the scope's name in RocketMQ
# The most series in one line of the log.
PER_LINE: Final = 20
# RocketMQ's OpenTelemetry names lack the unit with which Prometheus's names end; OpenTelemetry has a field
# for it.
_UNITS: Final = {"_milliseconds": "milliseconds", "_seconds": "seconds", "_bytes": "bytes"}
# The metrics of RocketMQ whose OpenTelemetry names end with the unit, too.
_WHOLE: Final = frozenset({"rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes"})


def named(name: str) -> tuple[str, str]:
    """OpenTelemetry's name and unit of a metric."""
    for end, unit in _UNITS.items():
        if name.endswith(end):
            whole = not name.startswith("rocketmq_") or name in _WHOLE
            return name if whole else name.removesuffix(end), unit
    return name, ""


class Exporter:
    """Passes the metrics of a server to one exporter of the SDK.

    Args:
        begin_ms: when the server's counters began, milliseconds since the epoch.
    """

    def __init__(self, kind: str, settings: ExportSettings, begin_ms: int) -> None:
        self._exporter = _otlp(settings) if kind == OTLP_GRPC else _logging()
        self._in_delta = settings.in_delta
        self._begin_ns = self._last_ns = begin_ms * 1_000_000
        # By name and labels: the values of the last export, and those of the export under way.
        self._before: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
        self._now: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}

    def export(self, metrics: Sequence[collection.Metric], now_ms: int) -> str:
        """Export these metrics; returns the failure, or empty after success.

        It blocks, so call it in a thread. With ``in_delta``, increments during failed exports are not
        exported later.
        """
        heard = _Heard()
        sdk = logging.getLogger("opentelemetry")
        sdk.addHandler(heard)
        passes_on, sdk.propagate = sdk.propagate, False
        try:
            done = self._exporter.export(self._data(metrics, now_ms * 1_000_000))
        finally:
            sdk.removeHandler(heard)
            sdk.propagate = passes_on
        return "" if done is MetricExportResult.SUCCESS else heard.text or "the receiver did not take them"

    def close(self) -> None:
        """Close the connection to the receiver; an export under way ends. Does not block."""
        self._exporter.shutdown()

    def _data(self, metrics: Sequence[collection.Metric], now_ns: int) -> Any:
        found = [self._metric(metric, now_ns) for metric in metrics]
        self._last_ns = now_ns
        self._before, self._now = self._now, {}
        scope = ScopeMetrics(
            InstrumentationScope(SCOPE), [each for each in found if each.data.data_points], ""
        )
        return MetricsData([ResourceMetrics(Resource.get_empty(), [scope], "")])

    def _metric(self, metric: collection.Metric, now_ns: int) -> Any:
        name, unit = named(metric.name)
        delta = self._in_delta and metric.kind != "gauge"
        begin_ns = self._last_ns if delta else self._begin_ns
        way = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE
        points: list[Any] = []
        for labels, value in metric.numbers:
            shown = value - self._since(metric.name, labels, value, 0) if delta else value
            points.append(NumberDataPoint(labels, begin_ns, now_ns, shown))
        for labels, kept in metric.distributions:
            counts, total = kept.counts, kept.total
            if delta:
                none = ((0,) * len(counts), 0)
                counts_before, total_before = self._since(metric.name, labels, (counts, total), none)
                counts = tuple(now - then for now, then in zip(counts, counts_before, strict=True))
                total -= total_before
            points.append(
                HistogramDataPoint(
                    labels, begin_ns, now_ns, sum(counts), total, counts, kept.bounds, None, None
                )
            )
        if metric.kind == "histogram":
            data = Histogram(points, way)
        elif metric.kind == "counter":
            data = Sum(points, way, is_monotonic=True)
        else:
            data = Gauge(points)
        return Metric(name, metric.meaning, unit, data)

    def _since(self, name: str, labels: Any, value: Any, none: Any) -> Any:
        """The last exported value of a series; ``none`` if the value has become smaller, as it began anew."""
        key = name, frozenset(labels.items())
        before = self._before.get(key, none)
        self._now[key] = value
        return none if value < before else before


def _otlp(settings: ExportSettings) -> Any:
    return OTLPMetricExporter(
        endpoint=settings.endpoint,
        insecure=settings.endpoint.startswith("http://"),
        headers=settings.headers,
        timeout=settings.timeout_ms / 1000,
        max_export_batch_size=settings.batch,
    )


def _logging() -> Any:
    return ConsoleMetricExporter(out=_Lines(), formatter=lambda data: "\n".join(_lines(data)))


def _lines(data: Any) -> Iterator[str]:
    """The metrics as lines of JSON in the SDK's form; a metric with many series takes several lines."""
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.data.data_points
                for begin in range(0, len(points), PER_LINE):
                    part = replace(metric.data, data_points=points[begin : begin + PER_LINE])
                    text = replace(metric, data=part).to_json(indent=None)
                    yield json.dumps(json.loads(text), separators=(",", ":"))


class _Lines:
    """A file whose lines go into the log."""

    def write(self, text: str) -> None:
        for line in text.splitlines():
            log.info("metrics: %s", line)

    def flush(self) -> None:
        """Do nothing, because no line is buffered."""


class _Heard(logging.Handler):
    """Keeps the SDK's last sentence about a failure, which the server writes to its own log once.

    Attributes:
        text: the sentence.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
