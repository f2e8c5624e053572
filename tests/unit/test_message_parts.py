"""Properties, flags, hashes, ids and compression."""

from __future__ import annotations

import sys
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ValidationError
from orbitmq.message import property_names, sysflag
from orbitmq.message.compression import compress, decompress
from orbitmq.message.errors import CompressionError, MessageFormatError
from orbitmq.message.ids import UniqueIds, offset_message_id, parse_offset_message_id
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties, encode_properties, parse_properties
from orbitmq.message.sysflag import CompressionType
from orbitmq.message.tags import java_hash, tags_code
from orbitmq.testing.machine.simulated import simulated_runtime

NAMES = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=9
)
KINDS = (0, *CompressionType)


@given(st.dictionaries(NAMES, NAMES, max_size=5))
def test_properties_survive(properties: dict[str, str]) -> None:
    block = encode_properties(properties)
    assert decode_properties(block) == properties
    assert decode_properties(block[:-1]) == properties


@given(st.binary(max_size=40))
def test_any_bytes_are_properties(block: bytes) -> None:
    assert all(name and value for name, value in decode_properties(block).items())


def test_pairs_without_name_or_value_vanish() -> None:
    assert parse_properties("a\x01\x02\x01b\x02c\x02\x02d\x01e\x01f") == {"d": "e\x01f"}
    assert encode_properties({"a": "\ud800"}) == b"a\x01?\x02"


def test_key_names_are_distinct() -> None:
    names = [
        value for name, value in vars(property_names).items() if name.isupper() and name != "KEY_SEPARATOR"
    ]
    assert len(names) == len(set(names)) > 60


@pytest.mark.behaviour("MV-07")
def test_bits_of_the_system_flag() -> None:
    assert (sysflag.COMPRESSED, sysflag.MULTI_TAGS, sysflag.TRANSACTION_NOT) == (1, 2, 0)
    assert (sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT) == (4, 8)
    assert sysflag.TRANSACTION_ROLLBACK == 12


@pytest.mark.behaviour("SK-11")
def test_compression_in_the_system_flag() -> None:
    found = [sysflag.with_compression(0, kind) for kind in CompressionType]
    assert dict(zip(CompressionType, found, strict=True)) == {
        CompressionType.LZ4: 0x101,
        CompressionType.ZSTD: 0x201,
        CompressionType.ZLIB: 0x301,
    }


@pytest.mark.behaviour("MV-09")
def test_tags_keys_wait_and_delay_are_properties() -> None:
    message = Message("T", "b", tags="t", keys=["a", "b"], delay_level=3)
    assert message.properties == {"TAGS": "t", "KEYS": "a b", "DELAY": "3"}
    assert (message.tags, message.keys, message.delay_level) == ("t", ["a", "b"], 3)
    assert message.wait_stored
    message.properties[property_names.WAIT] = "false"
    assert not message.wait_stored


def test_system_flags() -> None:
    flag = sysflag.with_transaction(sysflag.INNER_BATCH, sysflag.TRANSACTION_PREPARED)
    assert sysflag.transaction_of(flag) == sysflag.TRANSACTION_PREPARED
    assert sysflag.with_transaction(flag, sysflag.TRANSACTION_ROLLBACK) == 0x8C
    zipped = sysflag.with_compression(flag, CompressionType.ZSTD)
    assert sysflag.compression_of(zipped) == CompressionType.ZSTD
    assert zipped & sysflag.COMPRESSED


@given(st.text())
def test_the_java_hash_is_a_signed_32_bit_number(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    expected = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        expected = (31 * expected + high * 256 + low) % 2**32
    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31


def test_the_code_of_no_tags_is_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("x" * 200) == java_hash("x" * 200)


@given(st.ip_addresses(), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_offset_ids_survive(address: object, port: int, offset: int) -> None:
    text = offset_message_id(str(address), port, offset)
    host, *rest = parse_offset_message_id(text)
    assert rest == [port, offset]
    assert offset_message_id(host, port, offset) == text


@given(st.text(max_size=60) | st.text("0123456789ABCDEFG", min_size=32, max_size=32))
def test_other_texts_are_no_offset_ids(text: str) -> None:
    try:
        parse_offset_message_id(text)
    except MessageFormatError:
        return
    assert len(text) in (32, 56)


def test_unique_ids() -> None:
    runtime = simulated_runtime(seed=3)
    ids = UniqueIds(runtime, "10.0.0.1")
    made = [ids.next() for _ in range(70_000)]
    assert len(set(made[:65_536])) == 65_536
    assert all(len(text) == 32 and text.startswith("0A000001") for text in made[:5])
    now = runtime.clock.now_ms()
    # A simulated machine has the time zone UTC.
    month = datetime.fromtimestamp(now / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = month.timestamp() * 1000
    assert int(made[0][20:28], 16) == now - start
    assert UniqueIds(simulated_runtime(seed=4), "10.0.0.1").next()[:20] != made[0][:20]
    with pytest.raises(MessageFormatError, match="not a numeric"):
        UniqueIds(runtime, "localhost")


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_survive_compression(kind: int) -> None:
    for body in (b"", b"a", bytes(100_000), bytes(range(256)) * 40):
        assert decompress(compress(body, kind), kind) == body


@pytest.mark.parametrize("kind", KINDS)
def test_bombs_are_refused(kind: int) -> None:
    bomb = compress(bytes(3_000_000), kind)
    assert len(bomb) < 20_000
    assert len(decompress(bomb, kind, 3_000_000)) == 3_000_000
    with pytest.raises(CompressionError, match="beyond the limit of 2999999 bytes"):
        decompress(bomb, kind, 2_999_999)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_a_compression_error(kind: int) -> None:
    whole = compress(bytes(range(256)) * 10, kind)
    for damaged in (b"", b"rubbish", whole[:-1], whole[: len(whole) // 2], b"\0" + whole[1:]):
        with pytest.raises(CompressionError):
            decompress(damaged, kind)


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.binary(max_size=60), start=st.booleans())
def test_rubbish_is_a_compression_error(kind: int, raw: bytes, start: bool) -> None:
    head = compress(b"x" * 30, kind)[:8] if start else b""
    try:
        decompress(head + raw, kind, 1000)
    except CompressionError as error:
        assert str(error)  # noqa: PT017  # either outcome is right


def test_java_reads_zlib_level_5() -> None:
    assert compress(b"abc") == zlib.compress(b"abc", 5)


def test_unknown_kinds_and_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (compress, decompress):
        with pytest.raises(CompressionError, match="compression type 7 is not one of"):
            call(b"", 7)
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CompressionError, match="LZ4 bodies need the package lz4"):
        compress(b"", CompressionType.LZ4)
    with pytest.raises(CompressionError, match="ZSTD bodies need the package zstandard"):
        decompress(b"", CompressionType.ZSTD)


@pytest.mark.parametrize("level", [19, 99, -1])
def test_a_delay_level_that_brokers_do_not_have_is_refused(level: int) -> None:
    with pytest.raises(ValidationError, match=f"delay_level must be 0 to 18, got {level}: a broker would"):
        Message("T", "b", delay_level=level)
    with pytest.raises(ValidationError, match="must be a whole number, got '3'"):
        Message("T", "b", delay_level="3")  # type: ignore[arg-type]
    assert Message("T", "b", properties={"DELAY": "20"}).delay_level == 20
