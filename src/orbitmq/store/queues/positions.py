"""The ends of all consume queues in one file: a start reads it instead of the folders of all queues.

The file is derived: the checkpoint names the trusted one by its checksum, together with the log offset
up to which the positions count. There are two file names, written in turn, so that the trusted file is never
overwritten.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass

from orbitmq.runtime import Runtime

# Magic, bytes of a consume queue file, log offset, number of topics, number of queues, bytes of all names.
_HEAD = struct.Struct("<8sqqqqq")
_MAGIC = b"orbitcq1"
_SLOT_BYTES = 4 + 4 + 3 * 8
NAMES = ("queuePositions.0", "queuePositions.1")


@dataclass(slots=True)
class QueuePositions:
    """One number for each queue in each column.

    Attributes:
        topics: the names of the topics by number; the name of a dropped topic is empty.
        owners: the numbers of the queues' topics. ids: queue ids.
        mins: the smallest offset stored. nexts: the offset that the next record gets.
        places: log offset of the record at the smallest offset, -1: unknown.
    """

    topics: list[str]
    owners: array[int]
    ids: array[int]
    mins: array[int]
    nexts: array[int]
    places: array[int]

    def without_dropped(self) -> QueuePositions:
        """The positions with topics numbered anew, if some topics were dropped."""
        if "" not in self.topics:
            return self
        numbers: dict[int, int] = {}
        for number, topic in enumerate(self.topics):
            if topic:
                numbers[number] = len(numbers)
        keep = [slot for slot, owner in enumerate(self.owners) if owner in numbers]
        return QueuePositions(
            [topic for topic in self.topics if topic],
            array("i", [numbers[self.owners[slot]] for slot in keep]),
            *(
                array(column.typecode, [column[slot] for slot in keep])
                for column in (self.ids, self.mins, self.nexts, self.places)
            ),
        )

    def encoded(self, log_offset: int, queue_file_bytes: int) -> bytes:
        """The content of the positions file."""
        names = "\0".join(self.topics).encode()
        head = _HEAD.pack(
            _MAGIC, queue_file_bytes, log_offset, len(self.topics), len(self.ids), len(names)
        )  # fmt: skip
        columns = (self.owners, self.ids, self.mins, self.nexts, self.places)
        return b"".join((head, names, *(column.tobytes() for column in columns)))


def checksum(data: bytes) -> int:
    """The checksum by which the checkpoint names a positions file."""
    return zlib.crc32(data)


def read_positions(
    runtime: Runtime, folder: str, *, log_offset: int, crc: int, queue_file_bytes: int
) -> tuple[QueuePositions, int, int] | None:
    """The positions that the checkpoint names; ``None``: they are missing, or of queue files of another size.

    Returns:
        The positions, which of :data:`NAMES` has them, and the file's size.
    """
    for number, name in enumerate(NAMES):
        path = f"{folder}/{name}"
        if not runtime.files.exists(path):
            continue
        data = runtime.files.read_bytes(path)
        if len(data) >= _HEAD.size and checksum(data) == crc:
            magic, file_bytes, offset, topics, queues, names_bytes = _HEAD.unpack_from(data)
            fits = (magic, file_bytes, offset) == (_MAGIC, queue_file_bytes, log_offset)
            if fits and len(data) == _HEAD.size + names_bytes + queues * _SLOT_BYTES:
                positions = _decoded(data, topics, queues, names_bytes)
                return None if positions is None else (positions, number, len(data))
    return None


def _decoded(data: bytes, topics: int, queues: int, names_bytes: int) -> QueuePositions | None:
    at = _HEAD.size + names_bytes
    names = data[_HEAD.size : at].decode().split("\0") if topics else []
    columns = []
    for code in "iiqqq":
        column = array(code)
        column.frombytes(data[at : at + queues * column.itemsize])
        at += queues * column.itemsize
        columns.append(column)
    return QueuePositions(names, *columns) if len(names) == topics else None
