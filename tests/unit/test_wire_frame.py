"""Frames and headers: round trips, every way of cutting, limits, and garbage."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.command import Command, Language, Serialization
from orbitmq.wire.errors import FrameError
from orbitmq.wire.frame import MAX_FRAME_BYTES, FrameDecoder, decode_frame, encode_frame, frame_end
from orbitmq.wire.json_header import MAX_EXT_FIELDS, decode_json_header

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    return Command(
        code=draw(INT16),
        ext=draw(st.dictionaries(TEXT, TEXT, max_size=6)),
        body=draw(st.binary(max_size=60)),
        opaque=draw(INT32),
        flag=draw(INT32),
        remark=draw(st.none() | TEXT.filter(bool)),
        language=draw(st.sampled_from(Language)),
        version=draw(INT16),
        serialization=draw(st.sampled_from(Serialization)),
    )


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def binary_frame(header: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(header), 1 << 24 | len(header)) + header


@given(commands())
def test_a_command_survives_its_frame(command: Command) -> None:
    assert decode_frame(encode_frame(command)) == command


@given(st.lists(commands(), max_size=4), st.data())
def test_the_cuts_of_a_stream_do_not_matter(sent: list[Command], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(command) for command in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    decoder = FrameDecoder()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        received += decoder.commands()
    assert received == sent
    assert decoder.buffered_bytes == 0


@given(st.lists(commands(), min_size=1, max_size=3))
def test_a_stream_byte_by_byte(sent: list[Command]) -> None:
    decoder = FrameDecoder()
    received = []
    for byte in b"".join(encode_frame(command) for command in sent):
        decoder.feed(bytes((byte,)))
        received += decoder.commands()
    assert received == sent


@given(st.binary(max_size=200))
def test_rubbish_is_a_frame_error(data: bytes) -> None:
    for raw in (data, json_frame(data), binary_frame(data)):
        with suppress(FrameError):
            decode_frame(raw)
    decoder = FrameDecoder()
    decoder.feed(data)
    try:
        list(decoder.commands())
    except FrameError:
        with pytest.raises(FrameError):
            list(decoder.commands())


@given(commands(), st.data())
def test_a_damaged_frame_is_a_frame_error_or_a_command(command: Command, data: st.DataObject) -> None:
    raw = bytearray(encode_frame(command))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        decode_frame(bytes(raw))


@given(commands())
def test_any_buffer_will_do(command: Command) -> None:
    raw = encode_frame(command)
    assert decode_frame(memoryview(bytearray(raw))) == command
    shifted = b"xyz" + raw + b"rest"
    end = frame_end(shifted, 3, len(shifted))
    assert end == 3 + len(raw)
    assert decode_frame(memoryview(shifted), 3, end) == command


def test_a_frame_beyond_the_limit_is_refused_by_its_length() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">i", MAX_FRAME_BYTES - 3))
    with pytest.raises(FrameError, match=r"frame of 16777221 bytes; allowed: 4 to 16777220"):
        list(decoder.commands())
    small = FrameDecoder(max_frame_bytes=100)
    small.feed(struct.pack(">i", 96))
    assert list(small.commands()) == []


def test_commands_before_a_bad_frame_still_arrive() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(Command(1)) + struct.pack(">i", -1))
    stream = decoder.commands()
    assert next(stream).code == 1
    with pytest.raises(FrameError, match="frame of -1 bytes"):
        next(stream)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"\0\0\0\1", "shorter than its two length fields"),
        (struct.pack(">ii", 4, 5), "header length 5 is beyond the end of a frame of length 4"),
        (struct.pack(">ii", 9, 0), "frame length 9 differs"),
        (struct.pack(">ii", 4, 7 << 24), "header format 7 is neither"),
        (json_frame(b"[]"), "is a list, not an object"),
        (json_frame(b"{"), "cannot be read"),
        (json_frame(b'{"code":"x"}'), "code"),
        (json_frame(b'{"code":99999999999}'), "code"),
        (json_frame(b'{"extFields":[1]}'), "extFields"),
        (json_frame(b'{"extFields":{"a":{}}}'), "extFields.a is a dict"),
        (json_frame(b'{"remark":"\xff"}'), "cannot be read"),
        (json_frame(b'{"x":' + b"[" * 100_000), "nested too deep"),
        (binary_frame(b"\0" * 20), "shorter than its fixed part"),
        (binary_frame(struct.pack(">hbhiii", 1, 0, 0, 0, 0, -1) + b"\0\0\0\0"), "remark length -1"),
        (binary_frame(struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 9)), "extFields length 9 does not fit"),
        (binary_frame(struct.pack(">hbhiiiihi", 1, 0, 0, 0, 0, 0, 6, -1, 0)), "name length -1"),
        (binary_frame(struct.pack(">hbhiiiihi", 1, 0, 0, 0, 0, 0, 6, 0, -1)), "value length -1"),
        (binary_frame(struct.pack(">hbhiiiiB", 1, 0, 0, 0, 0, 0, 1, 0)), "cut off"),
        (binary_frame(struct.pack(">hbhiiiB", 1, 0, 0, 0, 0, 1, 255) + b"\0\0\0\0"), "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        decode_frame(raw)


@pytest.mark.parametrize("serialization", Serialization)
def test_the_number_of_fields_is_limited(serialization: Serialization) -> None:
    many = {str(number): "" for number in range(MAX_EXT_FIELDS + 1)}
    with pytest.raises(FrameError, match=r"1025 extFields|more than 1024 extFields"):
        decode_frame(encode_frame(Command(1, many, serialization=serialization)))
    many.popitem()
    assert decode_frame(encode_frame(Command(1, many, serialization=serialization))).ext == many


def test_text_without_utf8_is_refused_when_writing() -> None:
    for serialization in Serialization:
        with pytest.raises(FrameError):
            encode_frame(Command(1, {"a": "\ud800"}, serialization=serialization))


def test_a_lenient_header_is_read() -> None:
    ext = b'{"a":1,"b":true,"c":null,"d":1.5}'
    text = b'{"code":10,"extFields":' + ext + b',"language":"FORTH","remark":null,"x":{"y":[]}}'
    command = decode_json_header(text)
    assert command.ext == {"a": "1", "b": "true", "d": "1.5"}
    assert command.language == Language.OTHER
    assert decode_json_header(b"{}") == Command(0, language=Language.JAVA, version=0)
    assert decode_json_header(b'{"code":"7","extFields":null,"language":9}').code == 7
