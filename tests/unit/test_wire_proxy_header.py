"""Headers of the PROXY protocol: whole, in pieces and wrong."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.errors import FrameError
from orbitmq.wire.proxy_header import MAX_V2_BYTES, V1, V2, ProxyHeader, parsed


def version_2(command: int, family: int, addresses: bytes) -> bytes:
    return V2 + struct.pack(">BBH", command, family, len(addresses)) + addresses


def of_tcp(source: str, port: int, more: bytes = b"") -> bytes:
    client = ipaddress.ip_address(source)
    family = 0x11 if client.version == 4 else 0x21
    return version_2(0x21, family, client.packed * 2 + struct.pack(">HH", port, 10911) + more)


GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911\r\n", ("192.0.2.7", 56324)),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n", ("2001:db8::7", 1)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (of_tcp("192.0.2.7", 56324), ("192.0.2.7", 56324)),
    (of_tcp("2001:db8::7", 1, b"\x04\x00\x01x"), ("2001:db8::7", 1)),
    (version_2(0x20, 0x00, b""), None),
    (version_2(0x20, 0x11, bytes(12)), None),
    (version_2(0x21, 0x00, b"more"), None),
    (version_2(0x21, 0x31, bytes(216)), None),
]
BAD = [
    b"POST / HTTP/1.1\r\n",
    b"\x16\x03\x01",
    b"\x00\x00\x00\x10",
    b"PROXY\tTCP4",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 56324\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911 7\r\n",
    b"PROXY TCP4  192.0.2.7 10.0.0.1 56324 10911\r\n",
    b"PROXY TCP4 192.0.2.777 10.0.0.1 56324 10911\r\n",
    b"PROXY TCP4 192.0.2.7 host 56324 10911\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 007 10911\r\n",
    b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY \xff\xfe\r\n",
    b"PROXY " + b"x" * (1 << 20),
    b"\r\n\r\n\x00\r\nQUIX",
    version_2(0x11, 0x11, bytes(12)),
    version_2(0x22, 0x11, bytes(12)),
    version_2(0x21, 0x12, bytes(12)),
    version_2(0x21, 0x11, bytes(11)),
    version_2(0x21, 0x21, bytes(12)),
    version_2(0x21, 0x11, bytes(MAX_V2_BYTES)),
    version_2(0x20, 0x00, bytes(65535)),
]


@pytest.mark.behaviour("LM-04")
@pytest.mark.parametrize(("header", "client"), GOOD)
def test_a_header_is_taken_from_what_follows_it(header: bytes, client: tuple[str, int] | None) -> None:
    for behind in (b"", b"\x16\x03\x01", header):
        assert parsed(header + behind) == ProxyHeader(client, len(header))
    assert [parsed(header[:length]) for length in range(len(header))] == [None] * len(header)


@pytest.mark.behaviour("LM-05")
@pytest.mark.parametrize("header", BAD, ids=lambda header: repr(header[:40]))
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        parsed(header)


@given(st.sampled_from([b"", V1, V2, V1 + b"TCP4 ", V2 + b"\x21\x11"]), st.binary(max_size=300))
def test_no_bytes_break_it(start: bytes, rest: bytes) -> None:
    try:
        found = parsed(start + rest)
    except FrameError:
        return
    assert found is None or 0 < found.length <= len(start + rest)
