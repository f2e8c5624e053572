"""gRPC's framing over HTTP/2: the messages in the bytes of a stream, the texts of its headers. No I/O."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from orbitmq.gateway.call import CallError, GrpcStatus

PREFIX_BYTES: Final = 5
# The broker's longest body is 15 MiB; 1 MiB is left for the properties and names of a request.
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_MIB = 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_UNITS_MS = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 0.001, "n": 0.000001}
MAX_TIMEOUT_DIGITS: Final = 8


class MessageReader:
    """Cuts the data of a stream into gRPC messages."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete message are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[tuple[bool, bytes]]:
        """Add received bytes; the complete messages, each with whether it is compressed.

        Raises:
            CallError: the bytes are not a message, or the message is too long.
        """
        buffer = self._buffer
        buffer += data
        found: list[tuple[bool, bytes]] = []
        while len(buffer) >= PREFIX_BYTES:
            flag, length = struct.unpack_from(">BI", buffer)
            if flag > 1:
                raise CallError(
                    GrpcStatus.INTERNAL, f"a message begins with its compressed flag, 0 or 1, not {flag}"
                )
            if length > MAX_MESSAGE_BYTES:
                raise too_long(f"{length} bytes")
            end = PREFIX_BYTES + length
            if len(buffer) < end:
                break
            found.append((flag == 1, bytes(memoryview(buffer)[PREFIX_BYTES:end])))
            del buffer[:end]
        return found

    def end(self) -> None:
        """Check that the stream does not end inside a message.

        Raises:
            CallError: the last message is incomplete.
        """
        if self._buffer:
            raise CallError(
                GrpcStatus.INVALID_ARGUMENT,
                f"the request ends inside a message: {len(self._buffer)} bytes of it have come",
            )

    def drop(self) -> None:
        """Drop the received bytes."""
        self._buffer.clear()


def prefixed(message: bytes) -> bytes:
    """The gRPC frame of a message, uncompressed."""
    return struct.pack(">BI", 0, len(message)) + message


def unpacked(message: bytes) -> bytes:
    """The content of a message compressed with gzip.

    Raises:
        CallError: the message is not gzip, or too long when decompressed.
    """
    inflater = zlib.decompressobj(_GZIP)
    try:
        content = inflater.decompress(message, MAX_MESSAGE_BYTES + 1)
    except zlib.error as error:
        text = f"the message's gzip cannot be unpacked: {error}"
        raise CallError(GrpcStatus.INVALID_ARGUMENT, text) from None
    if len(content) > MAX_MESSAGE_BYTES:
        raise too_long("more when it is unpacked")
    if not inflater.eof:
        raise CallError(GrpcStatus.INVALID_ARGUMENT, "the message's gzip ends too early")
    return content


def too_long(length: str) -> CallError:
    """The refusal of a message above the size limit."""
    most = f"{MAX_MESSAGE_BYTES} ({MAX_MESSAGE_BYTES // _MIB} MiB)"
    text = f"a request message has {length}; at most {most} are taken"
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, text)


def timeout_ms(value: str) -> int:
    """The header ``grpc-timeout`` in milliseconds, at least 1 unless it is 0.

    Raises:
        CallError: the header is not a time.
    """
    digits, unit = value[:-1], value[-1:]
    known = digits.isascii() and digits.isdecimal() and unit in _UNITS_MS
    if not known or len(digits) > MAX_TIMEOUT_DIGITS:
        wanted = f"1 to {MAX_TIMEOUT_DIGITS} digits and one of H M S m u n"
        text = f"grpc-timeout is {value[:32]!r}: expected {wanted}"
        raise CallError(GrpcStatus.INVALID_ARGUMENT, text)
    exact = int(digits) * _UNITS_MS[unit]
    return max(1, round(exact)) if exact else 0


def percent_encoded(text: str) -> bytes:
    """A text in the percent-encoding of the header ``grpc-message``."""
    return b"".join(
        bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "replace")
    )
