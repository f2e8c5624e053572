"""The scan of a header finds the fields that the decoder finds, or reports the header as unusual."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.octets import is_utf8_bytes
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.errors import FrameError
from orbitmq.wire.frame import decode_frame, encode_frame
from orbitmq.wire.scan import HeaderScan, field_name, parsed_int, unescaped

NAMES = st.text(
    st.characters(codec="ascii", min_codepoint=0x20, exclude_characters='"\\'), min_size=1, max_size=9
)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COMMANDS = st.builds(
    Command,
    code=st.integers(0, 0x7FFF),
    ext=st.dictionaries(NAMES, VALUES, max_size=20),
    body=st.binary(max_size=20),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    serialization=st.sampled_from(list(Serialization)),
)


def text_of(value: bytes, escaped: bool) -> str:
    return str(json.loads(b'"' + value + b'"')) if escaped else value.decode()


def check(scan: HeaderScan, command: Command, fields: list[tuple[bytes, bytes, bool]]) -> None:
    assert (scan.code, scan.opaque, scan.flag) == (command.code, command.opaque, command.flag)
    assert (scan.version, scan.binary) == (command.version, int(command.serialization))
    assert {name.decode(): text_of(value, escaped) for name, value, escaped in fields} == command.ext


@given(COMMANDS)
def test_an_ordinary_header_is_found_whole(command: Command) -> None:
    frame = encode_frame(command)
    scan = HeaderScan()
    fields = scan.scan_frame(frame)
    assert fields is not None
    check(scan, decode_frame(frame), fields)
    assert len(frame) - scan.body_start == len(command.body)


@given(COMMANDS, st.lists(st.tuples(st.integers(8, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_header_is_unusual_or_read_as_the_decoder_reads_it(
    command: Command, damage: list[tuple[int, int]]
) -> None:
    frame = bytearray(encode_frame(command))
    for at, value in damage:
        frame[8 + (at - 8) % (len(frame) - 8)] = value
    scan = HeaderScan()
    fields = scan.scan_frame(bytes(frame))
    if fields is None:
        return
    # An escape is checked when its value is used: the fast path does so for properties, and leaves other
    # values to the handlers.
    if any(escaped and unescaped(value, 400) is None for _, value, escaped in fields):
        return
    try:
        decoded = decode_frame(bytes(frame))
    except FrameError:
        # Names of a binary header are compared with known ones later; all other parts are checked.
        assert any(not is_utf8_bytes(name) for name, _, _ in fields)
        return
    check(scan, decoded, fields)


@given(st.binary(max_size=60), st.sampled_from([0, 1, 2, 255]))
def test_garbage_is_unusual_or_read(header: bytes, kind: int) -> None:
    word = bytes([kind]) + len(header).to_bytes(3, "big")
    frame = (4 + len(header)).to_bytes(4, "big") + word + header
    HeaderScan().scan_frame(frame)


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"{}", b"[]", b'{"code":1', b'{"code":1,}', b'{"code":1}}', b'{ "code":1}', b'{"code": 1}',
        b'{"code":01}', b'{"code":-01}', b'{"code":1.0}', b'{"code":1e3}', b'{"code":null}', b'{"code":true}',
        b'{"code":"1"}', b'{"code":2147483648}', b'{"code":-2147483649}', b'{"code":1,"opaque":"5"}',
        b'{"code":1,"other":5}', b'{"code":1,"extFields":null}', b'{"code":1,"extFields":"x"}',
        b'{"code":1,"extFields":{"a":1}}', b'{"code":1,"extFields":{"a":null}}',
        b'{"code":1,"extFields":{"a":{"b":"c"}}}', b'{"code":1,"extFields":{"a":"b",}}',
        b'{"code":1,"extFields":{"a":"b"}', b'{"code":1,"extFields":{"a":"b}}',
        b'{"code":1,"extFields":{"a":"b\\',
        b'{"code":1,"extFields":{"a\\n":"b"}}', b'{"code":1,"remark":"a\\n"}',
        b'{"code":1,"extFields":{"a":"\n"}}',
        b'{"code":1,"extFields":{"a":"\xff"}}', b'{"code":1,"extFields":{"a":"\xc0\x80"}}',
        b'{"code":1,"extFields":{"a":"\xed\xa0\x80"}}', b'{"code":1,"other":{"a":"b"}}',
        b'{"code":1,"extFields":{' + b",".join(b'"k%d":"v"' % n for n in range(41)) + b"}}",
    ],
)  # fmt: skip
def test_an_unusual_header_is_left_to_the_decoder(header: bytes) -> None:
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert HeaderScan().scan_frame(frame) is None


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_binary_header_that_is_cut_is_unusual(cut: int) -> None:
    command = Command(310, {"a": "pg", "b": "topic"}, serialization=Serialization.ROCKETMQ)
    header = encode_frame(command)[8:-cut]
    frame = (4 + len(header)).to_bytes(4, "big") + b"\1" + len(header).to_bytes(3, "big") + header
    assert HeaderScan().scan_frame(frame) is None


def test_a_header_longer_than_its_frame_is_unusual() -> None:
    assert HeaderScan().scan_frame(b"\0\0\0\6\0\0\0\3{}") is None
    with pytest.raises(ValueError, match="not one whole frame"):
        HeaderScan().scan_frame(b"\0\0\0\7\0\0\0\3{}")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_unescaping_gives_the_text_or_nothing(text: str) -> None:
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        found = unescaped(escaped.encode(), 400)
        if text.isascii() or escaped.isascii() is False:
            assert found == text.encode()
        else:
            assert found is None


@given(st.binary(max_size=30), st.integers(0, 20))
def test_unescaping_garbage_stays_in_its_room(garbage: bytes, room: int) -> None:
    found = unescaped(garbage, room)
    assert found is None or len(found) <= room


@given(st.integers(-(10**20), 10**20))
def test_numbers_of_up_to_18_digits_are_read(number: int) -> None:
    assert parsed_int(b"%d" % number) == (number if abs(number) < 10**18 else None)


@pytest.mark.parametrize(
    "text", [b"", b"-", b"--1", b"+1", b" 1", b"1 ", b"1-", b"0x1", "\u0661".encode(), b"1e3"]
)
def test_what_is_no_plain_number(text: bytes) -> None:
    assert parsed_int(text) is None


@given(st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_utf8_is_judged_as_python_does(data: bytes) -> None:
    try:
        data.decode()
        good = True
    except UnicodeDecodeError:
        good = False
    assert is_utf8_bytes(data) == good


def test_one_letter_has_the_number_of_its_letter() -> None:
    assert field_name("a") == ord("a")
