"""The format ``rocketmq_archive``: a stream whose tasks write Parquet files and whose rows name these files.

The offsets of a batch are fixed in Spark's offset log before the batch is read, and the name of a file
contains the file's offsets: so each message is in one file, however often a batch is interrupted and
repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark import versions
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import OptionError
from orbitmq.spark.jobs.archive_files import PLACE_COLUMNS, ArchiveWriter, WrittenFile
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.options import Reading, ReadOptions, read_options
from orbitmq.spark.schema import message_schema

FORMAT = "rocketmq_archive"
_SCHEMA = "path string, rows bigint, size_bytes bigint, first_store_ms bigint, last_store_ms bigint"
_ARROW = pa.schema(
    [("path", pa.string()), *((name, pa.int64()) for name in WrittenFile._fields if name != "path")]
)
# Options of this format in addition to those of rocketmq, in lower case as Spark passes them.
FOLDER, OWNER, CODEC = "archivefolder", "archiveowner", "archivecodec"
# The begin of a run without a checkpoint, and the run's end, as offsets that the job got from the brokers.
BEGINS, ENDS = "archivebegins", "archiveends"


def archive_schema(options: ReadOptions) -> StructType:
    """The columns of the files: the requested ones, and those with the queue and the offset."""
    asked = message_schema(options.columns, properties=options.properties).fieldNames()
    wanted = [*PLACE_COLUMNS, *(name for name in asked if name not in PLACE_COLUMNS)]
    return message_schema(wanted, properties=options.properties)


class ArchiveSource(DataSource):  # type: ignore[misc]
    """Writes topics into an archive while Spark reads it as a stream of :class:`WrittenFile`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._own = {
            key.lower(): value for key, value in options.items() if key.lower().startswith("archive")
        }
        self._given = {key: value for key, value in options.items() if key.lower() not in self._own}

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @override
    def schema(self) -> str:
        return _SCHEMA

    @override
    def streamReader(self, schema: StructType) -> ArchiveReader:
        if FOLDER not in self._own:
            raise OptionError("option archiveFolder is missing")
        return ArchiveReader(read_options(self._given, Reading.STREAM), self._own)


def _stream_reader() -> Any:
    """The class of stream readers for the installed version of Spark."""
    if versions.HAS_READ_LIMITS:
        return import_module("orbitmq.spark.read.stream_reader").StreamReader
    return import_module("orbitmq.spark.read.older_stream_reader").OlderStreamReader


class ArchiveReader(_stream_reader()):  # type: ignore[misc]
    """Reads topics like the format ``rocketmq``, and writes the messages to files."""

    def __init__(self, options: ReadOptions, own: Mapping[str, str]) -> None:
        super().__init__(options, archive_schema(options))
        self._own_options = dict(own)
        # A queue that lost its end would give files with new messages the names of files with old ones.
        self._stream.refuse_lost_ends("an archive holds each offset once: archive to another folder")
        if ENDS in own:
            self._stream.end_at(Offsets.from_json(json.loads(own[ENDS])))

    @override
    def initialOffset(self) -> dict[str, Any]:
        begins = self._own_options.get(BEGINS)
        if begins is None:
            return super().initialOffset()  # type: ignore[no-any-return]
        # The begin includes queues of brokers that are away: they continue when the brokers come back.
        return Offsets.from_json(json.loads(begins)).as_first().to_json()

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the job fixes the end of the run, since some versions of Spark do not call this."""

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        own = self._own_options
        writer = ArchiveWriter(Folder(own[FOLDER]), own.get(OWNER, "archive"), own.get(CODEC, "zstd"))
        written: list[WrittenFile] = []
        for batch in super().read(partition):
            written += writer.write(batch)
        written += writer.close()
        yield pa.RecordBatch.from_pylist([file._asdict() for file in written], schema=_ARROW)
