"""The checkpoint file: up to where log and queues are known to be on the device.

The first five numbers are RocketMQ's (timestamps of the newest flushed record in log, queues and index, then
two offsets). Behind them, in space that RocketMQ leaves alone, OrbitMQ keeps the exact log offset up to which
log and queues are on the device, how far a clean stop had indexed the messages, and which file has the
positions of the queues. The checksum of this part covers RocketMQ's numbers too: if a Java broker used the
folder in between, it has changed them, and OrbitMQ's part is no longer valid.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from orbitmq.runtime import Runtime

FILE_BYTES = 4096
_THEIRS = struct.Struct(">5q")
_OURS_AT = 2048
# Magic, safe offset, index offset, log offset and checksum of the positions.
_OURS = struct.Struct(">8sqqqI")
_CRC = struct.Struct(">I")
_MAGIC = b"orbitmq2"


@dataclass(slots=True)
class Checkpoint:
    """Times in ms; offsets in bytes of the log. An offset of OrbitMQ's part is -1 when it is unknown.

    Without a ``queue_timestamp`` the queues are not complete, whatever files exist; then the offsets are
    valid for the log only.
    """

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    safe_offset: int = -1
    index_offset: int = -1
    positions_offset: int = -1
    positions_crc: int = 0


def read_checkpoint(runtime: Runtime, path: str) -> Checkpoint:
    """The file's content; an absent, short or damaged file counts as empty, and recovery reads more."""
    if not runtime.files.exists(path):
        return Checkpoint()
    data = runtime.files.read_bytes(path)
    if len(data) < _THEIRS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_THEIRS.unpack_from(data))
    if len(data) >= _OURS_AT + _OURS.size + _CRC.size:
        magic, *numbers = _OURS.unpack_from(data, _OURS_AT)
        if magic == _MAGIC and _CRC.unpack_from(data, _OURS_AT + _OURS.size)[0] == _crc(data):
            (
                checkpoint.safe_offset,
                checkpoint.index_offset,
                checkpoint.positions_offset,
                checkpoint.positions_crc,
            ) = numbers
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
    _OURS.pack_into(
        data,
        _OURS_AT,
        _MAGIC,
        checkpoint.safe_offset,
        checkpoint.index_offset,
        checkpoint.positions_offset,
        checkpoint.positions_crc,
    )
    _CRC.pack_into(data, _OURS_AT + _OURS.size, _crc(data))
    runtime.files.write_atomic(path, bytes(data))


def _crc(data: bytes | bytearray) -> int:
    return zlib.crc32(data[_OURS_AT : _OURS_AT + _OURS.size], zlib.crc32(data[: _THEIRS.size]))
