"""The jobs of ``orbitmq spark`` in a real Spark session, against a real cluster."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.test_spark_format import FILE_MANAGER

from orbitmq import ConsumeFrom, Message
from orbitmq.admin import Admin
from orbitmq.cli.main import main
from orbitmq.message.model import MessageQueue
from orbitmq.spark import jobs, versions
from orbitmq.spark.cluster.brokers import Brokers, min_offset
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs import auditing, dead_letter_tables, kept_properties
from orbitmq.spark.jobs.dead_letter_sending import RedriveOptions, send_again
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import running_cluster
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.testing import RunningCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from orbitmq.spark.session import session

    made = session(
        "jobs",
        master="local[2]",
        spark__sql__shuffle__partitions=2,
        spark__sql__streaming__checkpointFileManagerClass=FILE_MANAGER,
    )
    yield made
    made.stop()


def send(cluster: RunningCluster, topic: str, bodies: range) -> None:
    with Producer("jobs", name_servers=cluster.name_server) as producer:
        for number in bodies:
            tag = ("red", "blue")[number % 2]
            message = Message(topic, json.dumps({"n": number}), tags=tag, keys=f"k{number}")
            message.properties["colour"] = tag
            producer.send(message)


def rows(spark: SparkSession, folder: str) -> list[int]:
    found = jobs.archive_frame(spark, folder).select("body").collect()
    return sorted(json.loads(bytes(row["body"]))["n"] for row in found)


def test_an_archive_has_each_message_once_however_it_was_ended(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = str(tmp_path / "archive")
    job = jobs.ArchiveJob(topics=["kept"], to=to, name_servers=cluster.name_server)
    send(cluster, "kept", range(60))
    report = jobs.archive(spark, job)
    assert report.facts["messages"] == 60
    assert rows(spark, to) == list(range(60))
    send(cluster, "kept", range(60, 80))
    assert jobs.archive(spark, job).facts["messages"] == 20
    assert jobs.archive(spark, job).facts["messages"] == 0

    # As if it had been killed before the last batch was known to be done.
    (checkpoint,) = (tmp_path / "archive" / "_orbitmq").glob("archive-*")
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    before = sorted(tmp_path.glob("archive/topic=*/**/*.parquet"))
    assert jobs.archive(spark, job).facts["messages"] == 20
    assert sorted(tmp_path.glob("archive/topic=*/**/*.parquet")) == before

    # Without its checkpoint the job goes on where the names of the files end.
    shutil.rmtree(checkpoint)
    send(cluster, "kept", range(80, 90))
    assert jobs.archive(spark, job).facts["messages"] == 10
    assert rows(spark, to) == list(range(90))
    assert jobs.verify(to, footers=True).ok
    report = jobs.compact(to)
    assert report.facts["files_after"] < report.facts["files_before"]
    assert rows(spark, to) == list(range(90))

    send(cluster, "kept", range(90, 93))
    asked = ["spark", "archive", "kept", to, "-n", cluster.name_server]
    assert main([*asked, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 3
    assert main(["archive", "verify", to, "--topics", "kept"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{to} is complete: 90 messages in ")

    # The audit finds what is missing, and says which.
    audited = jobs.AuditJob(topic="kept", name_servers=cluster.name_server, archive=to)
    report = jobs.audit(spark, audited)
    assert not report.ok
    assert "3 lost (archived)" in report.summary
    assert len(report.facts["examples"]["lost (archived)"]) == 3
    ledger = tmp_path / "sent.txt"
    ids = [row["message_id"] for row in jobs.archive_frame(spark, to).collect()]
    ledger.write_text("\n".join(ids))
    report = jobs.audit(spark, jobs.AuditJob(topic="kept", sent=str(ledger), archive=to, stored=False))
    assert report.ok
    assert "each message is there once" in report.summary


def test_a_continuous_archive_tells_how_far_it_is_and_ends_with_its_query(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    counts: list[int] = []

    def archived(messages: int) -> None:
        counts.append(messages)
        if messages == 60:
            # Elsewhere: stopping waits for the batch that calls this.
            threading.Thread(target=lambda: [query.stop() for query in spark.streams.active]).start()

    send(cluster, "streamed", range(60))
    job = jobs.ArchiveJob(
        topics=["streamed"],
        to=str(tmp_path / "archive"),
        name_servers=cluster.name_server,
        trigger="1 second",
        options={"maxRowsPerTrigger": "40"},
    )
    report = jobs.archive(spark, job, continuous=True, archived=archived)
    assert (report.ok, report.facts["messages"]) == (True, 60)
    assert counts[-1] == 60
    assert counts == sorted(counts)
    assert len(counts) > 1 or not versions.HAS_READ_LIMITS


def test_an_audit_names_what_is_doubled_unknown_and_missing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker stores such a topic by itself, so the test says what is stored."""
    places = [("a", 0, 0), ("b", 0, 1), ("b", 0, 2), ("foreign", 0, 4), ("c", 1, 7), ("twice", 1, 8),
              ("twice", 1, 9)]  # fmt: skip
    stored = spark.createDataFrame(
        [(key, "broker-a", queue, offset, None) for key, queue, offset in places],
        "message_id string, broker string, queue_id int, queue_offset bigint, store_timestamp timestamp",
    )
    monkeypatch.setattr(auditing, "topic_frame", lambda *_, **__: stored)
    sent = tmp_path / "sent.txt"
    sent.write_text("\n".join(["a", "b", "c", "gone", "twice", "twice"]))
    report = jobs.audit(spark, jobs.AuditJob(topic="audited", sent=str(sent)))
    assert not report.ok
    assert report.headings == ("side", "messages", "keys", "lost", "doubled", "unknown")
    assert report.rows == [("sent", 6, 5, 0, 1, 0), ("stored", 7, 5, 1, 1, 1)]
    assert report.summary == (
        "audited: 1 doubled (sent); 1 lost (stored); 1 doubled (stored); 1 unknown (stored); "
        "1 offsets missing (stored) (5 keys sent)"
    )
    assert report.facts["gaps"] == {str(MessageQueue("audited", "broker-a", 0)): 1}
    assert report.facts["examples"] == {
        "doubled (sent)": ["twice"],
        "lost (stored)": ["gone"],
        "doubled (stored)": ["b"],
        "unknown (stored)": ["foreign"],
    }


