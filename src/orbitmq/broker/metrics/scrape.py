"""Reads all figures of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics.counted import CountedMetrics
from orbitmq.broker.metrics.figures import Figures
from orbitmq.broker.metrics.topics import Topics
from orbitmq.monitoring.collection import Collection
from orbitmq.monitoring.exposition import Exposition

log = logging.getLogger(__name__)


class Scrape:
    """Writes a broker's figures, with pauses for the event loop's other work.

    Args:
        reasons: returns why the broker is not ready.
        serving: returns whether the broker's parts work.
    """

    def __init__(
        self,
        config: BrokerConfig,
        figures: Figures,
        counted: CountedMetrics,
        topics: Topics,
        reasons: Callable[[], Sequence[str]],
        serving: Callable[[], bool],
    ) -> None:
        self._config = config
        self._figures = figures
        self._counted = counted
        self._topics = topics
        self._reasons = reasons
        self._serving = serving
        self._warned = False

    def _labels(self) -> dict[str, str]:
        config = self._config
        return {
            **config.metric_labels,
            "node_type": "broker",
            "cluster": config.broker_cluster_name,
            "node_id": config.broker_name,
        }

    async def text(self) -> Exposition:
        """The figures as Prometheus's text."""
        limit = self._config.metrics_series
        # One series is kept free for the one that shows that others were left out.
        text = Exposition(self._labels(), limit - 1)
        await self._write(text, limit)
        return text

    async def collected(self, limit: int) -> Collection:
        """The figures as data, with at most ``limit`` series."""
        labels = self._labels()
        if self._config.exports.in_delta:
            labels["aggregation"] = "delta"
        collection = Collection(labels, limit - 1)
        await self._write(collection, limit)
        return collection

    async def _write(self, text: Exposition, limit: int) -> None:
        ready = text.family("orbitmq_ready", "gauge", "1 when clients can use the broker, as /readyz")
        ready.add(int(not self._reasons()))
        self._figures.process.write(text)
        await asyncio.sleep(0)
        if self._serving():
            self._figures.write(text)
            await asyncio.sleep(0)
            await self._counted.write(text)
            await asyncio.sleep(0)
            await self._topics.write(text, self._serving)
        cut = text.cut
        text.give_place()
        text.family(
            "orbitmq_metrics_series_cut", "gauge", "Series left out for metricsOtelCardinalityLimit"
        ).add(cut)
        if cut and not self._warned:
            self._warned = True
            log.warning(
                "metrics: %d series are left out, metricsOtelCardinalityLimit is %d; said once", cut, limit
            )
