"""The format ``rocketmq`` as Spark loads it.

Spark starts a process to look the format up, another for its schema: what only readers and writers need is
imported when they are made.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from typing_extensions import override

from orbitmq.spark.options import Reading, read_options, write_options
from orbitmq.spark.schema import message_schema

if TYPE_CHECKING:
    from orbitmq.spark.sink import BatchWriter, StreamWriter
    from orbitmq.spark.source import BatchReader, StreamReader


class DefaultSource(DataSource):  # type: ignore[misc]
    """Topics as tables.

    ``spark.readStream.format("rocketmq").option("topic", "orders").option("nameServers", "h:9876").load()``

    Reading takes the columns of :func:`orbitmq.spark.schema.message_schema`; the option ``columns`` or
    ``.schema(...)`` chooses some of them, and only those are decoded. Writing takes ``body`` and, when there,
    ``topic``, ``tags``, ``keys`` and ``properties``. The options are those of :mod:`orbitmq.spark.options`;
    an unknown one is an error.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # A plain dict of our own: Spark's mapping type is not needed and changes between versions.
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @override
    def schema(self) -> StructType:
        options = read_options(self._given)
        return message_schema(
            options.columns, errors=options.on_bad_message != "fail", properties=options.properties
        )

    @override
    def reader(self, schema: StructType) -> BatchReader:
        from orbitmq.spark.source import BatchReader

        return BatchReader(read_options(self._given, Reading.BATCH), schema)

    @override
    def streamReader(self, schema: StructType) -> StreamReader:
        from orbitmq.spark.source import StreamReader

        return StreamReader(read_options(self._given, Reading.STREAM), schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from orbitmq.spark.sink import BatchWriter

        return BatchWriter(write_options(self._given), schema, overwrite=overwrite)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from orbitmq.spark.sink import StreamWriter

        return StreamWriter(write_options(self._given), schema)