def first_offset(cluster: RunningCluster, topic: str) -> int:
    brokers = Brokers([cluster.name_server], 10_000)
    (offset,) = brokers.offsets(brokers.readable([topic]), min_offset).values()
    return offset


def expire(cluster: RunningCluster, topic: str, beyond: int) -> int:
    """Let the only broker delete old files until a queue begins behind ``beyond``; where it begins then."""
    deadline = time.monotonic() + 60
    while first_offset(cluster, topic) <= beyond:
        assert time.monotonic() < deadline, "the broker deletes nothing"
        with BlockingConnection(cluster.brokers["broker-a"], 10_000) as connection:
            connection.request(Command(RequestCode.DELETE_EXPIRED_COMMITLOG))
        time.sleep(0.5)
    return first_offset(cluster, topic)


def test_what_expired_before_it_was_archived_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Kept for no time, but deleted only when the test asks for it.
    never = str((time.localtime().tm_hour + 12) % 24)
    settings = {"mappedFileSizeCommitLog": "131072", "fileReservedTime": "0", "deleteWhen": never}
    to = str(tmp_path / "archive")
    with running_cluster(str(tmp_path / "cluster"), settings=settings) as small:
        servers = small.name_server
        assert main(["topic", "create", "aged", "-q", "1", "-n", servers]) == 0
        job = jobs.ArchiveJob(["aged"], to, servers)
        with Producer("jobs", name_servers=servers) as producer:
            for number in range(5):
                producer.send(Message("aged", json.dumps({"n": number})))
            assert jobs.archive(spark, job).facts["messages"] == 5
            for number in range(5, 65):
                # Random, since the producer would compress it to nothing.
                text = random.Random(number).randbytes(8_000).hex()
                producer.send(Message("aged", json.dumps({"n": number, "text": text})))
        begin = expire(small, "aged", beyond=5)
        with pytest.raises(JobError, match=rf"offsets 5 to {begin - 1} of aged.* are not there any more"):
            jobs.archive(spark, job)
        assert rows(spark, to) == list(range(5)), "nothing behind the gap is archived without a word"

        accepted = replace(job, skip_lost=True)
        assert jobs.archive(spark, accepted).facts["messages"] == 65 - begin
        assert rows(spark, to) == [*range(5), *range(begin, 65)]
        capsys.readouterr()
        assert main(["archive", "verify", to, "--topics", "aged"]) == 1
        told = capsys.readouterr().out.splitlines()[-1]
        assert f"is not complete: {begin - 5} messages missing, the first ones 5 to {begin - 1} of" in told

        # Names alone cannot say whether these are lost or another run was about to write them.
        for checkpoint in (tmp_path / "archive" / "_orbitmq").glob("archive-*"):
            shutil.rmtree(checkpoint)
        with pytest.raises(JobError, match=rf"lacks the messages 5 to {begin - 1} of .* and the checkpoint"):
            jobs.archive(spark, accepted)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_an_archive_is_also_a_table(
    spark: SparkSession,
    cluster: RunningCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
) -> None:
    if table_format == "delta":
        deltalake = pytest.importorskip("deltalake")
    else:
        monkeypatch.setenv("PYICEBERG_CATALOG__JOBS__TYPE", "sql")
        monkeypatch.setenv("PYICEBERG_CATALOG__JOBS__URI", f"sqlite:///{tmp_path}/catalog.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__JOBS__WAREHOUSE", f"file://{tmp_path}/warehouse")
        # It reads these when it is imported.
        monkeypatch.delitem(sys.modules, "pyiceberg.catalog", raising=False)
        catalogs = pytest.importorskip("pyiceberg.catalog")
        pytest.importorskip("sqlalchemy")
    topic, to = f"tabled-{table_format}", str(tmp_path / "archive")
    table = "jobs.shop.tabled" if table_format == "iceberg" else ""
    job = jobs.ArchiveJob([topic], to, cluster.name_server, table_format=table_format, table=table)
    for some in (range(30), range(30, 50)):
        send(cluster, topic, some)
        assert jobs.archive(spark, job).facts["messages"] == len(some)
    if table_format == "delta":
        found = deltalake.DeltaTable(to).to_pyarrow_table(columns=["body"])
    else:
        found = catalogs.load_catalog("jobs").load_table("shop.tabled").scan().to_arrow()
    assert sorted(json.loads(body)["n"] for body in found.column("body").to_pylist()) == list(range(50))
    assert jobs.verify(to, footers=True).ok


