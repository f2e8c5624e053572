"""The forms of rows: Arrow types, values of JSON bodies, gaps, and what older versions of Spark hand over."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.worker import this_worker
from orbitmq.spark import versions
from orbitmq.spark.errors import SchemaError, VersionError
from orbitmq.spark.options import read_options
from orbitmq.spark.read.arrow import BatchMaker
from orbitmq.spark.read.arrow_types import arrow_schema
from orbitmq.spark.read.partitions import CORES_VARIABLE
from orbitmq.spark.read.reading import cluster_cores
from orbitmq.spark.read.shape import Shape
from orbitmq.spark.read.values import ValueReader
from orbitmq.spark.schema import check_schema, extra_columns, message_schema, schema_of
from orbitmq.spark.session import cores_of
from orbitmq.spark.write.row_writer import record_batches

EVERY_TYPE = StructType(
    [
        StructField(f"c{i}", kind, i % 2 == 0)
        for i, kind in enumerate(
            [
                BinaryType(), BooleanType(), ByteType(), DateType(), DecimalType(12, 3), DoubleType(),
                FloatType(), IntegerType(), LongType(), ShortType(), StringType(), TimestampNTZType(),
                TimestampType(), ArrayType(StringType(), False), MapType(StringType(), LongType(), True),
                StructType([StructField("a", ArrayType(IntegerType()))]),
                StructType([StructField("b", StringType(), False)]),
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


PRICE = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("price", DecimalType(6, 2)),
        StructField("at", TimestampType()),
        StructField("day", DateType()),
        StructField("lines", ArrayType(StructType([StructField("sku", StringType())]))),
        StructField("more than a name", MapType(StringType(), BooleanType())),
    ]
)


@pytest.mark.behaviour("SP-05")
def test_bodies_are_values_or_reasons() -> None:
    bodies = {
        "whole": {
            "id": 1, "price": "12.50", "at": "2026-11-22T13:00:00Z", "day": "2026-11-22",
            "lines": [{"sku": "a"}, {}], "more than a name": {"x": True}, "unknown": [1],
        },
        "least": {"id": 2},
        "missing": {"price": "1"},
        "wrong": {"id": "two"},
        "large": {"id": 1 << 40},
        "digits": {"id": 3, "price": "123456.789"},
    }  # fmt: skip
    texts: list[bytes | None] = [json.dumps(body).encode() for body in bodies.values()]
    deep = b'{"unknown":' + b"[" * 100_000
    values, reasons = ValueReader(PRICE).read([*texts, b"[1]", b"{", b'{"id":\xff}', None, deep])
    whole, least, *others = values.to_pylist()
    assert whole["price"] == Decimal("12.50")
    assert whole["at"] == datetime(2026, 11, 22, 13, tzinfo=UTC)
    assert whole["day"] == date(2026, 11, 22)
    assert whole["lines"] == [{"sku": "a"}, {"sku": None}]
    assert whole["more than a name"] == [("x", True)]
    assert least["id"] == 2
    assert others == [None] * 9
    for reason, words in zip(
        reasons.to_pylist(),
        [None, None, "missing required field `id`", "Expected `int`, got `str` - at `$.id`", "<= 2147483647",
         "would cause data loss", "Expected `object`, got `array`", "truncated", "", "there is no body",
         "recursion depth exceeded"],
        strict=True,
    ):  # fmt: skip
        assert (reason is None) == (words is None), reason
        assert words is None or words in reason


def test_a_type_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(SchemaError, match="option valueSchema: type map<int,int> has no form in JSON"):
        ValueReader(StructType([StructField("m", MapType(IntegerType(), IntegerType()))]))


def records() -> bytes:
    bodies = [b'{"id": 7}', b"not json"]
    return b"".join(encode_record(Record("t", body, queue_offset=at)) for at, body in enumerate(bodies))


def shaped(schema: StructType) -> list[dict[str, Any]]:
    shape = Shape(schema)
    batch = BatchMaker(shape.stored).batch([records()], [("broker-a", 2)])
    made = shape.finish(batch)
    assert made.schema.equals(arrow_schema(schema))
    return list(made.to_pylist())


def test_a_value_takes_the_place_of_the_body() -> None:
    options = read_options({"topic": "t", "valueFormat": "json", "valueSchema": "id INT"})
    ddl = schema_of(options)
    assert isinstance(ddl, str)
    assert "`value` struct<id INT>, `value_error` string" in ddl
    assert "`body`" not in ddl
    value = StructField("value", StructType([StructField("id", IntegerType())]))
    schema = StructType(
        [StructField("queue_offset", LongType()), value, StructField("value_error", StringType())]
    )
    check_schema(schema, extra=extra_columns(options))
    fits, other = shaped(schema)
    assert fits == {"queue_offset": 0, "value": {"id": 7}, "value_error": None}
    assert (other["value"], other["queue_offset"]) == (None, 1)
    assert "malformed" in other["value_error"]
    assert shaped(StructType([value, StructField("body", StringType())]))[1]["body"] == "not json"
    with pytest.raises(SchemaError, match="column value_error tells about column value, which is not read"):
        message_schema(["value_error"], extra=["value", "value_error"])


def test_a_string_body_is_asked_for_by_the_format() -> None:
    schema = schema_of(read_options({"topic": "t", "valueFormat": "string", "columns": "body"}))
    assert isinstance(schema, StructType)
    assert shaped(schema) == [{"body": '{"id": 7}'}, {"body": "not json"}]


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="column body has type int, must be binary or string"):
        check_schema(StructType([StructField("body", IntegerType())]))
    with pytest.raises(SchemaError, match="column value has type string, must be struct"):
        check_schema(StructType([StructField("value", StringType())]), extra=["value", "value_error"])


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


@pytest.mark.behaviour("SP-06")
def test_a_time_in_a_row_is_one_of_the_machine_s_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        schema = StructType([StructField("deliver_at", TimestampType())])
        twice = datetime(2026, 11, 1, 1, 30, fold=1)  # when clocks were set back
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
