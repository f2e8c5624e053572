"""Streams as Spark 4.0 and 4.1 read them, by the calls of these versions."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import read_options
from orbitmq.spark.read import stream as planner
from orbitmq.spark.read.older_stream_reader import OlderStreamReader
from orbitmq.spark.read.positions import KnownOffsets
from orbitmq.spark.schema import message_schema

QUEUE = MessageQueue("t", "broker-a", 0)


class Positions:
    """One queue whose end a test moves."""

    end = 100

    def __init__(self, options: Any) -> None:
        self.options, self.brokers = options, Brokers([], 0)

    def where_in_time(self, request: Any, *, every_queue: bool) -> KnownOffsets:
        return KnownOffsets(Offsets({QUEUE: 0}), {}, {})

    def latest_where_possible(self) -> KnownOffsets:
        return KnownOffsets(Offsets({QUEUE: self.end}), {}, {})

    def first_of(self, queues: set[MessageQueue]) -> dict[MessageQueue, int]:
        assert not queues
        return {}

    def unknown_firsts(self, start: Offsets, end: Offsets) -> dict[MessageQueue, int]:
        return {}

    def bytes_of(self, ranges: Any) -> int:
        return 0

    def check_filter(self, ranges: Any) -> None: ...

    def check_place(self, place: Offsets) -> None: ...


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Positions]:
    monkeypatch.setattr(planner, "Positions", Positions)
    monkeypatch.setattr(Positions, "end", 100)
    return Positions


class OlderSpark:
    """Makes the calls of MicroBatchExecution to a Python source, and keeps the ends of batches."""

    def __init__(self, ends: list[dict[str, Any]], **options: str) -> None:
        self.reader = OlderStreamReader(read_options({"topic": "t", **options}), message_schema())
        self.ends = ends
        if ends:
            # AcceptsLatestSeenOffset requests the tasks between the last offsets and the same offsets.
            assert self.reader.partitions(ends[-1], ends[-1]) == []

    def trigger(self) -> tuple[int, int] | None:
        """Run one batch; returns its first and last offset."""
        latest = self.reader.latestOffset()
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        if latest == start:
            return None
        if self.ends:
            self.reader.commit(self.ends[-1])
        self.ends.append(latest)
        ranges = [item for task in self.reader.partitions(start, latest) for item in task.ranges]
        return min(item.low for item in ranges), max(item.high for item in ranges)


def test_a_limit_counts_from_the_last_batch_and_from_a_checkpoint(cluster: type[Positions]) -> None:
    spark = OlderSpark([], maxRowsPerTrigger="30")
    assert [spark.trigger() for _ in range(2)] == [(0, 30), (30, 60)]
    again = OlderSpark(spark.ends, maxRowsPerTrigger="30")
    assert [again.trigger() for _ in range(3)] == [(60, 90), (90, 100), None]
    cluster.end = 105
    assert again.trigger() == (100, 105)


def test_without_limits_a_batch_holds_everything_so_that_available_now_is_complete() -> None:
    spark = OlderSpark([])
    assert [spark.trigger(), spark.trigger()] == [(0, 100), None]


def test_a_limit_warns_that_available_now_ends_early(caplog: pytest.LogCaptureFixture) -> None:
    OlderSpark([])
    assert not caplog.records
    OlderSpark([], maxBytesPerTrigger="1m")
    assert "ends after its first batch" in caplog.text


def test_a_topic_that_nobody_knows_is_an_error_when_a_query_begins_and_not_when_its_first_batch_is_run_again(
    cluster: type[Positions], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = OlderSpark([])
    assert first.trigger() == (0, 100)

    def unknown(*_: Any, **__: Any) -> KnownOffsets:
        raise TopicNotFoundError("t", "t is unknown")

    monkeypatch.setattr(Positions, "where_in_time", unknown)
    begins = OlderSpark([])
    with pytest.raises(TopicNotFoundError, match="t is unknown"):
        begins.trigger()
    again = OlderSpark([]).reader
    (task,) = again.partitions(again.initialOffset(), first.ends[0])
    assert [(item.low, item.high) for item in task.ranges] == [(0, 100)]  # type: ignore[attr-defined]


@pytest.mark.behaviour("SP-07")
def test_a_run_does_not_end_because_the_cluster_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = OlderSpark([Offsets({QUEUE: 0}).to_json()])
    answers: list[Any] = [UnreachableError("no name server"), KnownOffsets(Offsets({QUEUE: 100}), {}, {})]

    def told(_: Any) -> KnownOffsets:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast(KnownOffsets, answer)

    monkeypatch.setattr(Positions, "latest_where_possible", told)
    assert spark.trigger() == (0, 100)


def test_few_rows_wait() -> None:
    spark = OlderSpark([], minRowsPerTrigger="500", maxTriggerDelay="1h")
    assert spark.trigger() is None
    Positions.end = 600
    assert spark.trigger() == (0, 600)
