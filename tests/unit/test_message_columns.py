"""The columnar decoder against the record codec; ``make test`` runs this compiled and as plain Python."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.message.column_decoder import ColumnDecoder
from orbitmq.message.columns import COLUMN_NAMES, NULL, RAW
from orbitmq.message.compression import compress
from orbitmq.message.errors import DamagedBodyError, RecordError
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, encode_record, iter_records
from orbitmq.message.record_scan import scan_range

_word = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
_name = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "TAG", "KEYZ"]) | _word
_pair = st.tuples(_name, _word).map(lambda pair: f"{pair[0]}\x01{pair[1]}\x02".encode())
_noise = st.sampled_from(
    [b"", b"\x01\x02", b"a\x01\x02", b"\x01b\x02", b"\x02", b"plain\x02", b"x\x01y\x01z\x02"]
)
_properties = st.lists(_pair | _noise, max_size=6).map(b"".join) | _pair.map(lambda raw: raw[:-1])
_host = st.sampled_from([("127.0.0.1", 10911), ("255.0.128.7", 65535), ("fe80::1", 9), ("::1", 10911)])
_i64 = st.integers(-(2**63), 2**63 - 1)
_i32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def records(draw: st.DrawFn) -> Record:
    body, kind = draw(st.binary(max_size=40)), draw(st.sampled_from([0, 0, 1, 3]))
    flags = 0
    if kind:
        body, flags = compress(body, kind), 1 | kind << 8
    return Record(
        topic=draw(st.text("abcT_%", min_size=1, max_size=130)),
        body=body,
        properties=draw(_properties),
        queue_id=draw(_i32),
        queue_offset=draw(_i64),
        physical_offset=draw(_i64),
        sys_flag=flags,
        born_timestamp=draw(_i64),
        born_host=draw(_host),
        store_timestamp=draw(_i64),
        store_host=draw(_host),
        reconsume_times=draw(_i32),
    )


def rows_of(columns: Any) -> list[dict[str, Any]]:
    """Column buffers as rows of Python values."""
    out: list[dict[str, Any]] = [{} for _ in range(columns.rows)]
    for name, column in columns.fixed.items():
        code = "i" if name in ("queue_id", "reconsume_times", "body_size") else "q"
        for row, value in zip(out, memoryview(column.values).cast(code), strict=True):
            row[name] = value
    for name, text in columns.texts.items():
        for row, (value, there) in zip(out, _texts(text, columns.rows), strict=True):
            row[name] = value if there else None
    if columns.properties is not None:
        pairs = columns.properties
        names = [value.decode() for value, _ in _texts(pairs.names, pairs.size)]
        values = [value.decode() for value, _ in _texts(pairs.values, pairs.size)]
        at = memoryview(pairs.offsets).cast("i")
        for i, row in enumerate(out):
            found = list(zip(names[at[i] : at[i + 1]], values[at[i] : at[i + 1]], strict=True))
            assert len(dict(found)) == len(found), "a map has each name once"
            row["properties"] = dict(found)
    return out


def _texts(text: Any, rows: int) -> list[tuple[bytes, bool]]:
    at = memoryview(text.offsets).cast("i")
    data = bytes(text.data)
    bits = text.validity
    return [(data[at[i] : at[i + 1]], bits is None or bool(bits[i >> 3] >> (i & 7) & 1)) for i in range(rows)]


def expected_row(record: Record, body: bytes) -> dict[str, Any]:
    properties = decode_properties(record.properties)
    tags, keys = properties.get("TAGS"), properties.get("KEYS")
    return {
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "reconsume_times": record.reconsume_times,
        "topic": record.topic.encode(),
        "tags": tags.encode() if tags else None,
        "keys": keys.encode() if keys else None,
        "body": body,
        "body_size": len(record.body),
        "property_block": record.properties,
        "message_id": properties.get("UNIQ_KEY", record.message_id).encode(),
        "properties": properties,
    }


def _plain(record: Record) -> bytes:
    from orbitmq.message.compression import decompress

    return decompress(record.body, record.sys_flag >> 8 & 7) if record.sys_flag & 1 else record.body


@given(made=st.lists(records(), max_size=5), data=st.data())
@settings(max_examples=60, deadline=None)
def test_columns_say_what_the_record_codec_says(made: list[Record], data: st.DataObject) -> None:
    source = b"".join(map(encode_record, made))
    cut = len(b"".join(map(encode_record, made[: data.draw(st.integers(0, len(made)))])))
    pieces = [source[:cut], memoryview(source)[cut:]]
    names = data.draw(st.sets(st.sampled_from(sorted(COLUMN_NAMES))) | st.just(COLUMN_NAMES))
    wanted = [expected_row(record, _plain(record)) for record in iter_records(source)]
    got = rows_of(ColumnDecoder(names).decode(pieces))
    assert got == [{name: row[name] for name in names} for row in wanted]


@given(made=st.lists(records(), min_size=1, max_size=3), data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_are_an_error_or_whole_records(made: list[Record], data: st.DataObject) -> None:
    source = bytearray(b"".join(map(encode_record, made)))
    for _ in range(data.draw(st.integers(0, 3))):
        source[data.draw(st.integers(0, len(source) - 1))] = data.draw(st.integers(0, 255))
    source = source[: data.draw(st.integers(0, len(source)))]
    decoder = ColumnDecoder(COLUMN_NAMES - {"body"})
    with contextlib.suppress(RecordError):
        assert decoder.decode([bytes(source)]).rows <= len(made)


@pytest.mark.behaviour("ST-22")
def test_a_body_that_does_not_match_its_checksum_is_no_body() -> None:
    made = [Record("flights", b"body %d" % n, b"", 0, queue_offset=n) for n in range(3)]
    source = bytearray(b"".join(map(encode_record, made)))
    source[source.index(b"body 1")] ^= 4
    with pytest.raises(DamagedBodyError, match=r"^queue 0, offset 1: the body does not match its checksum$"):
        ColumnDecoder({"body"}).decode([bytes(source)])
    for bad_body, instead in ((NULL, None), (RAW, b"fody 1")):
        columns = ColumnDecoder({"body"}, bad_body).decode([bytes(source)])
        bodies = [body if valid else None for body, valid in _texts(columns.texts["body"], 3)]
        assert bodies == [b"body 0", instead, b"body 2"]
        assert columns.errors == {1: "queue 0, offset 1: the body does not match its checksum"}
    # A damaged body is no error if bodies are not read.
    assert ColumnDecoder({"topic"}).decode([bytes(source)]).rows == 3


def test_a_decoder_is_used_again_and_memory_need_not_be_clear() -> None:
    made = [
        Record("flights", b"x" * n, b"TAGS\x01UA\x02k\x01v\x02TAGS\x01AA\x02", n, queue_offset=n)
        for n in range(9)
    ]
    dirty = ColumnDecoder(COLUMN_NAMES, allocate=lambda size: bytearray(b"\xff" * size))
    for first in (0, 3, 0):
        source = b"".join(map(encode_record, made[first:]))
        wanted = [expected_row(record, record.body) for record in iter_records(source)]
        assert rows_of(dirty.decode([source])) == wanted
    assert dirty.decode([]).rows == 0


def _queue(offsets: list[int]) -> bytes:
    return b"".join(encode_record(Record("t", b"b", queue_offset=offset)) for offset in offsets)


def test_scan_finds_the_range_and_the_gap() -> None:
    size = len(_queue([0]))
    whole = scan_range(_queue([5, 6, 7, 8]), 5, 8, True)
    assert whole == (3, 3 * size, 8, -1)
    gap = scan_range(_queue([5, 7]), 5, 9, True)
    assert gap == (1, size, 6, 7)
    at_the_end = scan_range(_queue([5, 9]), 5, 7, True)
    assert at_the_end == (1, size, 6, 9)
    filtered = scan_range(_queue([5, 7]), 5, 9, False)
    assert filtered == (2, 2 * size, 8, -1)
    backwards = scan_range(_queue([5, 4]), 5, 9, False)
    assert backwards.found == 4
    assert scan_range(b"", 5, 9, True) == (0, 0, 5, -1)
    with pytest.raises(RecordError, match="record at byte"):
        scan_range(_queue([5])[:-1], 5, 9, True)
    with pytest.raises(RecordError, match="size -1"):
        scan_range(struct.pack(">i", -1) * 10, 5, 9, True)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown columns \['colour'\]"):
        ColumnDecoder(["body", "colour"])
