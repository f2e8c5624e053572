"""Headers as HTTP/2 compresses them, judged by the library hpack."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.gateway.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, PROTOCOL_ERROR, Http2Error
from orbitmq.gateway.hpack import MAX_HEADER_LIST_BYTES, TABLE_BYTES, HeaderReader, block_of

NAMES = st.sampled_from(
    [":path", ":method", ":authority", "content-type", "te", "x-mq-client-id", "grpc-timeout", "a", "x" * 100]
) | st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1, max_size=30)
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=200)
VALUES = st.sampled_from(["", "POST", "/", "application/grpc", "trailers"]) | PRINTABLE
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=20)


@given(
    st.lists(
        st.tuples(LISTS, st.booleans(), st.sampled_from([TABLE_BYTES, 0, 40, 100, 1000])),
        min_size=1,
        max_size=8,
    )
)
def test_lists_of_headers_as_the_library_packs_them(
    lists: list[tuple[list[tuple[str, str]], bool, int]],
) -> None:
    encoder, reader = Encoder(), HeaderReader()
    for headers, packed, table in lists:
        encoder.header_table_size = table
        assert reader.read(encoder.encode(headers, huffman=packed)) == headers


@given(st.binary(max_size=60).filter(lambda raw: raw.strip(b" \t") == raw and not set(raw) & set(b"\0\r\n")))
def test_values_that_are_no_text(raw: bytes) -> None:
    for packed in (True, False):
        [(_, value)] = HeaderReader().read(Encoder().encode([(b"name", raw)], huffman=packed))
        assert value == raw.decode("ascii", "backslashreplace")


BLOCKS = st.lists(
    st.binary(max_size=12)
    | st.sampled_from([b"\x82", b"\x86", b"\x20", b"\x3f\xe1\x1f", b"\x40\x01a\x03abc", b"\xbe", b"\xbf"])
    | st.integers(0, 255).map(lambda byte: bytes((byte,))),
    max_size=12,
).map(b"".join)


def read(reader: HeaderReader, block: bytes) -> list[tuple[str, str]] | Http2Error:
    try:
        return reader.read(block)
    except Http2Error as error:
        return error


@given(st.lists(BLOCKS, min_size=1, max_size=4))
def test_any_bytes_are_read_as_the_library_reads_them_or_refused(blocks: list[bytes]) -> None:
    judge, reader = Decoder(), HeaderReader()
    for block in blocks:
        found = read(reader, block)
        if isinstance(found, Http2Error):
            if found.code == COMPRESSION_ERROR:
                with pytest.raises(HPACKError):
                    judge.decode(block, raw=True)
            # The block may also hold a name or a value that HTTP does not allow, which the library accepts.
            assert found.code in (COMPRESSION_ERROR, PROTOCOL_ERROR)
            return
        expected = [
            (bytes(name).decode("ascii"), bytes(value).decode("ascii", "backslashreplace"))
            for name, value in judge.decode(block, raw=True)
        ]
        assert found == expected


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x80", id="header 0"),
        pytest.param(b"\xbe", id="a header that the table does not have"),
        pytest.param(b"\x82\x20", id="a size behind a header"),
        pytest.param(b"\x3f\xe2\x1f", id="a size of 4,097"),
        pytest.param(b"\xff\x80\x80\x80\x80\x80\x00", id="a number too long"),
        pytest.param(b"\xff\x80", id="a number cut"),
        pytest.param(b"\x40\x05ab", id="a text cut"),
        pytest.param(b"\x40\x01a", id="no value"),
        pytest.param(b"\x40\x01a\x82\x1f\x18", id="padding with 0"),
        pytest.param(b"\x40\x01a\x82\x1f\xff", id="padding of 8 bits"),
        pytest.param(b"\x40\x01a\x84\xff\xff\xff\xff", id="the mark of the end"),
    ],
)
def test_blocks_that_are_none(block: bytes) -> None:
    with pytest.raises(Http2Error) as caught:
        HeaderReader().read(block)
    assert caught.value.code == COMPRESSION_ERROR


@pytest.mark.parametrize("name", ["", "Name", "a b", "a:b", ":", "é", "a\0", "\x7f"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Http2Error) as caught:
        HeaderReader().read(Encoder().encode([(name, "value")]))
    assert caught.value.code == PROTOCOL_ERROR


@pytest.mark.parametrize("value", [" a", "a ", "\ta", "a\0b", "a\r\nb", " "])
def test_values_that_are_none(value: str) -> None:
    with pytest.raises(Http2Error) as caught:
        HeaderReader().read(Encoder().encode([("name", value)]))
    assert caught.value.code == PROTOCOL_ERROR


@pytest.mark.behaviour("GW-04")
def test_a_small_block_that_unpacks_to_many_headers_is_refused() -> None:
    reader = HeaderReader()
    reader.read(b"\x40\x01a" + b"\x7f\xa1\x1e" + b"v" * 4000)
    with pytest.raises(Http2Error) as caught:
        reader.read(b"\xbe" * 5)
    assert caught.value.code == ENHANCE_YOUR_CALM
    assert len(reader.read(b"\xbe" * (MAX_HEADER_LIST_BYTES // 4033))) == MAX_HEADER_LIST_BYTES // 4033


@given(st.lists(st.tuples(NAMES, VALUES), max_size=10))
def test_the_library_reads_the_blocks_that_are_sent(headers: list[tuple[str, str]]) -> None:
    block = block_of([(name.encode(), value.encode()) for name, value in headers])
    assert Decoder().decode(block) == headers
    assert Decoder().decode(b"\x20" + block) == headers
