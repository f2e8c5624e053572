"""The header of the PROXY protocol, versions 1 and 2, by which a proxy passes on its client's address."""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

from orbitmq.wire.errors import FrameError

V1: Final = b"PROXY "
V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1_BYTES: Final = 107
# A header of version 2 may carry more, such as the client's certificate, which OrbitMQ does not read.
MAX_V2_BYTES: Final = 4096
_V2_HEAD: Final = struct.Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header.

    Attributes:
        client: the client's host and port; None if the proxy itself connects, as for a health check, or does
            not know the client.
        length: the header's length in bytes.
    """

    client: tuple[str, int] | None
    length: int


def parsed(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of received bytes; None while it is incomplete.

    Raises:
        FrameError: the bytes do not begin with a header.
    """
    if data.startswith(V1):
        return _version_1(data)
    if data.startswith(V2):
        return _version_2(data)
    if V1.startswith(data) or V2.startswith(data):
        return None
    raise FrameError("it sends no PROXY protocol header")


def _version_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_V1_BYTES)
    if end < 0:
        if len(data) >= MAX_V1_BYTES:
            raise FrameError(f"its header of version 1 does not end within {MAX_V1_BYTES} bytes")
        return None
    try:
        words = data[:end].decode("ascii").split(" ")
    except UnicodeDecodeError as error:
        raise FrameError("its header of version 1 is not ASCII") from error
    if words[1] == "UNKNOWN":
        return ProxyHeader(None, end + 2)
    kinds = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}
    if len(words) != 6 or words[1] not in kinds:
        raise FrameError(f"its header of version 1 is not of TCP: {data[:end]!r}")
    _, family, source, target, source_port, target_port = words
    try:
        host = str(kinds[family](source))
        kinds[family](target)
        port, _ = _port(source_port), _port(target_port)
    except ValueError as error:
        raise FrameError(f"its header of version 1 has a wrong address: {data[:end]!r}") from error
    return ProxyHeader((host, port), end + 2)


def _port(text: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) > _LARGEST_PORT:
        raise ValueError(text)
    return int(text)


def _version_2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, command, family, length = _V2_HEAD.unpack_from(data)
    end = _V2_HEAD.size + length
    if command not in (_LOCAL, _PROXY):
        raise FrameError(f"its header of version 2 has the unknown command {command:#04x}")
    if end > MAX_V2_BYTES:
        raise FrameError(f"its header of version 2 has {end} bytes, more than {MAX_V2_BYTES}")
    if len(data) < end:
        return None
    if command == _LOCAL or family in (_UNSPECIFIED, _UNIX):
        return ProxyHeader(None, end)
    addresses = data[_V2_HEAD.size : end]
    size = {_TCP4: 4, _TCP6: 16}.get(family)
    if size is None:
        raise FrameError(f"its header of version 2 is not of TCP (family {family:#04x})")
    if len(addresses) < 2 * size + 4:
        raise FrameError(f"its header of version 2 has {length} bytes, too few for the addresses")
    host = ipaddress.ip_address(addresses[:size])
    return ProxyHeader((str(host), int.from_bytes(addresses[2 * size : 2 * size + 2], "big")), end)
