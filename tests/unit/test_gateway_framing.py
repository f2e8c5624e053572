"""gRPC messages in the bytes of a stream, and the texts of gRPC's headers."""

from __future__ import annotations

import gzip
import struct

import pytest

from orbitmq.gateway.call import CallError, GrpcStatus
from orbitmq.gateway.framing import (
    MAX_MESSAGE_BYTES,
    MessageReader,
    percent_encoded,
    prefixed,
    timeout_ms,
    unpacked,
)

BOMB = gzip.compress(bytes(MAX_MESSAGE_BYTES + 1))


def test_messages_come_out_whatever_the_cuts() -> None:
    messages = [b"", b"one", bytes(1000), b"\0\0\0\0\5"]
    data = b"".join(map(prefixed, messages))
    for size in (1, 2, 7, 999, len(data)):
        reader = MessageReader()
        found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
        reader.end()
        assert found == [(False, message) for message in messages]
        assert reader.held_bytes == 0


def status_of(call: object, *arguments: object) -> GrpcStatus:
    with pytest.raises(CallError) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value.status


def test_a_message_that_is_too_long_is_refused_by_its_first_bytes() -> None:
    assert status_of(MessageReader().feed, struct.pack(">BI", 0, 130 << 20)) is GrpcStatus.RESOURCE_EXHAUSTED
    assert MessageReader().feed(struct.pack(">BI", 0, MAX_MESSAGE_BYTES)) == []


def test_what_is_no_message_is_refused() -> None:
    assert status_of(MessageReader().feed, b"\2\0\0\0\0") is GrpcStatus.INTERNAL
    reader = MessageReader()
    reader.feed(prefixed(b"12345")[:-1])
    assert status_of(reader.end) is GrpcStatus.INVALID_ARGUMENT


def test_gzip_is_unpacked_and_bad_gzip_is_refused() -> None:
    content = bytes(range(256)) * 1000
    packed = gzip.compress(content)
    assert unpacked(packed) == content
    assert status_of(unpacked, packed[:-1]) is GrpcStatus.INVALID_ARGUMENT
    assert status_of(unpacked, b"this is none") is GrpcStatus.INVALID_ARGUMENT
    assert status_of(unpacked, b"") is GrpcStatus.INVALID_ARGUMENT
    assert status_of(unpacked, BOMB) is GrpcStatus.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("value", "ms"),
    [("3S", 3000), ("1H", 3_600_000), ("2M", 120_000), ("15m", 15), ("999u", 1), ("1n", 1), ("0S", 0)],
)
def test_a_timeout_in_any_unit(value: str, ms: int) -> None:
    assert timeout_ms(value) == ms


@pytest.mark.parametrize("value", ["", "S", "3", "123456789S", "-1S", "1.5S", "٣S", "3x"])
def test_a_timeout_that_is_none_is_refused(value: str) -> None:
    assert status_of(timeout_ms, value) is GrpcStatus.INVALID_ARGUMENT


def test_texts_of_a_status_are_percent_encoded() -> None:
    assert percent_encoded("ten % of 20\n\u00e9") == b"ten %25 of 20%0A%C3%A9"
