"""Record batches in the schema that Spark requests."""

from __future__ import annotations

import datetime
import itertools

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import IntegerType, StringType, StructField, StructType  # noqa: E402

from orbitmq.message.properties import encode_properties  # noqa: E402
from orbitmq.message.record import Record, encode_record  # noqa: E402
from orbitmq.spark.errors import SchemaError  # noqa: E402
from orbitmq.spark.pulling.arrow import BatchMaker  # noqa: E402
from orbitmq.spark.schema import check_schema, message_schema  # noqa: E402

BORN_MS = 1_700_000_000_123


def _records() -> bytes:
    first = Record(
        "flights",
        b"\x00body",
        encode_properties({"TAGS": "UA", "KEYS": "N1 N2", "UNIQ_KEY": "ID"}),
        queue_id=3,
        queue_offset=7,
        physical_offset=256,
        born_timestamp=BORN_MS,
        store_timestamp=BORN_MS + 1,
        store_host=("127.0.0.1", 10911),
    )
    second = Record("flights", b"", queue_id=4, queue_offset=8, physical_offset=3, reconsume_times=2)
    return encode_record(first) + encode_record(second)


def test_all_columns_have_their_values() -> None:
    schema = message_schema(properties="map").add("body_size", IntegerType())
    batch = BatchMaker(schema).batch([_records()], [("broker-a", 1), ("broker-b", 1)])
    batch.validate(full=True)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    first, second = batch.to_pylist()
    born = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC)
    assert first == {
        "topic": "flights",
        "queue_id": 3,
        "queue_offset": 7,
        "broker": "broker-a",
        "tags": "UA",
        "keys": "N1 N2",
        "body": b"\x00body",
        "body_size": 5,
        "properties": [("TAGS", "UA"), ("KEYS", "N1 N2"), ("UNIQ_KEY", "ID")],
        "born_timestamp": born,
        "store_timestamp": born + datetime.timedelta(milliseconds=1),
        "message_id": "ID",
        "reconsume_times": 0,
    }
    assert (second["broker"], second["tags"], second["keys"]) == ("broker-b", None, None)
    assert second["properties"] == []
    assert second["message_id"] == "00000000000000000000000000000003"
    assert second["reconsume_times"] == 2


def test_the_names_of_brokers_follow_the_batches_however_long_they_are() -> None:
    maker = BatchMaker(message_schema(("queue_id", "broker")))
    for names in (["a", "a"], ["a"], ["a", "a", "a"], ["b", "b"], [], ["a", "b"], ["b"], ["a", "a"]):
        runs = [(name, len(list(group))) for name, group in itertools.groupby(names)]
        batch = maker.batch([encode_record(Record("flights", b"", queue_id=4))] * len(names), runs)
        batch.validate(full=True)
        assert batch.column("broker").to_pylist() == names
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        assert pa.ipc.open_stream(sink.getvalue()).read_all().column("broker").to_pylist() == names


def test_a_subset_in_any_order_and_the_body_as_text() -> None:
    schema = StructType([StructField("body", StringType()), StructField("queue_id", IntegerType())])
    batch = BatchMaker(schema).batch([_records()], [("broker-a", 2)])
    assert batch.to_pydict() == {"body": ["\x00body", ""], "queue_id": [3, 4]}


def test_properties_come_when_they_are_asked_for() -> None:
    assert "properties" not in message_schema().fieldNames()
    assert message_schema(["properties"]).fields[0].dataType.typeName() == "map"
    raw = BatchMaker(message_schema(properties="raw")).batch([_records()], [("broker-a", 2)])
    block = encode_properties({"TAGS": "UA", "KEYS": "N1 N2", "UNIQ_KEY": "ID"})
    assert raw.to_pydict()["properties"] == [block, b""]


def test_no_records_make_an_empty_batch() -> None:
    batch = BatchMaker(message_schema()).batch([], [])
    batch.validate(full=True)
    assert batch.num_rows == 0


def test_an_absurd_time_does_not_stop_the_query() -> None:
    source = encode_record(Record("t", b"", born_timestamp=2**63 - 1))
    assert BatchMaker(message_schema(["born_timestamp"])).batch([source], [("b", 1)]).num_rows == 1


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (StructType([StructField("colour", StringType())]), r"unknown \['colour'\].*known: topic, queue_id"),
        (StructType([StructField("queue_id", StringType())]), "queue_id has type string, must be int"),
        (StructType([StructField("tags", StringType(), False)]), "tags is NOT NULL"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: StructType, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        check_schema(schema)


@pytest.mark.behaviour("FI-10")
@pytest.mark.parametrize(("tags", "rows"), [("Aa", 1), ("Aa || BB", 2), ("Cc", 0)])
def test_tags_with_one_hash_are_told_apart_by_their_text(tags: str, rows: int) -> None:
    records = b"".join(
        encode_record(Record("t", b"x", encode_properties({"TAGS": tag}), 0, 0, offset))
        for offset, tag in enumerate(("Aa", "BB"))
    )
    maker = BatchMaker(message_schema(["body"]), tags)
    assert maker.batch([records], [("broker-a", 2)]).num_rows == rows
