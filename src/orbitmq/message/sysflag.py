"""Bits of a record's ``sysFlag`` and of a pull request's ``sysFlag``."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x700


class CompressionType(IntEnum):
    """How a body is compressed. 0, which old clients write, also means zlib."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class PullFlag(IntFlag):
    """Bits of the ``sysFlag`` field of PULL_MESSAGE."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


def transaction_of(sys_flag: int) -> int:
    """One of the ``TRANSACTION_*`` constants."""
    return sys_flag & TRANSACTION_MASK


def with_transaction(sys_flag: int, transaction: int) -> int:
    """``sys_flag`` with its transaction bits replaced by a ``TRANSACTION_*`` constant."""
    return sys_flag & ~TRANSACTION_MASK | transaction


def compression_of(sys_flag: int) -> int:
    """The number in the compression bits, whether or not the body is compressed."""
    return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """``sys_flag`` of a body compressed as ``kind``."""
    return sys_flag & ~COMPRESSION_MASK | kind << COMPRESSION_SHIFT | COMPRESSED
