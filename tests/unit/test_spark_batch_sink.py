"""``df.write``: a job has no replay, but Spark tries its tasks and stages again: nothing is sent twice."""

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

from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.options import AT_LEAST_ONCE, CLUSTER, WriteOptions
from orbitmq.spark.write.commit import Written
from orbitmq.spark.write.ledger import CLOCK_MARGIN_MS
from orbitmq.spark.write.sink import BatchWriter

SCHEMA = StructType().add("body", StringType())
ROWS = range(300)


class KilledError(Exception):
    """A Python worker is gone."""


class Job:
    """One job as Spark runs it: a writer made on the driver and pickled into each task."""

    def __init__(self, brokers: ScriptedBrokers, patch: pytest.MonkeyPatch, **values: Any) -> None:
        options = WriteOptions(topic="t", batch_bytes=2100, pipeline=2, **values)
        self.writer = BatchWriter(options, SCHEMA, overwrite=False)
        self._brokers = brokers
        self._patch = patch
        self._attempts = itertools.count()

    def task(self, rows: Sequence[int], *, partition: int = 0, attempt: int = 0) -> Written:
        """Run a task; Spark counts its attempts anew in each attempt of the stage."""
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
        """A first attempt that is killed after two requests; how many messages these were."""
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


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    return scripted(monkeypatch)


@pytest.fixture(params=["no place", CLUSTER, "folder"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Each place where the state of a job may be; for a job the cluster is none."""
    places: dict[str, str | None] = {"no place": None, CLUSTER: CLUSTER, "folder": str(tmp_path)}
    return places[request.param]


def test_a_task_tried_again_sends_what_is_missing(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str | None
) -> None:
    job = Job(brokers, monkeypatch, state_location=location)
    stored = job.killed_task(ROWS)
    sister = job.task(range(300, 310), partition=1)
    again = job.task(ROWS[::-1], attempt=1)
    assert (again.earlier, again.unmatched, again.metrics.rows) == (stored, 0, len(ROWS) - stored)
    job.writer.commit([again, sister])
    assert brokers.bodies() == list(range(310))


def test_without_a_state_location_a_task_looks_from_where_the_job_began(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(brokers, monkeypatch)
    job.killed_task(ROWS)
    assert not brokers.searched_ms, "a first attempt has nothing to look for"
    job.task(ROWS, attempt=1)
    assert set(brokers.searched_ms) == {job.writer._started_ms - CLOCK_MARGIN_MS}
    assert any(each.fence for each in brokers.bound), "the first attempt was ended before"


def test_a_stage_tried_again_sends_what_is_missing(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str | None
) -> None:
    """Spark counts from attempt 0 then: the attempts before have left a file, or a mark in the brokers."""
    job = Job(brokers, monkeypatch, state_location=location)
    stored = job.killed_task(ROWS)
    sister = job.task(range(300, 310), partition=1)
    assert sister.earlier == 0
    again = job.task(ROWS)
    assert again.earlier == stored
    job.writer.commit([again, sister])
    assert brokers.bodies() == list(range(310))


@pytest.mark.behaviour("SP-01")
def test_a_task_tried_again_waits_for_a_broker_that_the_job_began_with(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(brokers, monkeypatch, retry_timeout_ms=50)
    job.killed_task(ROWS)
    gone = next(queue for queue, log in brokers.stored.items() if log).broker_name
    brokers.gone = {f"{gone}:1"}
    with pytest.raises(UnreachableError, match=f"the master of .*{gone}.* is away"):
        job.task(ROWS, attempt=1)
    brokers.gone = set()
    job.task(ROWS, attempt=2)
    assert brokers.bodies() == list(ROWS)


def test_the_mark_is_of_one_job_and_one_partition(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, job, later = (Job(brokers, monkeypatch) for _ in range(3))
    runs = ["1", "2", "3"]
    for each, run in zip((before, job, later), runs, strict=True):
        each.writer._run = run
    before.task(ROWS)
    assert set(brokers.marks.values()) == {int(runs[0], 16)}
    job.task(ROWS)
    assert not brokers.searched_ms, "a job before this one is no attempt of it"
    later.task(ROWS)
    assert {queue.queue_id for queue in brokers.marks} == {65_533}
    assert job.task(ROWS).metrics.rows == 0, "a later job has written over its mark: it looks"
    assert set(brokers.marks.values()) == {int(runs[2], 16)}, "and leaves that one's"
    job.task(ROWS, partition=1)
    assert {queue.queue_id for queue in brokers.marks} == {65_533, 65_532}


def test_a_broker_that_keeps_no_mark_is_told_of(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.refuses_groups = True
    job = Job(brokers, monkeypatch)
    job.killed_task(ROWS)
    assert "sends again what it has sent if its stage is tried again" in caplog.text
    assert job.task(ROWS, attempt=1).metrics.rows < len(ROWS), "a task's own attempt needs no mark"


def test_at_least_once_sends_again(brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(brokers, monkeypatch, delivery=AT_LEAST_ONCE)
    stored = job.killed_task(ROWS)
    job.writer.commit([job.task(ROWS, attempt=1)])
    assert len(brokers.bodies()) == len(ROWS) + stored


def test_a_task_tried_again_with_other_rows_fails_with_counts(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(brokers, monkeypatch)
    stored = job.killed_task(ROWS)
    words = (
        rf"task job-\w+/0/0 was tried again with other rows: {stored} of the {stored} messages that it "
        r"stored before fit none of its 300 rows"
    )
    with pytest.raises(SinkStateError, match=words):
        job.task(range(1000, 1300), attempt=1)


def test_with_a_state_location_the_driver_finds_other_rows(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A shuffle that is computed again may put a row into another partition: that is only seen as a whole."""
    job = Job(brokers, monkeypatch, state_location=str(tmp_path))
    stored = job.killed_task(ROWS)
    done = [job.task(range(1000, 1300)), job.task(ROWS, partition=1)]
    words = (
        rf"{stored} of the {stored} messages .* fit none of its 600 rows.*run again, it sends all of its rows"
    )
    with pytest.raises(SinkStateError, match=words):
        job.writer.commit(done)


def test_equal_rows_of_a_task_tried_again_are_each_sent_once(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch, location: str | None
) -> None:
    job = Job(brokers, monkeypatch, state_location=location)
    job.killed_task([7] * 300)
    job.writer.commit([job.task([7] * 300, attempt=1), job.task([7] * 10, partition=1)])
    assert Counter(brokers.bodies()) == {7: 310}
