"""The job ``archive``: topics as Parquet files, each message in exactly one file, whichever process is killed
meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orbitmq.errors import TopicNotFoundError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError, UnreachableError
from orbitmq.spark.jobs.archive_files import UNFINISHED, WrittenFile, check_footer
from orbitmq.spark.jobs.archive_look import ArchiveState, check_topics, look
from orbitmq.spark.jobs.archive_names import (
    OWN_FOLDER,
    ArchiveFile,
    QueueContent,
    contents,
    parse_path,
    redundant,
)
from orbitmq.spark.jobs.archive_source import BEGINS, ENDS, FORMAT, ArchiveSource
from orbitmq.spark.jobs.failures import explained, reason
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Progress, Report, Teller, duration_text, silent, size_text
from orbitmq.spark.jobs.tables import Table, claim, open_table
from orbitmq.spark.options import read_options
from orbitmq.spark.read.positions import Positions
from orbitmq.wording import Remark, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
WAIT_SECONDS = 60.0
# Options for the begin of an archive; without them it begins at the oldest messages.
_STARTS = frozenset({"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"})


@dataclass(frozen=True)
class ArchiveJob:
    """The options of the job ``archive``.

    Attributes:
        topics: names of the topics.
        to: the archive's folder, a path or a URI.
        table_format: ``parquet``, ``delta`` or ``iceberg``.
        table: name of the Iceberg table, as ``catalog.namespace.table``.
        columns: the columns to keep; empty: all columns of the format ``rocketmq``, and the properties.
        properties: ``map``, ``raw`` or ``none``.
        codec: the compression of the Parquet columns.
        trigger: the time between two writes of a continuous archive, in Spark's form.
        skip_lost: continue if messages were deleted before they were archived.
        checkpoint: the folder for Spark's progress; empty: a folder in the archive. An archive in an object
            store needs another folder if this Spark has no file system for that store.
        options: further options of the format ``rocketmq``.
    """

    topics: Sequence[str]
    to: str
    name_servers: str = "127.0.0.1:9876"
    table_format: str = "parquet"
    table: str = ""
    columns: Sequence[str] = ()
    properties: str = "map"
    codec: str = "zstd"
    trigger: str = "10 seconds"
    skip_lost: bool = False
    checkpoint: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The name of the job in the archive's own folder; a different set of topics is a different job."""
        digest = hashlib.blake2b(",".join(sorted(self.topics)).encode(), digest_size=6)
        return f"archive-{digest.hexdigest()}"

    @property
    def checkpoint_name(self) -> str:
        """The name of the checkpoint in its folder, which other archives may share."""
        if not self.checkpoint:
            return self.owner
        return f"{self.owner}-{hashlib.blake2b(self.to.encode(), digest_size=6).hexdigest()}"

    def read_options(self) -> dict[str, str]:
        """Options of the reader."""
        wanted = {
            "topic": ",".join(self.topics),
            "nameServers": self.name_servers,
            "failOnDataLoss": str(not self.skip_lost).lower(),
        }
        if self.columns:
            wanted["columns"] = ",".join(self.columns)
        else:
            wanted["properties"] = self.properties
        if not _STARTS & {name.lower() for name in self.options}:
            wanted["startingOffsets"] = "earliest"
        return wanted | dict(self.options)


def plan(job: ArchiveJob) -> Report:
    """The report of a dry run of :func:`archive`."""
    report = Report("archive", headings=("topic", "broker", "queue", "from", "to", "messages"))
    found = look(job)
    for queue, end in sorted(found.ends.items()):
        begin = found.begins[queue]
        report.rows.append((queue.topic, queue.broker_name, queue.queue_id, begin, end, end - begin))
    report.facts = {"messages": found.rows, "archive": job.to}
    report.summary = f"{counted(found.rows, 'message')} would be archived in {job.to}; nothing was written"
    _note_left_out(report, found)
    return report


def _note_left_out(report: Report, found: ArchiveState) -> None:
    """Report the brokers and topics that the run left out, whose messages the archive lacks."""
    report.ok = not found.left_out
    report.facts["left_out"] = [one.as_json() for one in found.left_out]
    report.facts["not_shown"] = [one.as_json() for one in found.not_shown]
    report.summary = "; ".join([report.summary, *found.remarks])


def check(job: ArchiveJob) -> None:
    """Refuse a job that cannot run, before Spark is started for it.

    Raises:
        JobError: the folder is not writable or has another format, or a package is missing.
        TopicNotFoundError: a topic does not exist.
        UnreachableError: no name server or no broker answers.
    """
    folder = Folder(job.to)
    open_table(job.table_format, folder, job.table)
    check_topics(job)
    folder.prepare()
    claim(folder, job.table_format)