def test_bad_places_are_told_in_a_line(spark: SparkSession, cluster: RunningCluster, tmp_path: Path) -> None:
    send(cluster, "hurt", range(5))
    servers = cluster.name_server
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="file cannot be written to"):
        jobs.archive(spark, jobs.ArchiveJob(topics=["hurt"], to=str(tmp_path / "file"), name_servers=servers))
    to = str(tmp_path / "archive")
    jobs.archive(spark, jobs.ArchiveJob(topics=["hurt"], to=to, name_servers=servers))
    later = jobs.Span(4_000_000_000_000)
    with pytest.raises(JobError, match="has no messages of that time: its days are"):
        jobs.archive_frame(spark, to, span=later)
    report = jobs.replay(spark, jobs.ReplayJob("hurt", "hurt", servers, span=later), dry_run=True)
    assert "0 messages would be sent" in report.summary
    with pytest.raises(JobError, match=r"--where 'colur = 1'.*colur.*cannot be resolved"):
        jobs.replay(spark, jobs.ReplayJob("hurt", "hurt", servers, where="colur = 1"))
    damaged = next(tmp_path.glob("archive/topic=*/**/*.parquet"))
    damaged.write_bytes(b"not parquet")
    with pytest.raises(JobError, match=damaged.name):
        jobs.replay(spark, jobs.ReplayJob(to, "hurt", servers))
    with pytest.raises(JobError, match=r"topic '%DLQ%nobody' is not known"):
        jobs.redrive(spark, "nobody", servers)


