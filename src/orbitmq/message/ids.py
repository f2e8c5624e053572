"""The two kinds of message ids: by place in the commit log, and unique by sender."""

from __future__ import annotations

import itertools
import socket
import struct
from functools import lru_cache
from typing import Final

from orbitmq.message.errors import MessageFormatError
from orbitmq.runtime.seam import Clock, Runtime

_PORT_OFFSET = struct.Struct(">iq")
_V4_CHARS: Final = 32
_V6_CHARS: Final = 56


@lru_cache(maxsize=4096)
def pack_ip(ip: str) -> bytes:
    """The 4 or 16 bytes of a numeric IP address.

    Raises:
        MessageFormatError: ``ip`` is a name, or no address at all.
    """
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except (OSError, ValueError) as error:
        raise MessageFormatError(f"host {ip!r} is not a numeric IPv4 or IPv6 address") from error


@lru_cache(maxsize=4096)
def unpack_ip(packed: bytes) -> str:
    """The text form of a 4 or 16 byte address."""
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return socket.inet_ntop(socket.AF_INET6, packed)


@lru_cache(maxsize=4096)
def pack_host(ip: str, port: int) -> bytes:
    """A host as records have it: address and port, 8 or 20 bytes.

    Raises:
        MessageFormatError: ``ip`` is no numeric address.
        OverflowError: the port does not fit 32 bits.
    """
    return pack_ip(ip) + port.to_bytes(4, "big", signed=True)


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    """Address and port of a host in a record."""
    return unpack_ip(packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """``address:port`` of a host in a record."""
    ip, port = unpack_host(packed)
    return f"{ip}:{port}"


def offset_message_id(host: bytes | str, port: int, offset: int) -> str:
    """The id of a stored message: store host and commit log offset in upper-case hex, 32 or 56 characters."""
    packed = pack_ip(host) if isinstance(host, str) else host
    return (packed + _PORT_OFFSET.pack(port, offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """Host, port and commit log offset of an offset message id.

    Raises:
        MessageFormatError: not 32 or 56 hexadecimal digits.
    """
    if len(text) not in (_V4_CHARS, _V6_CHARS) or not text.isascii() or not text.isalnum():
        raise MessageFormatError(f"message id {text[:80]!r} is not 32 or 56 hexadecimal digits")
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise MessageFormatError(f"message id {text!r} is not hexadecimal") from error
    port, offset = _PORT_OFFSET.unpack_from(raw, len(raw) - 12)
    return unpack_ip(raw[:-12]), port, offset


class UniqueIds:
    """Makes the values of ``UNIQ_KEY`` (Java's ``MessageClientIDSetter``).

    An id is the sender's address, 16 bits for the process, 32 bits for the class loader, the milliseconds
    since the month began (local time) and a 16 bit counter. Process and class loader are random here, so two
    clients of one process, or in two containers with process id 1, make different ids.

    Args:
        runtime: its clock and random source are used.
        host: the numeric address of this machine.
    """

    def __init__(self, runtime: Runtime, host: str = "127.0.0.1") -> None:
        self._clock = runtime.clock
        self._prefix = (pack_ip(host) + runtime.random.randbytes(6)).hex().upper()
        self._counter = itertools.count(runtime.random.getrandbits(16))
        self._month_ms = 0
        self._next_month_ms = 0
        self._last_ms = -1
        self._last_head = ""

    def next(self) -> str:
        """A new id: 32 characters, or 56 when the address is IPv6."""
        return f"{self._head()}{next(self._counter) & 0xFFFF:04X}"

    def series(self, count: int) -> tuple[str, int]:
        """``count`` new ids, at most 65,536: their common beginning, and the number in the last four digits
        of the first one, from which they count up."""
        first = next(self._counter)
        self._counter = itertools.count(first + count)
        return self._head(), first

    def _head(self) -> str:
        now_ms = self._clock.now_ms()
        if now_ms == self._last_ms:
            return self._last_head
        if not self._month_ms <= now_ms < self._next_month_ms:
            self._month_ms, self._next_month_ms = month_borders_ms(self._clock, now_ms)
        span_ms = (now_ms - self._month_ms) & 0xFFFFFFFF
        self._last_ms, self._last_head = now_ms, f"{self._prefix}{span_ms:08X}"
        return self._last_head


def month_borders_ms(clock: Clock, now_ms: int) -> tuple[int, int]:
    """When this month began on the machine's wall clock, and when the next begins: milliseconds."""
    start = clock.local_time(now_ms).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return clock.epoch_ms(start), clock.epoch_ms(following)
