"""The checkpoint file: up to where log and queues are known to be on the device.

The first five numbers are RocketMQ's (timestamps of the newest flushed record in log, queues and index, then
two offsets). Behind them, in space that RocketMQ leaves alone, we keep the exact log offset below which log
and queues are on the device, so that recovery after a crash reads seconds of the log, not a file of it.
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


@dataclass(slots=True)
class Checkpoint:
    """Times in ms; offsets in bytes of the log. ``safe_offset`` -1: unknown."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    safe_offset: int = -1


def read_checkpoint(runtime: Runtime, path: str) -> Checkpoint:
    """What the file says; an absent, short or damaged file says nothing, and recovery reads more."""
    if not runtime.files.exists(path):
        return Checkpoint()
    data = runtime.files.read_bytes(path)
    if len(data) < _THEIRS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_THEIRS.unpack_from(data))
    if len(data) >= _OURS_AT + _OURS.size:
        magic, offset, crc = _OURS.unpack_from(data, _OURS_AT)
        if magic == _MAGIC and crc == _crc(offset):
            checkpoint.safe_offset = offset
    return checkpoint


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
    offset = checkpoint.safe_offset
    _OURS.pack_into(data, _OURS_AT, _MAGIC, offset, _crc(offset))
    runtime.files.write_atomic(path, bytes(data))


def _crc(offset: int) -> int:
    return zlib.crc32(struct.pack(">q", offset))
