"""Filters of batch reads: each filter that the source takes over holds for exactly the rows that it
returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from orbitmq.message.model import MessageQueue
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.read.pushdown import PushedFilters

START = datetime(2026, 11, 22, tzinfo=UTC)
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda one, others: one in others,
}
RANGES = [
    QueueRange(MessageQueue(topic, broker, number), 5, 25)
    for topic in ("orders", "flights")
    for broker in ("broker-a", "broker-b")
    for number in (0, 1, 2)
]


def row(queue: MessageQueue, offset: int) -> dict[str, Any]:
    place = {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
    return {**place, "queue_offset": offset, "store_timestamp": START + timedelta(milliseconds=offset)}


_kinds = st.sampled_from(sorted(set(COMPARED) - {"In"}))
_numbers = st.tuples(_kinds, st.sampled_from(["queue_id", "queue_offset"]), st.integers(-2, 30))
_ids = st.tuples(st.just("In"), st.just("queue_id"), st.lists(st.integers(0, 4), max_size=3).map(tuple))
_texts = st.tuples(
    st.sampled_from(["EqualTo", "EqualNullSafe"]),
    st.sampled_from(["topic", "broker", "BROKER"]),
    st.sampled_from(["orders", "flights", "broker-a", "broker-b", "x"]),
)
_names = st.tuples(st.just("In"), st.just("broker"), st.just(("broker-b", "broker-z")))
_times = st.tuples(
    _kinds,
    st.just("store_timestamp"),
    st.integers(-2000, 30_000).map(lambda us: START + timedelta(microseconds=us)),
)


@given(st.lists(_numbers | _ids | _texts | _names | _times, max_size=4))
def test_what_is_left_is_what_the_filters_ask_for(filters: list[tuple[str, str, Any]]) -> None:
    pushed = PushedFilters(tags=True)
    taken = [entry for entry in filters if pushed.take(*entry)]
    assert taken == filters
    left = [row(r.queue, offset) for r in pushed.ranges(RANGES) for offset in range(r.low, r.high)]
    batch = (
        pa.Table.from_pylist(
            left, schema=pa.schema([(n, t) for n, t in zip(row(RANGES[0].queue, 0), KINDS, strict=True)])
        )
        .combine_chunks()
        .to_batches()
    )
    got = pushed.rows(batch[0]).to_pylist() if batch else []
    everything = [row(r.queue, offset) for r in RANGES for offset in range(r.low, r.high)]
    wanted = [
        entry
        for entry in everything
        if all(COMPARED[kind](entry[column.lower()], value) for kind, column, value in filters)
    ]
    assert got == wanted


KINDS = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))


def test_tags_go_to_the_broker_once() -> None:
    pushed = PushedFilters(tags=True)
    assert pushed.take("In", "tags", ("red", "blue"))
    assert pushed.tags == "blue || red"
    assert not pushed.take("EqualTo", "tags", "red"), "a second set would be a second filter"
    assert not PushedFilters(tags=False).take("EqualTo", "tags", "red"), "the broker filters already"
    for text in ("a || b", "*", "", " a"):
        assert not PushedFilters(tags=True).take("EqualTo", "tags", text)


def test_what_cannot_be_exact_is_left_to_spark() -> None:
    pushed = PushedFilters(tags=True)
    for entry in (
        ("GreaterThan", "topic", "a"),
        ("EqualTo", "body", b"x"),
        ("In", "queue_offset", (1, 2)),
        ("StringContains", "tags", "a"),
        ("IsNull", "tags", None),
        ("EqualTo", "broker", None),
        ("IsNotNull", "tags", None),
    ):
        assert not pushed.take(*entry), entry
    assert pushed.take("IsNotNull", "queue_offset", None)
    assert list(pushed.ranges(RANGES)) == RANGES
