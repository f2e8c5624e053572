"""The queues that a run of the archive finds, and those that it skips, against a scripted cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.spark import versions

if not versions.HAS_READ_LIMITS:
    pytest.skip("another version of PySpark: 4.2 or later", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.unit.spark_cluster import A0, A1, B0, ScriptedCluster, places, rows_of, scripted

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime import worker
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.cluster.places import Start
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.jobs import archiving
from orbitmq.spark.jobs.archive_look import LeftOut, check_topics, look
from orbitmq.spark.jobs.archive_source import BEGINS, ENDS, ArchiveReader
from orbitmq.spark.jobs.archiving import ArchiveJob
from orbitmq.spark.options import Reading, read_options
from orbitmq.spark.read.positions import Positions

U0 = MessageQueue("u", "broker-u", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    made = scripted(monkeypatch)
    made.first[B0], made.last[B0] = 5, 50
    return made


@pytest.fixture
def job(tmp_path: Path) -> ArchiveJob:
    return ArchiveJob(["t"], str(tmp_path / "archive"), options={"offsetTimeout": "50ms"})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Time that passes when code pauses."""
    now = [1000.0]

    def pause(seconds: float) -> None:
        now[0] += max(seconds, 0.001)

    clock = SimpleNamespace(monotonic=lambda: now[0], now_ms=lambda: int(now[0] * 1000))
    monkeypatch.setattr(worker, "SystemClock", lambda: clock)
    monkeypatch.setattr(worker, "time", SimpleNamespace(sleep=pause))
    this_worker.cache_clear()
    yield now
    this_worker.cache_clear()


def archive_file(job: ArchiveJob, queue: MessageQueue, first: int, last: int) -> None:
    name = f"{queue.broker_name}-{queue.queue_id}-{first}-{last}.parquet"
    path = Path(job.to) / f"topic={queue.topic}" / "date=2026-11-24" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")


def test_a_run_is_planned_with_what_answers(cluster: ScriptedCluster, job: ArchiveJob) -> None:
    archive_file(job, A0, 0, 89)
    found = look(job)
    assert found.begins == {A0: 90, A1: 10, B0: 5}
    assert (found.rows, found.left_out, found.remarks) == (10 + 50 + 45, [], [])
    report = archiving.plan(job)
    assert (report.ok, report.facts["messages"], report.facts["left_out"]) == (True, 105, [])
    cluster.away = {"broker-b:1"}
    found = look(job)
    assert found.ends == {A0: 100, A1: 60}
    assert found.left_out == [LeftOut("broker-b", None, "broker-b:1 away")]
    report = archiving.plan(job)
    assert (report.ok, report.facts["messages"]) == (False, 60)
    assert report.to_json()["left_out"] == [
        {"broker": "broker-b", "topic": None, "reason": "broker-b:1 away", "address": None}
    ]
    assert report.summary.endswith("; broker-b is left to the next run: broker-b:1 away")
    cluster.away = {"broker-a:1", "broker-b:1"}
    with pytest.raises(UnreachableError, match="away"):
        look(job)


def test_a_silent_broker_is_waited_for_once(
    cluster: ScriptedCluster, job: ArchiveJob, clock: list[float]
) -> None:
    job = replace(job, options={})
    cluster.away = {"broker-b:1"}
    began = clock[0]
    check_topics(job)
    look(job, patient=False)
    assert clock[0] == began, "to see whether the job can begin, one answer is enough"
    look(job)
    assert 60 <= clock[0] - began < 62


def test_a_topic_that_nobody_knows_is_an_error_unless_the_archive_has_it(
    cluster: ScriptedCluster, job: ArchiveJob
) -> None:
    job = replace(job, topics=["t", "u"])
    cluster.unknown = {"u"}
    for ask in (look, check_topics):
        with pytest.raises(TopicNotFoundError, match="u is unknown"):
            ask(job)
    archive_file(job, U0, 0, 9)
    check_topics(job)
    found = look(job)
    assert found.left_out == [LeftOut(None, "u", "u is unknown")]
    assert found.not_shown == []