def test_a_replay_keeps_ids_and_times_and_goes_on_where_it_was(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    to = str(tmp_path / "archive")
    servers = cluster.name_server
    send(cluster, "first", range(40))
    assert main(["topic", "create", "first-again", "-n", servers]) == 0
    jobs.archive(spark, jobs.ArchiveJob(topics=["first"], to=to, name_servers=servers))
    job = jobs.ReplayJob(to, "first-again", servers, where="get_json_object(text, '$.n') < 20", tags="red")
    assert "10 messages would be sent" in jobs.replay(spark, job, dry_run=True).summary
    report = jobs.replay(spark, job)
    assert report.facts["messages"] == 10
    again = {row["message_id"]: row for row in jobs.topic_frame(spark, ["first-again"], servers).collect()}
    old = {row["message_id"]: row for row in jobs.topic_frame(spark, ["first"], servers).collect()}
    assert len(again) == 10
    for row in again.values():
        was = old[row["properties"][kept_properties.MESSAGE_ID]]
        assert (row["body"], row["tags"], row["keys"]) == (was["body"], "red", was["keys"])
        assert row["properties"]["colour"] == "red"
        assert (
            row["properties"][kept_properties.FROM]
            == f"first/{was['broker']}/{was['queue_id']}/{was['queue_offset']}"
        )
        assert int(row["properties"][kept_properties.STORE_TIME]) == int(
            was["store_timestamp"].timestamp() * 1000
        )
    # The same run again sends nothing; with the rest of the messages it sends these, at their rate.
    run = report.facts["run"]
    wider = jobs.ReplayJob(to, "first-again", servers, where="get_json_object(text, '$.n') < 30", tags="red",
                           resume=run, rate=10)  # fmt: skip
    assert jobs.replay(spark, wider).facts["messages"] == 5
    assert jobs.topic_frame(spark, ["first-again"], servers).count() == 15


def brokers_redrive(name_servers: str, group: str, sql: str) -> int:
    """The redrive of ``orbitmq dlq redrive``, when it has ended; how many it has sent."""

    async def work() -> int:
        async with Admin(name_servers) as admin:
            begun = await admin.dead_letters.redrive(group, sql=sql)
            while any(job.ended is None for job in begun):
                await asyncio.sleep(0.1)
                begun = (await admin.dead_letters.redrives(group)).whole()
            return sum(job.sent for job in begun)

    return asyncio.run(work())


def test_dead_letters_are_chosen_with_sql_and_sent_again_once(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    servers = cluster.name_server
    send(cluster, "bills", range(12))
    with Consumer(
        "billing", name_servers=servers, consume_from=ConsumeFrom.FIRST, max_reconsume_times=0
    ) as consumer:
        consumer.subscribe("bills")
        left = 12
        for message in consumer:
            message.reject("odd" if json.loads(message.body)["n"] % 2 else "even")
            left -= 1
            if not left:
                break
    letters = jobs.dead_letters(spark, "billing", servers)
    report = dead_letter_tables.summarised(spark, letters, ["origin_topic", "reason"])
    assert sorted(row[:3] for row in report.rows) == [("bills", "even", 6), ("bills", "odd", 6)]
    assert report.summary == "12 messages of 2 kinds"
    dry = jobs.redrive(spark, "billing", servers, sql="reason = 'odd'", dry_run=True)
    assert dry.summary.startswith("6 of 6 chosen dead letters would be sent again")
    assert jobs.topic_frame(spark, ["bills"], servers).count() == 12
    # Whoever sends, Spark's choice or the brokers' own redrive, passes over what the other has sent.
    assert brokers_redrive(servers, "billing", "KEYS = 'k1'") == 1
    some = "reason = 'odd' and get_json_object(text, '$.n') < 6"
    assert jobs.redrive(spark, "billing", servers, sql=some).facts["sent"] == 2
    assert jobs.redrive(spark, "billing", servers, sql="reason = 'odd'").facts["sent"] == 3
    assert jobs.redrive(spark, "billing", servers, sql="reason = 'odd'").facts["sent"] == 0
    assert brokers_redrive(servers, "billing", "colour = 'blue'") == 0
    again = jobs.topic_frame(spark, ["bills"], servers).where("properties['DLQ_REDRIVES'] is not null")
    assert sorted(json.loads(bytes(row["body"]))["n"] for row in again.collect()) == [1, 3, 5, 7, 9, 11]
    # Where brokers have no redrive, Spark sends and finds by the marks what it has sent.
    even = letters.where("reason = 'even'")
    four, all_of_them = RedriveOptions(group="billing", limit=4), RedriveOptions(group="billing")
    assert send_again(spark, even, four, servers, print).facts["sent"] == 4
    assert send_again(spark, even, all_of_them, servers, print).facts["sent"] == 2
    assert send_again(spark, even, all_of_them, servers, print).facts["sent"] == 0
    again = jobs.topic_frame(spark, ["bills"], servers).where("properties['DLQ_REDRIVES'] is not null")
    assert sorted(json.loads(bytes(row["body"]))["n"] for row in again.collect()) == list(range(12))
    with pytest.raises(JobError, match="no dead letter that --where chooses"):
        jobs.redrive(spark, "billing", servers, sql="reason = 'none'")
