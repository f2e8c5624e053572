"""The checkpoint file: up to where log and queues are known to be on the device.

The first five numbers are RocketMQ's (timestamps of the newest flushed record in log, queues and index, then
two offsets). Behind them, in space that RocketMQ leaves alone, we keep the exact log offset below which log
and queues are on the device, so that recovery after a crash reads seconds of the log, not a file of it; and
up to where a clean stop had indexed the messages.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from orbitmq.runtime import Runtime

FILE_BYTES = 4096
_THEIRS = struct.Struct(">5q")
_OURS_AT = 2048
_OURS = struct.Struct(">8sqI")
_MAGIC = b"orbitmq1"
_INDEX_AT = _OURS_AT + 64
_INDEX_MAGIC = b"orbitidx"


@dataclass(slots=True)
class Checkpoint:
    """Times in ms; offsets in bytes of the log. ``safe_offset`` and ``index_offset`` -1: unknown."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    safe_offset: int = -1
    index_offset: int = -1


def read_checkpoint(runtime: Runtime, path: str) -> Checkpoint:
    """What the file says; an absent, short or damaged file says nothing, and recovery reads more."""
    if not runtime.files.exists(path):
        return Checkpoint()
    data = runtime.files.read_bytes(path)
    if len(data) < _THEIRS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_THEIRS.unpack_from(data))
    checkpoint.safe_offset = _read_ours(data, _OURS_AT, _MAGIC)
    checkpoint.index_offset = _read_ours(data, _INDEX_AT, _INDEX_MAGIC)
    return checkpoint


def _read_ours(data: bytes, at: int, expected: bytes) -> int:
    if len(data) < at + _OURS.size:
        return -1
    magic, offset, crc = _OURS.unpack_from(data, at)
    return int(offset) if magic == expected and crc == _crc(offset) else -1


def write_checkpoint(runtime: Runtime, path: str, checkpoint: Checkpoint) -> None:
    """Replace the file durably."""
    data = bytearray(FILE_BYTES)
    _THEIRS.pack_into(
        data,
        0,
        checkpoint.log_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_offset,
    )
    for at, magic, offset in (
        (_OURS_AT, _MAGIC, checkpoint.safe_offset),
        (_INDEX_AT, _INDEX_MAGIC, checkpoint.index_offset),
    ):
        _OURS.pack_into(data, at, magic, offset, _crc(offset))
    runtime.files.write_atomic(path, bytes(data))


def _crc(offset: int) -> int:
    return zlib.crc32(struct.pack(">q", offset))