def archive(
    spark: SparkSession,
    job: ArchiveJob,
    *,
    continuous: bool = False,
    progress: Progress = silent,
    archived: Callable[[int], None] = lambda messages: None,
) -> Report:
    """Archive all messages that the topics have now, or with ``continuous`` until an interruption.

    A program ends a continuous job by stopping its query, which is among ``spark.streams.active``.

    A killed job resumes at the point where it stopped: it writes no message twice and leaves none out. Queues
    of brokers that do not answer are archived by the next run, or later by this one if it is continuous; the
    report names them, and is not ``ok``.

    Args:
        archived: called after each batch with the number of messages that this run has archived.

    Raises:
        JobError: the job cannot continue; the text is one line.
    """
    folder = Folder(job.to)
    table = open_table(job.table_format, folder, job.table)
    found = look(job, patient=not continuous)
    folder.prepare()
    claim(folder, job.table_format)
    folder.remove_tree(f"{UNFINISHED}/{job.owner}")
    for remark in found.remarks:
        progress(Remark(remark))
    teller = Teller(progress, "messages", 0 if continuous else found.rows)
    run = _Run(job, folder, table, found, teller, archived)
    waits = _Waits(Positions(read_options(job.read_options())), progress)
    with explained():
        spark.dataSource.register(ArchiveSource)
        query = run.start(spark, continuous=continuous)
        try:
            while not query.awaitTermination(POLL_S):
                waits.look(run.messages)
        except KeyboardInterrupt:
            query.stop()
            if not continuous:
                raise
        except Exception as error:
            raise JobError(reason(str(error))) from error
    report = run.report()
    if not continuous:
        _note_left_out(report, found)
    return report


class _Waits:
    """Reports once a minute which brokers do not answer, while nothing is archived.

    Spark plans a batch only if they answer, and reports the failure only in its own log.
    """

    def __init__(self, positions: Positions, progress: Progress) -> None:
        self._positions = positions
        self._progress = progress
        self._clock = this_worker().clock
        self._seen = 0
        self._since = self._clock.monotonic()

    def look(self, messages: int) -> None:
        """Report what the run waits for, if nothing was archived for a minute.

        Args:
            messages: number of archived messages.
        """
        now = self._clock.monotonic()
        if messages != self._seen:
            self._seen, self._since = messages, now
        elif now - self._since >= WAIT_SECONDS:
            try:
                told = self._positions.latest_where_possible()
            except (UnreachableError, TopicNotFoundError) as error:
                self._progress(Remark(f"waiting: {error}"))
            else:
                for why in (*told.silent.values(), *told.missing.values()):
                    self._progress(Remark(f"waiting: {why}"))
            self._since = self._clock.monotonic()


