"""The format ``rocketmq`` as Spark loads it.

Spark starts one process to look the format up and another for its schema: therefore modules that only readers
and writers need are imported when these are created.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.errors import OrbitError
from orbitmq.spark import versions
from orbitmq.spark.errors import VersionError, plainly
from orbitmq.spark.options import Reading, ReadOptions, read_options, write_options
from orbitmq.spark.read.partitions import FILTERS_VARIABLE
from orbitmq.spark.schema import check_schema, schema_of

if TYPE_CHECKING:
    from orbitmq.spark.read.source import BatchReader
    from orbitmq.spark.write.sink import BatchWriter


class DefaultSource(DataSource):  # type: ignore[misc]
    """Topics as tables.

    ``spark.readStream.format("rocketmq").option("topic", "orders").option("nameServers", "h:9876").load()``

    Reading takes the columns of :func:`orbitmq.spark.schema.message_schema`; the option ``columns`` or
    ``.schema(...)`` chooses some of them, and only those are decoded. Writing takes ``body`` and, if present,
    ``topic``, ``tags``, ``keys`` and ``properties``. The options are those of :mod:`orbitmq.spark.options`;
    an unknown one is an error.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # A plain dict, since Spark's mapping type changes between versions.
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @override
    @plainly
    def schema(self) -> StructType:
        return schema_of(read_options(self._given))

    @override
    @plainly
    def reader(self, schema: StructType) -> BatchReader:
        from orbitmq.spark.read.source import BatchReader, FilteringBatchReader

        options = self._reading(Reading.BATCH, schema)
        return (FilteringBatchReader if _takes_filters(options) else BatchReader)(options, schema)

    @override
    def streamReader(self, schema: StructType) -> Any:
        try:
            options = self._reading(Reading.STREAM, schema)
        except OrbitError as error:
            from orbitmq.spark.read.refused_stream import RefusedStream

            return RefusedStream(error)
        if versions.HAS_READ_LIMITS:
            from orbitmq.spark.read.stream_reader import StreamReader

            return StreamReader(options, schema)
        from orbitmq.spark.read.older_stream_reader import OlderStreamReader

        return OlderStreamReader(options, schema)

    @override
    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from orbitmq.spark.write.sink import BatchWriter

        return BatchWriter(write_options(self._given), schema, overwrite=overwrite)

    @override
    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from orbitmq.spark.write.sink import StreamWriter

        writer = StreamWriter(write_options(self._given), schema)
        if versions.HAS_ARROW_STREAM_WRITER:
            return writer
        from orbitmq.spark.write.row_writer import RowStreamWriter

        return RowStreamWriter(writer, schema)

    def _reading(self, reading: Reading, schema: StructType) -> ReadOptions:
        """The options, after a check that the schema fits them; runs on the driver, before any task."""
        options = read_options(self._given, reading)
        check_schema(schema, error=options.on_bad_message != "fail")
        return options


def _takes_filters(options: ReadOptions) -> bool:
    """Whether the reader requests filters from Spark: Spark must allow it, which session() records."""
    if options.push_filters and not versions.HAS_FILTERS:
        raise VersionError("option pushFilters=true needs PySpark 4.1 or later")
    told = os.environ.get(FILTERS_VARIABLE) == "true"
    return versions.HAS_FILTERS and (told if options.push_filters is None else options.push_filters)
