"""Writing and reading the Parquet files of an archive. Used in Spark's workers, and without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.message import columns as names
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_names import OWN_FOLDER, ArchiveFile
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.schema import BROKER

T = TypeVar("T")

# Key of the footer's entry that describes the content of the file.
FOOTER = b"orbitmq"
FOOTER_VERSION = 1
# Columns that every file has: the queue and the offset of each message, and the fields of the file's name.
PLACE_COLUMNS = (names.TOPIC, BROKER, names.QUEUE_ID, names.QUEUE_OFFSET, names.STORE_TIMESTAMP)
# Columns with few distinct values, which get a dictionary; in other columns a dictionary costs more than it
# saves.
DICTIONARIES = (names.TOPIC, BROKER, names.TAGS, f"{names.PROPERTIES}.key_value.key")
# Bytes of a row group, which is in memory until it is written, and twice while it is encoded.
ROW_GROUP_BYTES = 16 << 20
UNFINISHED = f"{OWN_FOLDER}/unfinished"


class WrittenFile(NamedTuple):
    """A finished file, as a worker reports it to the driver; times in milliseconds since 1970."""

    path: str
    rows: int
    size_bytes: int
    first_store_ms: int
    last_store_ms: int


@dataclass(slots=True)
class _Open:
    """The file that is being written."""

    first: ArchiveFile
    temporary: str
    stream: Any
    writer: pq.ParquetWriter
    rows: int = 0
    first_store_ms: int = 1 << 62
    last_store_ms: int = 0


class ArchiveWriter:
    """Writes record batches into an archive: a new file for each queue, day and gap.

    A file gets its name when it is complete. The same rows give the same name, so a repeated attempt replaces
    the files of the previous one.

    Args:
        folder: the archive.
        owner: the name of the job; unfinished files of an earlier run of it are removed.
        codec: the compression of the columns, by Parquet's name.
    """

    def __init__(self, folder: Folder, owner: str, codec: str = "zstd") -> None:
        self._folder = folder
        self._owner = owner
        self._codec = codec
        self._open: _Open | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._next: tuple[Any, ...] = ()

    def write(self, batch: pa.RecordBatch) -> Iterator[WrittenFile]:
        """Take the next rows, in the order of their queues; yields the files that are complete now.

        Raises:
            JobError: the folder cannot be written to.
        """
        if not batch.num_rows:
            return
        days = pc.cast(pc.floor_temporal(batch.column(names.STORE_TIMESTAMP), unit="day"), pa.date32())
        borders = [0, *file_borders(batch, days), batch.num_rows]
        for low, high in pairwise(borders):
            piece = batch.slice(low, high - low)
            first = _file_of(piece, str(days[low]))
            if self._next != (first.queue, first.first, first.date):
                yield from self.close()
                self._open = self._begin(first, batch.schema)
            self._next = (first.queue, first.last + 1, first.date)
            self._take(piece)

    def close(self) -> Iterator[WrittenFile]:
        """Complete the file that is being written, if there is one."""
        opened, self._open = self._open, None
        if opened is None:
            return
        self._write_group(opened)
        file = opened.first._replace(last=opened.first.first + opened.rows - 1)
        facts = {
            "v": FOOTER_VERSION,
            "topic": file.topic,
            "broker": file.broker,
            "queue": file.queue_id,
            "first": file.first,
            "last": file.last,
            "rows": opened.rows,
            "firstStoreMs": opened.first_store_ms,
            "lastStoreMs": opened.last_store_ms,
        }
        opened.writer.add_key_value_metadata({FOOTER: json.dumps(facts).encode()})
        self._written(opened.writer.close)
        size = opened.stream.tell()
        self._written(opened.stream.close)
        self._folder.move(opened.temporary, file.path)
        self._next = ()
        yield WrittenFile(file.path, opened.rows, size, opened.first_store_ms, opened.last_store_ms)

    def _begin(self, first: ArchiveFile, schema: pa.Schema) -> _Open:
        worker = this_worker()
        temporary = (
            f"{UNFINISHED}/{self._owner}/{worker.host.pid}-{worker.random.getrandbits(64):016x}.parquet"
        )
        stream = self._folder.create(temporary)
        writer = self._written(
            lambda: pq.ParquetWriter(
                stream,
                schema,
                compression=self._codec,
                use_dictionary=[name for name in DICTIONARIES if name.partition(".")[0] in schema.names],
                write_statistics=[
                    name for name in schema.names if name not in (names.BODY, names.PROPERTIES)
                ],
            )
        )
        return _Open(first, temporary, stream, writer)

    def _take(self, piece: pa.RecordBatch) -> None:
        assert self._open is not None
        self._open.rows += piece.num_rows
        times = pc.min_max(
            pc.cast(piece.column(names.STORE_TIMESTAMP), pa.timestamp("ms", "UTC"), safe=False)
        )
        low, high = (pc.cast(times[which], pa.int64()).as_py() for which in ("min", "max"))
        self._open.first_store_ms = min(self._open.first_store_ms, low)
        self._open.last_store_ms = max(self._open.last_store_ms, high)
        self._waiting.append(piece)
        self._waiting_bytes += piece.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group(self._open)

    def _write_group(self, opened: _Open) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._written(lambda: opened.writer.write_table(table, row_group_size=table.num_rows))
        self._waiting, self._waiting_bytes = [], 0

    def _written(self, work: Callable[[], T]) -> T:
        """Errors of writing, such as a full disk, name the folder."""
        return self._folder.attempt("written to", work)


def file_borders(batch: pa.RecordBatch, days: pa.Array) -> list[int]:
    """The rows, other than the first, at which another file begins: another queue or day, or a gap."""
    rows = batch.num_rows
    if rows < 2:
        return []

    def moved(column: pa.Array) -> tuple[pa.Array, pa.Array]:
        return column.slice(1), column.slice(0, rows - 1)

    border = pc.not_equal(pc.subtract(*moved(batch.column(names.QUEUE_OFFSET))), 1)
    for column in (days, *(batch.column(name) for name in (names.TOPIC, BROKER, names.QUEUE_ID))):
        border = pc.or_(border, pc.not_equal(*moved(column)))
    return [row + 1 for row in pc.indices_nonzero(border).to_pylist()]


def _file_of(piece: pa.RecordBatch, day: str) -> ArchiveFile:
    """The file that these rows alone would make."""

    def value(name: str, row: int = 0) -> Any:
        return piece.column(name)[row].as_py()

    first, last = (value(names.QUEUE_OFFSET, row) for row in (0, piece.num_rows - 1))
    return ArchiveFile(value(names.TOPIC), value(BROKER), value(names.QUEUE_ID), first, last, day)


def check_footer(folder: Folder, file: ArchiveFile) -> int:
    """The rows of a file, by its footer.

    Raises:
        JobError: it is damaged, or is not what its name says.
    """
    try:
        with folder.open(file.path) as source:
            meta = pq.read_metadata(source)
        facts = json.loads((meta.metadata or {}).get(FOOTER, b"{}"))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise JobError(
            f"{folder.below(file.path)} is damaged: {' '.join(str(error).split())[:200]}"
        ) from error
    told = (
        facts.get("topic"),
        facts.get("broker"),
        facts.get("queue"),
        facts.get("first"),
        facts.get("last"),
    )
    if told != file[:5] or meta.num_rows != file.rows:
        raise JobError(
            f"{folder.below(file.path)} is not what its name says: "
            f"its footer has {meta.num_rows} rows of {told[0]}/{told[1]}/{told[2]}, {told[3]} to {told[4]}"
        )
    return int(meta.num_rows)


def merge(folder: Folder, parts: Sequence[ArchiveFile], owner: str, codec: str = "zstd") -> WrittenFile:
    """Merge files that follow each other into one; the old files stay.

    Raises:
        JobError: one of them is damaged, or the folder cannot be written to.
    """
    writer = ArchiveWriter(folder, owner, codec)
    done: list[WrittenFile] = []
    for part in parts:
        check_footer(folder, part)
        try:
            with folder.open(part.path) as source:
                for batch in pq.ParquetFile(source).iter_batches():
                    done += writer.write(batch)
        except (OSError, pa.ArrowException) as error:
            raise JobError(
                f"{folder.below(part.path)} is damaged: {' '.join(str(error).split())[:200]}"
            ) from error
    done += writer.close()
    if len(done) != 1:
        raise JobError(
            f"{folder.below(parts[0].path)} and those behind it hold other days or queues than they say"
        )
    return done[0]
