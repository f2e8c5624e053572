"""``df.write``: a job has no replay, but Spark retries its tasks and stages, and no row is sent twice."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType
from tests.unit.sink_brokers import ScriptedBrokers, scripted

from orbitmq.spark.errors import OptionError, SinkStateError
from orbitmq.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions
from orbitmq.spark.write.commit import Written
from orbitmq.spark.write.sink import BatchWriter

SCHEMA = StructType().add("body", StringType())
ROWS = range(300)


class KilledError(Exception):
    """The Python worker is gone."""


class Job:
    """One job as Spark runs it: a writer made on the driver and pickled into each task."""

    def __init__(self, brokers: ScriptedBrokers, patch: pytest.MonkeyPatch, **values: Any) -> None:
        options = WriteOptions(topic="t", batch_bytes=2100, pipeline=2, **values)
        self.writer = BatchWriter(options, SCHEMA, overwrite=False)
        self._brokers = brokers
        self._patch = patch
        self._attempts = itertools.count()

    def task(self, rows: Sequence[int], *, partition: int = 0, attempt: int = 0) -> Written:
        """Run a task; Spark counts attempts from 0 again in each attempt of the stage."""
        number = next(self._attempts)
        context = SimpleNamespace(
            partitionId=lambda: partition,
            attemptNumber=lambda: attempt,
            taskAttemptId=lambda: number,
        )
        self._patch.setattr(TaskContext, "get", lambda: context)
        writer: BatchWriter = pickle.loads(pickle.dumps(self.writer))
        batches = [pa.record_batch({"body": [str(row) for row in rows]})]
        return writer.write(iter(batches))

    def killed_task(self, rows: Sequence[int], *, partition: int = 0) -> int:
        """Run a first attempt that is killed after two requests; returns the number of its messages."""
        before = len(self._brokers.messages())
        sends = self._brokers.sends

        def kill() -> None:
            if self._brokers.sends > sends + 2:
                raise KilledError

        self._brokers.before_send = kill
        with pytest.raises(KilledError):
            self.task(rows, partition=partition)
        self._brokers.before_send = lambda: None
        stored = len(self._brokers.messages()) - before
        assert 0 < stored < len(rows)
        return stored


def left_out(done: Written) -> int:
    """The number of rows that a task skipped because earlier attempts had stored them."""
    return len(done.matched) // 8


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    return scripted(monkeypatch)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """The folder for the state of a job."""
    return str(tmp_path)


def test_a_task_tried_again_sends_what_is_missing(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    job = Job(brokers, monkeypatch, state_location=location)
    stored = job.killed_task(ROWS)
    sister = job.task(range(300, 310), partition=1)
    again = job.task(ROWS[::-1], attempt=1)
    assert (left_out(again), again.metrics.rows) == (stored, len(ROWS) - stored)
    job.writer.commit([again, sister])
    assert brokers.bodies() == list(range(310))


def test_a_stage_tried_again_sends_what_is_missing(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """Spark counts from attempt 0 again; the earlier attempts have left a file."""
    job = Job(brokers, monkeypatch, state_location=location)
    stored = job.killed_task(ROWS)
    sister = job.task(range(300, 310), partition=1)
    assert left_out(sister) == 0
    again = job.task(ROWS)
    assert left_out(again) == stored
    job.writer.commit([again, sister])
    assert brokers.bodies() == list(range(310))


@pytest.mark.behaviour("SP-13")
def test_without_a_folder_a_job_is_at_least_once_and_says_so(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(brokers, monkeypatch)
    assert caplog.messages == [
        "rows of a task that Spark tries again are sent again (delivery=at-least-once): "
        "with a folder as stateLocation each is stored once"
    ]
    stored = job.killed_task(ROWS)
    job.writer.commit([job.task(ROWS, attempt=1)])
    assert len(brokers.bodies()) == len(ROWS) + stored
    caplog.clear()
    Job(brokers, monkeypatch, delivery=AT_LEAST_ONCE)
    assert not caplog.messages, "that was asked for"


@pytest.mark.behaviour("SP-13")
def test_a_job_that_asks_for_exactly_once_needs_a_folder(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OptionError, match="delivery=exactly-once needs the option stateLocation, a folder"):
        Job(brokers, monkeypatch, delivery=EXACTLY_ONCE)


def test_at_least_once_sends_again(brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(brokers, monkeypatch, delivery=AT_LEAST_ONCE)
    stored = job.killed_task(ROWS)
    job.writer.commit([job.task(ROWS, attempt=1)])
    assert len(brokers.bodies()) == len(ROWS) + stored


def test_with_a_state_location_the_driver_finds_other_rows(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A repeated shuffle may put a row into another partition, which only the driver sees."""
    job = Job(brokers, monkeypatch, state_location=str(tmp_path))
    stored = job.killed_task(ROWS)
    done = [job.task(range(1000, 1300)), job.task(ROWS, partition=1)]
    words = (
        rf"{stored} of the {stored} messages .* fit none of its 600 rows.*run again, it sends all of its rows"
    )
    with pytest.raises(SinkStateError, match=words):
        job.writer.commit(done)


def test_equal_rows_of_a_task_tried_again_are_each_sent_once(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    job = Job(brokers, monkeypatch, state_location=location)
    job.killed_task([7] * 300)
    job.writer.commit([job.task([7] * 300, attempt=1), job.task([7] * 10, partition=1)])
    assert Counter(brokers.bodies()) == {7: 310}