def test_a_broker_that_nobody_shows_may_be_retired(cluster: ScriptedCluster, job: ArchiveJob) -> None:
    gone = MessageQueue("t", "broker-c", 1)
    archive_file(job, gone, 0, 9)
    archive_file(job, U0, 0, 9)  # a file of another job
    found = look(job)
    assert (found.left_out, [one.broker for one in found.not_shown]) == ([], ["broker-c"])
    assert found.remarks == ["broker-c is in the archive, but the name servers do not show it"]
    report = archiving.plan(job)
    assert report.ok
    why = "is in the archive, but the name servers do not show it"
    told = report.to_json()
    assert told["not_shown"] == [{"broker": "broker-c", "topic": None, "reason": why, "address": None}]
    assert "summary" not in told, "text is for people"
    assert found.resume == Offsets({A0: 0, A1: 10, B0: 5, gone: 10})


def test_a_broker_that_falls_silent_between_two_questions_is_left_out(
    cluster: ScriptedCluster, job: ArchiveJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Positions, "first_of", lambda self, queues: {A0: 0, A1: 10})
    found = look(job)
    assert set(found.ends) == {A0, A1}
    assert found.left_out == [LeftOut("broker-b", None, "it fell silent")]


def test_a_run_begins_and_ends_where_the_job_says(cluster: ScriptedCluster, job: ArchiveJob) -> None:
    found = look(job)
    options = read_options({"topic": "t", "startingOffsets": "earliest"}, Reading.STREAM)
    own = {BEGINS: Offsets({A0: 90, A1: 10}).text(), ENDS: found.target.text()}
    cluster.away = {"broker-b:1"}  # the broker has been away since then
    for queue in (A0, B0):
        cluster.last[queue] += 100
    reader = ArchiveReader(options, own)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert places(start) == {A0: 90, A1: 10}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert places(end) == {A0: 100, A1: 60, B0: 50}
    assert rows_of(reader.partitions(start, end)) == {A0: (90, 100), A1: (10, 60), B0: (5, 50)}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    # At a restart the checkpoint has the offsets, but Spark requests the first ones again.
    cluster.away.clear()
    assert places(ArchiveReader(options, {}).initialOffset()) == {A0: 0, A1: 10, B0: 5}


def test_who_is_waited_for_is_told_once_a_minute(
    cluster: ScriptedCluster, job: ArchiveJob, clock: list[float]
) -> None:
    told: list[str] = []
    waits = archiving._Waits(Positions(read_options(job.read_options())), told.append)
    cluster.away = {"broker-b:1"}
    for second in range(125):
        clock[0] += 1
        waits.look(messages=0 if second < 30 else 7)
    assert told == ["waiting: broker-b:1 away"]
    cluster.unknown = {"t"}
    clock[0] += 60
    waits.look(messages=7)
    assert told[1:] == ["waiting: t is unknown"]
    cluster.unknown.clear()
    cluster.away.clear()
    clock[0] += 60
    waits.look(messages=7)
    assert len(told) == 2, "Spark is at work"


def test_offsets_of_a_run_travel_as_text(cluster: ScriptedCluster, job: ArchiveJob) -> None:
    found = look(job)
    again: Any = Offsets.from_json(json.loads(found.target.text()))
    assert (dict(again), again.begins) == (dict(found.ends), dict(found.begins))


@pytest.mark.behaviour("SP-14")
def test_an_archive_begins_at_the_first_messages_unless_told() -> None:
    job = ArchiveJob(["t"], "/archive", options={"tags": "a"})
    assert read_options(job.read_options(), Reading.STREAM).starting is Start.EARLIEST
    job = ArchiveJob(["t"], "/archive", options={"startingtimestamp": "2026-11-22"})
    assert read_options(job.read_options(), Reading.STREAM).starting is not Start.EARLIEST
