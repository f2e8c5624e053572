"""The page ``/metrics`` of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics.counted import Counted
from orbitmq.broker.metrics.figures import Figures
from orbitmq.broker.metrics.topics import Topics
from orbitmq.monitoring.exposition import CONTENT_TYPE, Exposition
from orbitmq.monitoring.http import Answer

log = logging.getLogger(__name__)


class MetricsPage:
    """Reads the figures for a scrape; requests meanwhile get the same text.

    Args:
        reasons: gives why the broker is not ready.
        serving: tells whether the broker's parts work.
    """

    def __init__(
        self,
        config: BrokerConfig,
        figures: Figures,
        counted: Counted,
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
        self._reading: asyncio.Future[bytes] | None = None
        self._warned = False

    async def answer(self) -> Answer:
        """The page's present text."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._read_once)
        return Answer(200, await asyncio.shield(self._reading), CONTENT_TYPE)

    async def stop(self) -> None:
        """Cancel the reading that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _read_once(self, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # the connections log it

    async def _read(self) -> bytes:
        config = self._config
        common = {
            **config.metric_labels,
            "node_type": "broker",
            "cluster": config.broker_cluster_name,
            "node_id": config.broker_name,
        }
        limit = config.metrics_series
        # One place is for the series that says that some were left out.
        text = Exposition(common, limit - 1)
        ready = text.family("orbitmq_ready", "gauge", "1 when clients can use the broker, as /readyz")
        ready.add(int(not self._reasons()))
        self._figures.process.write(text)
        if self._serving():
            self._figures.write(text)
            await self._counted.write(text)
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
        return text.render()
