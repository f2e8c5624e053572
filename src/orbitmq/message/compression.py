"""Body compression. zlib is always available; LZ4 and ZSTD need the ``compression`` extra."""

from __future__ import annotations

import zlib
from typing import Any, Final

from orbitmq.message.errors import CompressionError
from orbitmq.message.sysflag import CompressionType

DEFAULT_LEVEL: Final = 5
# A body is at most 4 MiB before compression in RocketMQ's default; this leaves room for raised limits and
# still stops a small message from filling the memory.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
# zstd has no limit of its output, so it gets the data in pieces of this size: one of them grows to 32 MiB at
# worst.
_ZSTD_PIECE_BYTES: Final = 1024


def compress(body: bytes, kind: int = CompressionType.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """``body`` compressed as ``kind`` (a :class:`CompressionType`, or 0 for zlib).

    Raises:
        CompressionError: the kind is unknown, or its library is not installed.
    """
    if kind in (0, CompressionType.ZLIB):
        return zlib.compress(body, level)
    if kind == CompressionType.LZ4:
        return bytes(_lz4().compress(body))
    if kind == CompressionType.ZSTD:
        return bytes(_zstd().ZstdCompressor(level=level).compress(body))
    raise CompressionError(f"compression type {kind} is not one of 0 and 3 (zlib), 1 (LZ4), 2 (ZSTD)")


def decompress(data: bytes, kind: int, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The body inside ``data``, whose compression bits are ``kind``.

    Raises:
        CompressionError: damaged data, more than ``max_bytes`` of output, unknown kind or missing library.
    """
    if kind in (0, CompressionType.ZLIB):
        return _inflate(data, max_bytes)
    if kind == CompressionType.LZ4:
        return _decompress_lz4(data, max_bytes)
    if kind == CompressionType.ZSTD:
        return _decompress_zstd(data, max_bytes)
    raise CompressionError(f"compression type {kind} is not one of 0 and 3 (zlib), 1 (LZ4), 2 (ZSTD)")


def _inflate(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise CompressionError(f"zlib body of {len(data)} bytes is damaged: {error}") from error
    return _checked(body, stream.eof, "zlib", len(data), max_bytes)


def _decompress_lz4(data: bytes, max_bytes: int) -> bytes:
    stream = _lz4().LZ4FrameDecompressor()
    try:
        body = stream.decompress(data, max_length=max_bytes + 1)
    except RuntimeError as error:
        raise CompressionError(f"LZ4 body of {len(data)} bytes is damaged: {error}") from error
    return _checked(body, stream.eof, "LZ4", len(data), max_bytes)


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    zstd = _zstd()
    stream = zstd.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(data), _ZSTD_PIECE_BYTES):
            piece = stream.decompress(data[start : start + _ZSTD_PIECE_BYTES])
            pieces.append(piece)
            size += len(piece)
            if stream.eof or size > max_bytes:
                break
    except zstd.ZstdError as error:
        raise CompressionError(f"ZSTD body of {len(data)} bytes is damaged: {error}") from error
    return _checked(b"".join(pieces), stream.eof, "ZSTD", len(data), max_bytes)


def _checked(body: bytes, complete: bool, name: str, size: int, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise CompressionError(f"{name} body of {size} bytes grows beyond the limit of {max_bytes} bytes")
    if not complete:
        raise CompressionError(f"{name} body of {size} bytes ends too early")
    return body


def _lz4() -> Any:
    try:
        import lz4.frame
    except ImportError as error:
        raise CompressionError(
            "LZ4 bodies need the package lz4: pip install 'orbitmq[compression]'"
        ) from error
    return lz4.frame


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise CompressionError(
            "ZSTD bodies need the package zstandard: pip install 'orbitmq[compression]'"
        ) from error
    return zstandard
