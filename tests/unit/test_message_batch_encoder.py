"""Columns become the same batch items as messages, compiled or not."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message import batch_encoder
from orbitmq.message.batch import encode_batch, iter_batch
from orbitmq.message.batch_encoder import BatchEncoder, MapColumn, Named, Strings
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties
from orbitmq.message.xxh64 import xxh64

PREFIX = b"0123456789ABCDEF"
HEAD = b"ID\x01query/7/2/ab.1/"


def strings(values: Sequence[bytes | None]) -> Strings:
    offsets, data = array("i", [0]), bytearray()
    bits = bytearray((len(values) + 7) // 8)
    for i, value in enumerate(values):
        data += value or b""
        offsets.append(len(data))
        if value is not None:
            bits[i >> 3] |= 1 << (i & 7)
    whole = all(value is not None for value in values)
    return Strings(memoryview(offsets), memoryview(bytes(data)), None if whole else memoryview(bytes(bits)))


def pairs(maps: Sequence[dict[str, str]]) -> MapColumn:
    offsets = array("i", [0])
    for entries in maps:
        offsets.append(offsets[-1] + len(entries))
    names = [name.encode() for entries in maps for name in entries]
    values = [value.encode() for entries in maps for value in entries.values()]
    return MapColumn(memoryview(offsets), strings(names), strings(values))


def loaded(
    bodies: Sequence[bytes],
    tags: Sequence[bytes | None] | None = None,
    maps: Sequence[dict[str, str]] | None = None,
    *,
    head: bytes = HEAD,
    first_row: int = 0,
    topic: str = "t",
) -> BatchEncoder:
    encoder = BatchEncoder(PREFIX, head, ("ID",))
    named = [] if tags is None else [Named("TAGS", strings(tags))]
    codes = memoryview(array("i", [0] * len(bodies)))
    given_pairs = None if maps is None else pairs(maps)
    encoder.load(len(bodies), strings(bodies), named, given_pairs, [topic], codes, first_row)
    return encoder


def encoded(encoder: BatchEncoder, rows: Sequence[int]) -> bytes:
    out = memoryview(bytearray(1 << 16))
    encoder.used = 0
    selection = memoryview(array("q", rows))
    assert encoder.fill(selection, 0, len(rows), out, len(out)) == len(rows)
    return bytes(out[: encoder.used])


# The expected values come from the reference implementation.
@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(memoryview(data or b"\0"), 0, len(data), seed) == expected


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=80),
            st.none() | st.text(st.characters(min_codepoint=3, codec="utf-8"), max_size=9),
            st.dictionaries(
                st.just("")
                | st.text(st.characters(min_codepoint=3, codec="utf-8"), max_size=6).map("p{}".format),
                st.text(st.characters(min_codepoint=3, codec="utf-8"), max_size=9),
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, (1 << 32) - 21),
)
def test_items_are_those_of_messages(
    rows: list[tuple[bytes, str | None, dict[str, str]]], first_row: int
) -> None:
    bodies, tags, maps = zip(*rows, strict=True)
    encoder = loaded(
        bodies, [None if tag is None else tag.encode() for tag in tags], maps, first_row=first_row
    )
    assert encoder.measure() == -1
    found = encoded(encoder, range(len(rows)))
    expected = []
    for i, (body, tag, properties) in enumerate(rows):
        kept = {name: value for name, value in properties.items() if name and value}
        if tag:
            kept["TAGS"] = tag
        number = first_row + i
        kept["UNIQ_KEY"] = f"{PREFIX.decode()}{number >> 16:04X}00000000{number & 0xFFFF:04X}"
        kept["ID"] = f"query/7/2/ab.1/{number}/{encoder.digests[i]:016x}"
        expected.append(Message("t", body, properties=kept))
    assert found == encode_batch(expected)
    assert [int.from_bytes(found[:4], "big")] == [encoder.sizes[0]]


def test_equal_rows_have_equal_digests() -> None:
    one = loaded([b"x", b"x", b"y"], [b"red", b"red", b"red"], [{"a": "1", "b": "2"}] * 3, first_row=5)
    other = loaded([b"x"], [b"red"], [{"b": "2", "a": "1"}])
    assert (one.measure(), other.measure()) == (-1, -1)
    digests = list(one.digests)
    assert digests[0] == digests[1] == other.digests[0]
    assert digests[2] != digests[0]
    for different in (
        loaded([b"x"], [b"blue"], [{"a": "1", "b": "2"}]),
        loaded([b"x"], [b"red"], [{"a": "2", "b": "1"}]),
        loaded([b"x"], [b"red"], [{"a": "1"}]),
        loaded([b"x"], [b"red"], [{"a": "1", "b": "2"}], topic="u"),
    ):
        assert different.measure() == -1
        assert different.digests[0] != digests[0]


def test_chosen_rows_fill_a_batch_up_to_its_limit() -> None:
    encoder = loaded([bytes([i]) * 10 for i in range(10)])
    assert encoder.measure() == -1
    size = encoder.sizes[0]
    out = memoryview(bytearray(1000))
    selection = memoryview(array("q", [9, 3, 5, 1]))
    encoder.used = 0
    assert encoder.fill(selection, 0, 4, out, 3 * size + 1) == 3
    assert encoder.used == 3 * size
    assert [item.body[0] for item in iter_batch(bytes(out[: encoder.used]))] == [9, 3, 5]
    assert encoder.fill(selection, 3, 4, out, 3 * size + 1) == 3, "nothing more fits"


def test_what_named_another_message_is_not_taken_over() -> None:
    given_map = {"UNIQ_KEY": "old", "ID": "old", "PGROUP": "g", "TRAN_MSG": "true", "TAGS": "map", "own": "1"}
    encoder = loaded([b"1", b"2"], [b"column", None], [given_map] * 2, head=b"")
    assert encoder.measure() == -1
    first, second = iter_batch(encoded(encoder, [0, 1]))
    assert decode_properties(first.properties) == {
        "own": "1",
        "TAGS": "column",
        "UNIQ_KEY": f"{PREFIX.decode()}{0:016X}",
    }
    assert decode_properties(second.properties)["TAGS"] == "map", "the column says nothing about this row"


def test_what_a_message_got_on_its_way_is_not_taken_over() -> None:
    waited = {"REAL_TOPIC": "t", "DELAY": "3", "TIMER_OUT_MS": "1", "TIMER_DELAY_MS": "9", "own": "1"}
    came_again = {
        "RETRY_TOPIC": "t",
        "POP_CK": "c",
        "TIMER_DEL_UNIQKEY": "k",
        "TIMER_ROLL_TIMES": "1",
        "own": "1",
    }
    encoder = loaded([b"1", b"2"], None, [waited, came_again], head=b"")
    assert encoder.measure() == -1
    for item in iter_batch(encoded(encoder, [0, 1])):
        assert decode_properties(item.properties).keys() == {"own", "UNIQ_KEY"}


@pytest.mark.parametrize(
    ("maps", "fault"),
    [
        ([{"a": "1"}, {"a": "1" * 33_000}], batch_encoder.TOO_LONG),
        ([{}, {"a": "1\x02"}], batch_encoder.CONTROL_CHARACTER),
        ([{}, {"a\x01": "1"}], batch_encoder.CONTROL_CHARACTER),
        ([{}, {"DELAY": "3"}], batch_encoder.DELAYED),
        ([{}, {"TIMER_DELAY_MS": "3"}], batch_encoder.DELAYED),
    ],
)
def test_a_row_that_is_no_message_is_found(maps: list[dict[str, str]], fault: int) -> None:
    encoder = loaded([b"1", b"2"], None, maps)
    assert encoder.measure() == 1
    assert encoder.fault == fault


def test_a_task_has_a_limit_of_rows() -> None:
    with pytest.raises(ValueError, match="use more partitions"):
        loaded([b"1", b"2"], first_row=(1 << 32) - 1)
    with pytest.raises(ValueError, match="16 characters"):
        BatchEncoder(b"short")


def test_many_rows_of_every_size() -> None:
    source = random.Random(7)
    bodies = [source.randbytes(source.randrange(200)) for _ in range(300)]
    encoder = loaded(bodies)
    assert encoder.measure() == -1
    out = encoded(encoder, range(300))
    assert [item.body for item in iter_batch(out)] == bodies
