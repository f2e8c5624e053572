"""One line in the log for each batch of a streaming query: its rows, and the number of rows still to read.

::

    from orbitmq.spark.progress import watch

    watch(spark)

The line contains Spark's own figures. For other tools, give the query a ``groupId``: brokers then hold its
progress, like a consumer group's.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override

from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import OffsetError

log = logging.getLogger("orbitmq.spark")


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Logs a line for each batch of each query that reads topics. To be used through :func:`watch`."""

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: whether the query reads topics is not known yet."""

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        ours = [
            (source, place)
            for source in progress.sources
            if (place := _offsets(source.endOffset)) is not None
        ]
        if not ours:
            return
        rows = sum(source.numInputRows for source, _ in ours)
        behind = [_behind(place, _offsets(source.latestOffset)) for source, place in ours]
        late = "" if None in behind else f"; behind by {sum(filter(None, behind))} rows"
        name = progress.name or progress.id
        log.info("query %s, batch %d: %d rows%s", name, progress.batchId, rows, late)

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has no batch to log."""

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: Spark logs the end of a query itself."""


def watch(spark: SparkSession) -> ProgressListener:
    """Log a line for each batch of the session's queries (``orbitmq.spark``, level INFO).

    Call it before the queries are started.
    """
    listener = ProgressListener()
    spark.streams.addListener(listener)
    return listener


def _behind(place: Offsets, ends: Offsets | None) -> int | None:
    """Number of rows that are not read yet; ``None`` if Spark does not report the ends of the queues (4.0 and
    4.1).
    """
    if ends is None:
        return None
    return sum(max(0, ends[queue] - offset) for queue, offset in place.items() if queue in ends)


def _offsets(text: Any) -> Offsets | None:
    """The offsets in Spark's progress of a source; ``None`` if it has none, or the source has another
    format.
    """
    try:
        return Offsets.from_json(json.loads(text) if isinstance(text, str) else text)
    except (ValueError, OffsetError):
        return None
