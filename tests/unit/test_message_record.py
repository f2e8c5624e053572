"""Stored records and batches: round trips, both versions, IPv6, and damage."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message import sysflag
from orbitmq.message.batch import BatchItem, encode_batch, iter_batch
from orbitmq.message.compression import compress
from orbitmq.message.errors import MessageFormatError, RecordError
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import (
    Record,
    blank_record,
    decode_record,
    encode_record,
    is_blank,
    iter_records,
    to_received,
)
from orbitmq.message.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from orbitmq.message.sysflag import CompressionType

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.tuples(st.ip_addresses().map(str), INT32)
V6 = ("2001:db8::7", 10911)


@st.composite
def records(draw: st.DrawFn) -> Record:
    letters = st.characters(exclude_categories=("Cs",))
    return Record(
        topic=draw(st.text(letters, max_size=200)),
        body=draw(st.binary(max_size=50)),
        properties=draw(st.binary(max_size=50)),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=draw(INT32) & ~0x31,
        born_timestamp=draw(INT64),
        born_host=draw(HOSTS),
        store_timestamp=draw(INT64),
        store_host=draw(HOSTS),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
    )


def same(found: Record, expected: Record) -> bool:
    """Whether the records are equal, except for fields that encoding computes."""
    return plain(found) == plain(expected)


def plain(record: Record) -> Record:
    flags = record.sys_flag & ~(sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6)
    # An address can have several spellings.
    born, store = ((ip_address(ip).exploded, port) for ip, port in (record.born_host, record.store_host))
    return replace(record, sys_flag=flags, born_host=born, store_host=store, body_crc=0, total_size=0)


@given(records())
def test_a_record_survives(record: Record) -> None:
    raw = encode_record(record)
    found = decode_record(raw)
    assert same(found, record)
    assert found.total_size == len(raw)
    assert found.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF
    assert encode_record(found) == raw
    long = len(record.topic.encode()) > 127
    assert struct.unpack_from(">i", raw, 4)[0] == (MAGIC_V2 if long else MAGIC_V1)


@given(st.lists(records(), max_size=3), st.binary(max_size=9))
def test_records_one_after_another(expected: list[Record], before: bytes) -> None:
    raw = b"".join(encode_record(record) for record in expected)
    found = list(iter_records(raw))
    assert len(found) == len(expected)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    assert list(iter_records(memoryview(bytearray(raw)))) == found
    if found:
        assert decode_record(before + raw, len(before)) == found[0]


@given(records(), st.data())
def test_a_cut_or_damaged_record_is_a_record_error(record: Record, data: st.DataObject) -> None:
    raw = bytearray(encode_record(record))
    with pytest.raises(RecordError):
        decode_record(raw[: data.draw(st.integers(0, len(raw) - 1))])
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RecordError):
        decode_record(bytes(raw))


@given(st.binary(max_size=200))
def test_rubbish_is_a_record_error(raw: bytes) -> None:
    with suppress(RecordError):
        list(iter_records(raw))
    with suppress(RecordError):
        list(iter_batch(raw))
    with suppress(RecordError):
        decode_record(struct.pack(">ii", len(raw) + 8, MAGIC_V1) + raw)


def test_positions_of_fields() -> None:
    record = Record("T", b"", queue_offset=7, physical_offset=8, sys_flag=4, born_host=V6, store_host=V6)
    raw = encode_record(record)
    assert struct.unpack_from(">q", raw, QUEUE_OFFSET_AT)[0] == 7
    assert struct.unpack_from(">q", raw, PHYSICAL_OFFSET_AT)[0] == 8
    assert struct.unpack_from(">i", raw, SYS_FLAG_AT)[0] == 4 | 0x30
    assert len(raw) == 91 + 24 + 1


def test_the_blank_end_of_a_file() -> None:
    raw = encode_record(Record("T", b"a"))
    whole = raw + blank_record(500) + bytes(492)
    assert is_blank(whole, len(raw))
    assert len(list(iter_records(whole))) == 1
    for rest in (whole[len(raw) :], blank_record(8)):
        with pytest.raises(RecordError, match="blank end of a file"):
            decode_record(rest)


def damaged(at: int, number: int) -> bytes:
    raw = bytearray(encode_record(Record("T", b"body", b"k\x01v\x02")))
    struct.pack_into(">i", raw, at, number)
    return bytes(raw)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "0 bytes are left, a record has at least 91"),
        (damaged(4, 7), "magic number 0x00000007"),
        (damaged(0, 1000), "totalSize 1000 does not fit"),
        (damaged(0, -1), "totalSize -1 does not fit"),
        (damaged(84, -1), "bodyLength -1 does not fit"),
        (damaged(84, 99), "bodyLength 99 does not fit"),
        (damaged(84, 0), "topicLength 98 does not fit"),
        (damaged(36, 0x30), "its hosts need 115"),
        (damaged(4, MAGIC_V2), "topicLength 340 does not fit"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        decode_record(raw)


def test_limits_when_writing() -> None:
    with pytest.raises(RecordError, match="properties of 32768 bytes"):
        encode_record(Record("T", b"", bytes(32768)))
    with pytest.raises(RecordError, match="topic of 32768 bytes"):
        encode_record(Record("T" * 32768, b""))
    with pytest.raises(RecordError, match="does not fit its field"):
        encode_record(Record("T", b"", queue_id=2**31))
    with pytest.raises(RecordError, match="port"):
        encode_record(Record("T", b"", born_host=("1.1.1.1", 2**31)))
    with pytest.raises(MessageFormatError, match="'localhost' is not a numeric"):
        encode_record(Record("T", b"", born_host=("localhost", 1)))


@pytest.mark.parametrize("kind", [0, *CompressionType])
def test_the_received_message(kind: int) -> None:
    flags = sysflag.COMPRESSED | kind << sysflag.COMPRESSION_SHIFT | sysflag.TRANSACTION_COMMIT
    record = Record(
        "T",
        compress(b"body" * 50, kind),
        encode_properties({"TAGS": "a", "UNIQ_KEY": "u"}),
        queue_id=3,
        queue_offset=9,
        physical_offset=256,
        sys_flag=flags,
        born_timestamp=1,
        born_host=("1.2.3.4", 5),
        store_timestamp=2,
        store_host=V6,
        reconsume_times=1,
    )
    message = to_received(decode_record(encode_record(record)), "broker-a")
    assert (message.topic, message.body, message.tags) == ("T", b"body" * 50, "a")
    assert message.sys_flag & sysflag.COMPRESSED == 0
    assert sysflag.transaction_of(message.sys_flag) == sysflag.TRANSACTION_COMMIT
    assert message.queue == MessageQueue("T", "broker-a", 3)
    assert (message.queue_offset, message.commit_log_offset, message.reconsume_times) == (9, 256, 1)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1, 2)
    assert message.born_host == "1.2.3.4:5"
    assert message.message_id == "u"
    assert len(message.offset_message_id) == 56


@given(
    st.lists(st.tuples(INT32, st.binary(max_size=20), st.dictionaries(st.sampled_from("abc"), st.just("v"))))
)
def test_a_batch_survives(items: list[tuple[int, bytes, dict[str, str]]]) -> None:
    messages = [Message("T", body, flag=flag, properties=properties) for flag, body, properties in items]
    expected = [BatchItem(flag, body, encode_properties(properties)) for flag, body, properties in items]
    assert list(iter_batch(encode_batch(messages))) == expected


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"abc", "3 bytes are left, it has at least 22"),
        (struct.pack(">iiiii", 100, 0, 0, 0, 0) + b"\0\0", "size 100 does not fit"),
        (struct.pack(">iiiii", 22, 0, 0, 0, 1) + b"\0\0", "bodyLength 1 does not fit"),
        (struct.pack(">iiiii", 22, 0, 0, 0, 0) + b"\0\1", "propertiesLength 1 is wrong"),
    ],
)
def test_damaged_batches(raw: bytes, sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        list(iter_batch(raw))


def test_limits_of_a_batch() -> None:
    with pytest.raises(RecordError, match="flag"):
        encode_batch([Message("T", b"", flag=2**31)])
    with pytest.raises(RecordError, match="properties of"):
        encode_batch([Message("T", b"", properties={"a": "x" * 32768})])