class _Run:
    """One run of an archive."""

    def __init__(
        self,
        job: ArchiveJob,
        folder: Folder,
        table: Table,
        found: ArchiveState,
        teller: Teller,
        archived: Callable[[int], None],
    ) -> None:
        self._job = job
        self._folder = folder
        self._table = table
        self._found = found
        self._teller = teller
        self._archived = archived
        self._query_id = ""
        self._batches = 0
        self._files: list[WrittenFile] = []

    def start(self, spark: SparkSession, *, continuous: bool) -> StreamingQuery:
        job = self._job
        checkpoint = Folder(job.checkpoint or self._folder.below(OWN_FOLDER))
        reader = spark.readStream.format(FORMAT)
        options = job.read_options()
        options |= {
            "archiveFolder": self._folder.location,
            "archiveOwner": job.owner,
            "archiveCodec": job.codec,
        }
        if not continuous:
            options[ENDS] = self._found.target.text()
        if not checkpoint.exists(f"{job.checkpoint_name}/offsets"):
            options |= self._resume()
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.foreachBatch(self._commit)
        writer = writer.option("checkpointLocation", checkpoint.below(job.checkpoint_name))
        trigger: dict[str, Any] = {"processingTime": job.trigger} if continuous else {"availableNow": True}
        query = writer.trigger(**trigger).start()
        self._query_id = str(query.id)
        return query

    def _resume(self) -> dict[str, str]:
        """Continue after the messages that other runs have archived, by the names of their files."""
        archived = self._folder.archive_files()
        for content in contents(archived):
            if content.queue.topic in self._job.topics and content.gaps:
                first, last = content.gaps[0]
                raise JobError(
                    f"{self._job.to} lacks the messages {first} to {last} of {content.queue} and the "
                    f"checkpoint of the run that wrote it; "
                    "remove the files behind them, or archive to another folder"
                )
        resume = self._found.resume
        return {BEGINS: resume.text()} if resume is not None else {}

    def _commit(self, batch: DataFrame, number: int) -> None:
        """The ``foreachBatch`` function: collecting the batch makes Spark run the tasks that write
        the files.
        """
        files = [WrittenFile(*row) for row in batch.collect()]
        if not self._batches:
            # Only the first batch of a run can be a repetition of an interrupted one.
            self._remove_redundant(files)
        self._table.commit(self._query_id, number, files)
        self._batches += 1
        self._files += files
        self._teller.add(sum(file.rows for file in files))
        self._archived(self._teller.done)

    def _remove_redundant(self, files: Sequence[WrittenFile]) -> None:
        touched = {file.path.rpartition("/")[0] for file in files}
        known = [one for below in touched for one in self._folder.archive_files(below)]
        for file in redundant(known):
            self._folder.remove(file.path)

    @property
    def messages(self) -> int:
        """The number of messages archived so far."""
        return self._teller.done

    def report(self) -> Report:
        teller, files = self._teller, self._files
        rows, size = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        report = Report(
            "archive", headings=("topic", "broker", "queue", "first", "last", "messages", "files")
        )
        names = [name for file in files if (name := parse_path(file.path)) is not None]
        for content in contents(names):
            queue = content.queue
            report.rows.append(
                (queue.topic, queue.broker_name, queue.queue_id, content.first, content.last,
                 content.rows, content.files)
            )  # fmt: skip
        report.facts = {
            "messages": rows,
            "files": len(files),
            "size_bytes": size,
            "batches": self._batches,
            "seconds": round(teller.seconds, 3),
            "archive": self._job.to,
        }
        report.summary = (
            f"archived {counted(rows, 'message')} in {counted(len(files), 'file')} of {size_text(size)}, "
            f"{duration_text(teller.seconds)} ({teller.rate:,.0f}/s), to {self._job.to}"
        )
        return report


def verify(
    to: str, topics: Sequence[str] = (), *, footers: bool = False, progress: Progress = silent
) -> Report:
    """Report whether an archive is complete, by the names of its files; needs neither Spark nor a broker.

    Args:
        topics: the topics to check; empty for all.
        footers: also open each file and compare its footer with its name.

    Raises:
        JobError: no archive of these topics exists, or with ``footers`` a file is damaged.
    """
    folder = Folder(to)
    files = {f: size for f, size in folder.archive_files().items() if not topics or f.topic in topics}
    missing = sorted(set(topics) - {file.topic for file in files})
    if missing or not files:
        raise JobError(f"{to} holds no archive{f' of topic {missing[0]}' if missing else ''}")
    if footers:
        teller = Teller(progress, "files", len(files))
        for file in files:
            check_footer(folder, file)
            teller.add(1)
    return _verified(to, contents(files), files)


def _verified(to: str, found: Sequence[QueueContent], files: Mapping[ArchiveFile, int]) -> Report:
    report = Report(
        "verify",
        headings=("topic", "broker", "queue", "first", "last", "messages", "files", "missing", "doubled"),
        ok=all(content.complete for content in found),
    )
    for one in found:
        queue = one.queue
        report.rows.append(
            (queue.topic, queue.broker_name, queue.queue_id, one.first, one.last, one.rows, one.files,
             one.missing, len(one.doubled))
        )  # fmt: skip
    missing, doubled = sum(one.missing for one in found), sum(len(one.doubled) for one in found)
    rows = sum(one.rows for one in found)
    gaps = [(one.queue, low, high) for one in found for low, high in one.gaps]
    report.facts = {
        "messages": rows,
        "files": len(files),
        "size_bytes": sum(files.values()),
        "missing": missing,
        "gaps": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "first": low,
                "last": high,
            }
            for queue, low, high in gaps
        ],
        "doubled": [file.path for one in found for file in one.doubled],
    }
    if report.ok:
        report.summary = f"{to} is complete: {counted(rows, 'message')} in {counted(len(files), 'file')}"
        return report
    first = f", the first ones {gaps[0][1]} to {gaps[0][2]} of {gaps[0][0]}" if gaps else ""
    report.summary = f"{to} is not complete: {counted(missing, 'message')} missing{first}; " + (
        f"{counted(doubled, 'file')} with messages that another file has (compact removes left-overs)"
        if doubled
        else "none doubled"
    )
    return report
