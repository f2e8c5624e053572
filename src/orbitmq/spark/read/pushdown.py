"""Filters of a batch query that the reader takes over from Spark. Does no I/O.

Filters on queues, offsets and times narrow the ranges that are read; filters on tags go to the broker. A
filter is taken over only if every returned row then satisfies it exactly, since Spark does not evaluate it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from orbitmq.message import columns as names
from orbitmq.message.model import MessageQueue
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import BROKER

# Columns that have a value in every message.
_NEVER_NULL = (names.TOPIC, BROKER, names.QUEUE_ID, names.QUEUE_OFFSET, names.STORE_TIMESTAMP)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``low``, included, to ``high``, excluded; ``None`` for no limit."""

    low: int | None = None
    high: int | None = None

    def narrowed(self, low: int | None, high: int | None) -> Span:
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Span(max(lows, default=None), min(highs, default=None))

    def __contains__(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number < self.high)


# For each filter class, the function from the filter's value to the span of numbers that pass. The value is
# split into whole units and whether it has a fraction (a time has microseconds below its milliseconds).
_SPANS: dict[str, Callable[[int, bool], tuple[int | None, int | None]]] = {
    "EqualTo": lambda floor, more: (floor + more, floor + 1),
    "GreaterThan": lambda floor, more: (floor + 1, None),
    "GreaterThanOrEqual": lambda floor, more: (floor + more, None),
    "LessThan": lambda floor, more: (None, floor + more),
    "LessThanOrEqual": lambda floor, more: (None, floor + 1),
}


class PushedFilters:
    """The filters that the reader has taken over from Spark.

    Args:
        tags: whether filters on tags may be taken over, which is not possible with another filter at the
            broker.

    Attributes:
        tags: the subscription for the brokers, as ``"a || b"``; ``None`` if no filter on tags was taken over.
        times: the span of store times, in milliseconds since 1970.
    """

    def __init__(self, *, tags: bool) -> None:
        self.tags: str | None = None
        self.times = Span()
        self._may_take_tags = tags
        self._texts: dict[str, frozenset[str]] = {}
        self._ids: frozenset[int] | None = None
        self._spans = {names.QUEUE_ID: Span(), names.QUEUE_OFFSET: Span()}

    def take(self, kind: str, column: str, value: Any) -> bool:
        """Take one filter over, if possible; returns whether it was taken over.

        Args:
            kind: the name of Spark's filter class.
            value: the value that the column is compared with; for ``In`` all values.
        """
        column = column.lower()
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        if value is None:
            return False
        kind = "EqualTo" if kind == "EqualNullSafe" else kind
        if column in (names.TOPIC, BROKER):
            return self._take_texts(kind, column, value)
        if column == names.TAGS:
            return self._take_tags(kind, value)
        if column in self._spans:
            return self._take_numbers(kind, column, value)
        if column == names.STORE_TIMESTAMP and kind in _SPANS:
            below_ms, more = divmod((value - _EPOCH) // _MICROSECOND, 1000)
            self.times = self.times.narrowed(*_SPANS[kind](below_ms, more > 0))
            return True
        return False

    def ranges(self, ranges: Iterable[QueueRange]) -> Iterator[QueueRange]:
        """The ranges of a read, narrowed by the filters."""
        offsets = self._spans[names.QUEUE_OFFSET]
        for item in ranges:
            if self._has(item.queue):
                low = item.low if offsets.low is None else max(item.low, offsets.low)
                high = item.high if offsets.high is None else min(item.high, offsets.high)
                if low < high:
                    yield QueueRange(item.queue, low, high)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose store times pass; a narrowed range may hold other rows."""
        if self.times == Span():
            return batch
        # This import takes 50 ms, so it happens only if it is needed.
        import pyarrow.compute as pc

        at = next(i for i, name in enumerate(batch.schema.names) if name.lower() == names.STORE_TIMESTAMP)
        stored = batch.column(at).cast(pa.int64())
        for bound, passes in ((self.times.low, pc.greater_equal), (self.times.high, pc.less)):
            if bound is not None:
                keep = passes(stored, pa.scalar(bound * 1000, pa.int64()))
                batch, stored = batch.filter(keep), stored.filter(keep)
        return batch

    def _has(self, queue: MessageQueue) -> bool:
        places = {names.TOPIC: queue.topic, BROKER: queue.broker_name}
        return (
            all(places[column] in wanted for column, wanted in self._texts.items())
            and (self._ids is None or queue.queue_id in self._ids)
            and queue.queue_id in self._spans[names.QUEUE_ID]
        )

    def _take_texts(self, kind: str, column: str, value: Any) -> bool:
        wanted = _values(kind, value)
        if wanted is None:
            return False
        known = self._texts.get(column)
        self._texts[column] = wanted if known is None else known & wanted
        return True

    def _take_tags(self, kind: str, value: Any) -> bool:
        wanted = _values(kind, value)
        if not wanted or not self._may_take_tags or not all(map(_is_tag, wanted)):
            return False
        self._may_take_tags = False  # two sets of tags would be two filters
        self.tags = " || ".join(sorted(wanted))
        return True

    def _take_numbers(self, kind: str, column: str, value: Any) -> bool:
        if kind in _SPANS:
            self._spans[column] = self._spans[column].narrowed(*_SPANS[kind](value, False))
            return True
        if kind != "In" or column != names.QUEUE_ID:
            return False
        wanted = frozenset(value)
        self._ids = wanted if self._ids is None else self._ids & wanted
        return True


def _values(kind: str, value: Any) -> frozenset[str] | None:
    if kind == "EqualTo":
        return frozenset([value])
    return frozenset(entry for entry in value if entry is not None) if kind == "In" else None


def _is_tag(text: str) -> bool:
    """Whether a subscription can name this tag."""
    return bool(text) and text == text.strip() and "|" not in text and text != "*"
