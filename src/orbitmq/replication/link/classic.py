"""RocketMQ's replication protocol, both ends of it, without I/O (DefaultHAConnection, DefaultHAClient).

A slave sends eight bytes again and again: the end of its log. The master answers with frames: a log offset, a
size, and that many bytes of its log; a frame without bytes is a heartbeat. Neither side names itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from orbitmq.replication.link.errors import LinkError

REPORT = Struct(">q")
HEADER = Struct(">qi")
# A slave of RocketMQ reads into 4 MiB: a frame that does not fit never completes.
FRAME_LIMIT_BYTES = 4 << 20
MAX_DATA_BYTES = FRAME_LIMIT_BYTES - HEADER.size - 1


def data_frame_header(offset: int, size_bytes: int) -> bytes:
    """The header of ``size_bytes`` of the log from ``offset`` on; without bytes it is a heartbeat."""
    return HEADER.pack(offset, size_bytes)


class ReportReader:
    """A master's end: reads a slave's reports.

    Attributes:
        reported: the last report, -1 before the first.
    """

    def __init__(self) -> None:
        self.reported = -1
        self._rest = b""

    def feed(self, data: bytes, limit: int) -> list[int]:
        """The reports that are complete now.

        Args:
            limit: the end of the log that the slave can have; a higher report is an error.

        Raises:
            LinkError: a report is negative, lower than the one before, or higher than ``limit``.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        found = [offset for (offset,) in REPORT.iter_unpack(data[:whole])]
        for offset in found:
            self._check(offset, limit)
            self.reported = offset
        return found

    def _check(self, offset: int, limit: int) -> None:
        if offset < 0:
            raise LinkError(f"it reports {offset} as the end of its log")
        if offset < self.reported:
            raise LinkError(f"it reports {offset} as the end of its log after {self.reported}")
        if offset > limit:
            raise LinkError(f"it reports {offset} as the end of its log, there are bytes up to {limit} only")


class FrameReader:
    """A slave's end: reads a master's frames, and passes their bytes on as they come.

    Args:
        expected: the offset that the next frame must have; 0: the log is empty, and begins at the first
            frame's offset.
        file_bytes: the size of log files, whose borders no frame crosses.
    """

    def __init__(self, expected: int, file_bytes: int) -> None:
        self.expected = expected
        self._file_bytes = file_bytes
        self._header = bytearray()
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Pieces of the log with their offsets; an empty one is a heartbeat. They are parts of ``data``.

        Raises:
            LinkError: a frame has another offset than the one expected, an impossible size, or crosses the
                border of a file.
        """
        while len(data):
            if not self._left:
                missing = HEADER.size - len(self._header)
                self._header += data[:missing]
                data = data[missing:]
                if len(self._header) < HEADER.size:
                    return
                self._begin()
                if not self._left:
                    yield self.expected, data[:0]
                continue
            piece = data[: self._left]
            data = data[len(piece) :]
            self._left -= len(piece)
            offset, self.expected = self.expected, self.expected + len(piece)
            yield offset, piece

    def _begin(self) -> None:
        offset, size = HEADER.unpack(self._header)
        self._header.clear()
        check_piece(offset, size, self.expected, self._file_bytes)
        self.expected, self._left = offset, size


def check_piece(offset: int, size: int, expected: int, file_bytes: int) -> None:
    """Refuse a piece of the log that cannot be right.

    Raises:
        LinkError: the piece is impossible; the text names the reason.
    """
    if not 0 <= size <= MAX_DATA_BYTES:
        raise LinkError(f"it sends a piece of {size} bytes, possible are 0 to {MAX_DATA_BYTES}")
    if offset < 0 or (expected and offset != expected):
        raise LinkError(f"it sends bytes for offset {offset}, this log ends at {expected}")
    if not expected and size and offset % file_bytes:
        raise LinkError(
            f"it begins at {offset}, which is no border of files of {file_bytes} bytes: "
            "both brokers need the same mappedFileSizeCommitLog"
        )
    if size and offset // file_bytes != (offset + size - 1) // file_bytes:
        raise LinkError(
            f"its piece of {size} bytes at {offset} crosses the border of a file of {file_bytes} bytes: "
            "both brokers need the same mappedFileSizeCommitLog"
        )
