"""The metrics of a server as data, for exporters other than Prometheus's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orbitmq.monitoring.exposition import Exposition, LabelRows, MetricFamily
from orbitmq.runtime.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Distribution:
    """A copy of a histogram's state."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(slots=True)
class Metric:
    """One metric with its series.

    Attributes:
        kind: ``counter``, ``gauge`` or ``histogram``.
        numbers: the series of counters and gauges, each with its labels.
        distributions: the series of histograms, each with its labels.
    """

    name: str
    kind: str
    meaning: str
    numbers: list[tuple[Mapping[str, str], float]] = field(default_factory=list)
    distributions: list[tuple[Mapping[str, str], Distribution]] = field(default_factory=list)


class Collection(Exposition):
    """A page of metrics that keeps its families as data.

    Attributes:
        metrics: the metrics written so far.
    """

    def __init__(self, common: Mapping[str, str], limit: int) -> None:
        super().__init__(common, limit)
        self.labels = dict(common)
        self.metrics: list[Metric] = []

    def new_family(self, name: str, kind: str, meaning: str, common: Mapping[str, str]) -> MetricFamily:
        metric = Metric(name, kind, meaning)
        self.metrics.append(metric)
        return _Kept(self, metric, common)


class _Kept(MetricFamily):
    def __init__(self, collection: Collection, metric: Metric, common: Mapping[str, str]) -> None:
        super().__init__(collection, metric.name, metric.kind, metric.meaning, common)
        self._collection = collection
        self._metric = metric
        self._labels = {**collection.labels, **common}

    def add(self, value: float, **labels: str) -> None:
        if self._collection.take():
            self._metric.numbers.append(({**self._labels, **labels}, value))

    def add_rows(self, values: Sequence[int], rows: LabelRows) -> None:
        taken = self._collection.take_some(len(values))
        for value, row in zip(values[:taken], rows.rows, strict=False):
            labels = dict(zip(rows.names, row, strict=True))
            self._metric.numbers.append(({**self._labels, **labels}, value))

    def add_histogram_rows(self, found: Sequence[Histogram], rows: LabelRows) -> None:
        for each, row in zip(found, rows.rows, strict=False):
            self.add_histogram(each, **dict(zip(rows.names, row, strict=True)))

    def add_histogram(self, found: Histogram, **labels: str) -> None:
        if self._collection.take(len(found.bounds) + 3):
            kept = Distribution(found.bounds, tuple(found.counts), found.total)
            self._metric.distributions.append(({**self._labels, **labels}, kept))
