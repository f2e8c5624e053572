"""Exports the metrics of a server at intervals, to a receiver of OpenTelemetry or into the log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StartError
from orbitmq.monitoring.collection import Collection
from orbitmq.runtime.imports import is_missing
from orbitmq.runtime.seam import Runtime
from orbitmq.settings.exports import LOG, OTLP_GRPC, ExportSettings

if TYPE_CHECKING:
    from orbitmq.monitoring.otel import Exporter

log = logging.getLogger(__name__)

KINDS: Final = frozenset({OTLP_GRPC, LOG})
# The most series that are written into the log each time, since people read it.
LOG_SERIES: Final = 2_000


class Exports:
    """Reads a server's metrics and exports them while :meth:`run` runs.

    Args:
        kind: ``OTLP_GRPC`` or ``LOG``.
        collect: returns the metrics, with at most the given number of series.

    Raises:
        StartError: the libraries are not installed.
    """

    def __init__(
        self,
        runtime: Runtime,
        kind: str,
        settings: ExportSettings,
        collect: Callable[[int], Awaitable[Collection]],
        limit: int,
    ) -> None:
        try:
            from orbitmq.monitoring.otel import Exporter
        except ImportError as error:
            if not is_missing(error):
                raise
            raise StartError(
                f"metricsExporterType={kind} needs the OpenTelemetry SDK: pip install 'orbitmq[otel]', or "
                "set it to PROM or DISABLE"
            ) from error
        self._clock = runtime.clock
        self._threads = runtime.threads.pool(1)
        self._collect = collect
        self._limit = min(limit, LOG_SERIES) if kind == LOG else limit
        self._interval_s = (settings.log_interval_ms if kind == LOG else settings.interval_ms) / 1000
        self._receiver = settings.endpoint if kind == OTLP_GRPC else "the log"
        self._exporter: Exporter = Exporter(kind, settings, runtime.clock.now_ms())
        self._failing = False

    async def run(self) -> None:
        """Export once in each interval, without end."""
        while True:
            await self._clock.sleep(self._interval_s)
            await self._once()

    async def _once(self) -> None:
        try:
            metrics = (await self._collect(self._limit)).metrics
            wrong = await self._threads.run(self._exporter.export, metrics, self._clock.now_ms())
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong and not self._failing:
            log.warning("metrics do not reach %s: %s; said once until they do", self._receiver, wrong)
        elif self._failing and not wrong:
            log.info("metrics reach %s again", self._receiver)
        self._failing = bool(wrong)

    def close(self) -> None:
        """Stop, without waiting for an export under way."""
        self._exporter.close()
        self._threads.close(wait=False)
