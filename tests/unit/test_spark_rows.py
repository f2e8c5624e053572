"""The forms of rows: Arrow types, bodies as strings, and the rows of older versions of Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.worker import this_worker
from orbitmq.spark import versions
from orbitmq.spark.arrow_types import arrow_schema
from orbitmq.spark.errors import SchemaError, VersionError
from orbitmq.spark.options import read_options
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.read.partitions import CORES_VARIABLE
from orbitmq.spark.read.reading import cluster_cores
from orbitmq.spark.schema import check_schema, schema_of
from orbitmq.spark.session import cores_of
from orbitmq.spark.write.row_writer import record_batches

EVERY_TYPE = StructType(
    [
        StructField(f"c{i}", kind, i % 2 == 0)
        for i, kind in enumerate(
            [
                BinaryType(), IntegerType(), LongType(), ShortType(), StringType(), TimestampType(),
                ArrayType(StringType(), False), MapType(StringType(), StringType(), True),
            ]
        )
    ]
)  # fmt: skip


def test_arrow_types_are_those_that_spark_compares_with() -> None:
    try:
        expected = to_arrow_schema(EVERY_TYPE, timezone="UTC")
    except TypeError:  # Spark 4.0
        expected = to_arrow_schema(EVERY_TYPE)
    assert arrow_schema(EVERY_TYPE).equals(expected)
    with pytest.raises(SchemaError, match="type interval cannot be read from messages"):
        arrow_schema(StructType([StructField("c", CalendarIntervalType())]))


def records() -> bytes:
    bodies = [b'{"id": 7}', b"not json"]
    return b"".join(encode_record(Record("t", body, queue_offset=at)) for at, body in enumerate(bodies))


def test_a_string_body_is_asked_for_by_the_format() -> None:
    schema = schema_of(read_options({"topic": "t", "valueFormat": "string", "columns": "body"}))
    batch = BatchMaker(schema).batch([records()], [("broker-a", 2)])
    assert batch.to_pylist() == [{"body": '{"id": 7}'}, {"body": "not json"}]


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="column body has type int, must be binary or string"):
        check_schema(StructType([StructField("body", IntegerType())]))


def test_rows_become_batches_for_a_writer() -> None:
    schema = StructType(
        [
            StructField("body", BinaryType()),
            StructField("keys", ArrayType(StringType())),
            StructField("properties", MapType(StringType(), StringType())),
        ]
    )
    rows = [Row(body=b"%d" % n, keys=["a", "b"], properties={"n": str(n)}) for n in range(2500)]
    rows.append(Row(body=None, keys=None, properties=None))
    batches = list(record_batches(iter(rows), schema))
    assert [batch.num_rows for batch in batches] == [1000, 1000, 501]
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    table = pa.Table.from_batches(batches).to_pylist()
    assert table[1234] == {"body": b"1234", "keys": ["a", "b"], "properties": [("n", "1234")]}
    assert table[2500] == {"body": None, "keys": None, "properties": None}


@pytest.mark.behaviour("SP-05")
def test_a_time_in_a_row_is_one_of_the_machine_s_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        schema = StructType([StructField("deliver_at", TimestampType())])
        twice = datetime(2026, 11, 1, 1, 30, fold=1)  # in the hour that clocks repeat when they are set back
        rows = [Row(deliver_at=at) for at in (datetime(2026, 7, 1, 8), twice, None)]
        (batch,) = record_batches(iter(rows), schema)
        hours = [datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)]
        assert batch.column(0).to_pylist() == [*hours, None]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_older_spark_is_one_clear_line() -> None:
    with pytest.raises(
        VersionError, match=r"^PySpark 3\.5\.1 has no data sources in Python: .* 4\.0 or later"
    ):
        versions.check_version("3.5.1")
    versions.check_version("4.0.0.dev3")
    assert issubclass(VersionError, ImportError)


@pytest.mark.parametrize(
    ("master", "conf", "cores"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[3,5]", {}, 3),
        ("local[*]", {}, this_worker().host.cores),
        ("spark://host:7077", {"spark.cores.max": "12"}, 12),
        ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "5"}, 20),
        ("yarn", {}, 0),
    ],
)
def test_the_session_tells_the_cores_of_the_cluster(
    master: str, conf: dict[str, str], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cores_of(master, conf) == cores
    monkeypatch.setenv(CORES_VARIABLE, str(cores))
    assert cluster_cores() == (cores or this_worker().host.cores)
