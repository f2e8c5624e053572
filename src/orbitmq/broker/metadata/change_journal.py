"""Changes of the broker's tables that are newer than the table files, on disk.

The journal consists of files ``tables.journal.<number>`` beside the table files. Changes are appended to the
highest one. A file that is full, or older than the last write of the table files, is followed by a new one.
When the table files hold everything, older journal files are removed.

A journal also records which table files it belongs to: before a table file is written, its size and CRC go to
the journal with the sequence number of the last change in it. A table file with other content was written
by another program since (a Java broker, an editor): older changes must not be applied to it.

Format, integers big-endian: 8 bytes ``ORBITMQ1``, then frames of: length of the payload (u32), CRC-32 of
kind and payload (u32), kind (u8), payload (JSON). Kind 1 is an entry of the change feed, its sequence number
that of the journal; kind 2 is a table file; kind 3 holds frames of kind 1 that were written together: after a
crash all of them are there or none. Zeros follow the last frame. A frame whose CRC does not fit ends
the file: its write was not finished, and no change in it was acknowledged.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from orbitmq.broker.change_feed import FeedEntry
from orbitmq.message.numbers import is_digits
from orbitmq.runtime.again import write_again
from orbitmq.runtime.seam import Files, Segment

log = logging.getLogger(__name__)

PREFIX = "tables.journal."
FILE_BYTES = 1024 * 1024
MAGIC = b"ORBITMQ1"
ABSENT = -1  # the size of a table file that does not exist
KNOWN_FILES = 16  # how many contents of one table file the journal remembers
_FRAME = struct.Struct(">IIB")
_CHANGE = 1
_FILE = 2
_TOGETHER = 3


class KnownFile(msgspec.Struct, frozen=True):
    """A table file: its size and CRC, and the last change that it holds."""

    file: str
    size_bytes: int
    crc: int
    sequence: int


_encode = msgspec.json.Encoder().encode
_decode_file = msgspec.json.Decoder(KnownFile).decode


def _frame(kind: int, payload: bytes) -> bytes:
    crc = zlib.crc32(payload, zlib.crc32(bytes((kind,))))
    return _FRAME.pack(len(payload), crc, kind) + payload


def _frames(data: bytes, at: int = len(MAGIC)) -> Iterator[tuple[int, bytes]]:
    while at + _FRAME.size <= len(data):
        size, crc, kind = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        payload = data[at : at + size]
        if kind == 0 or len(payload) < size or zlib.crc32(payload, zlib.crc32(bytes((kind,)))) != crc:
            return
        if kind == _TOGETHER:
            yield from _frames(payload, 0)
        else:
            yield kind, payload
        at += size


def change_frame(change: FeedEntry) -> bytes:
    """The bytes of a change in a journal file."""
    return _frame(_CHANGE, change.encode())


class ChangeJournal:
    """The journal files of one folder. One call at a time; all but :meth:`rotate` are for a worker thread.

    Attributes:
        sequence: number of the last change read or written.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._segment: Segment | None = None
        self._end = 0
        self._numbers: list[int] = []
        self._known: dict[str, list[KnownFile]] = {}
        self._current: dict[str, KnownFile] = {}
        self.sequence = 0

    # -- table files -----------------------------------------------------------------------------------

    def covered(self, file: str, size_bytes: int, crc: int) -> int | None:
        """The last change that the table file with this content holds; ``None``: another program wrote it."""
        for known in reversed(self._known.get(file, ())):
            if (known.size_bytes, known.crc) == (size_bytes, crc):
                return known.sequence
        return None

    def found(self, file: str, size_bytes: int, crc: int, sequence: int) -> None:
        """Note that the table file has this content; written to the disk with the next journal file."""
        self.written(KnownFile(file, size_bytes, crc, sequence))

    def announce(self, known: KnownFile) -> None:
        """Write into the journal that a table file is about to get this content.

        Raises:
            OSError: the disk refused.
        """
        self._remember(known)
        self._write(_frame(_FILE, _encode(known)))

    def _remember(self, known: KnownFile) -> None:
        contents = self._known.setdefault(known.file, [])
        contents.append(known)
        if len(contents) > KNOWN_FILES:
            # The file may still have its first content, if none of the later ones was written.
            del contents[1]

    def written(self, known: KnownFile) -> None:
        """Note that the table file has this content; only it and the previous one, the backup's, are kept."""
        before = self._current.get(known.file)
        self._known[known.file] = [known] if before is None else [before, known]
        self._current[known.file] = known

    # -- changes ---------------------------------------------------------------------------------------

    def append(self, frames: list[bytes]) -> None:
        """Bring changes to the device, all of them or none.

        Raises:
            OSError: the disk refused; the journal continues in another file.
        """
        self._write(_frame(_TOGETHER, b"".join(frames)) if len(frames) > 1 else b"".join(frames))

    def _write(self, data: bytes) -> None:
        if self._segment is not None and self._end + len(data) > self._segment.size_bytes:
            self.rotate()
        try:
            if self._segment is None:
                head = MAGIC + b"".join(
                    _frame(_FILE, _encode(known)) for contents in self._known.values() for known in contents
                )
                self._open(max(FILE_BYTES, len(head) + len(data)))
                data = head + data
            assert self._segment is not None
            self._segment.pwrite(data, self._end)
            self._segment.sync()
        except OSError:
            # The content after a failed write or sync is unknown: this file ends here.
            self.rotate()
            raise
        self._end += len(data)

    def _write_again(self, number: int, size_bytes: int) -> None:
        """Write a file's content once more: its entries count as written, but may never have been flushed."""
        segment = self._files.open_segment(self._path(number), size_bytes)
        try:
            write_again(segment, 0)
        finally:
            segment.close()

    def _open(self, size_bytes: int) -> None:
        number = self._numbers[-1] + 1 if self._numbers else 1
        self._numbers.append(number)
        self._end = 0
        # The file is private: users' secrets are written to it.
        path = self._path(number)
        self._segment = self._files.open_segment(path, size_bytes, create=True, private=True)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{PREFIX}{number}"

    def rotate(self) -> list[int]:
        """Continue in a new file; returns the numbers of the existing files."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        return list(self._numbers)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove files whose changes are in the table files."""
        for number in sorted(numbers):
            self._files.remove(self._path(number))
            self._numbers.remove(number)

    def read(self) -> list[FeedEntry]:
        """All changes on disk, in order; on the device too when this returns.

        Raises:
            OSError: the disk refused.
        """
        changes: list[FeedEntry] = []
        self._numbers = sorted(
            int(name.removeprefix(PREFIX))
            for name in self._files.list_dir(self._folder)
            if name.startswith(PREFIX) and is_digits(name.removeprefix(PREFIX))
        )
        for number in self._numbers:
            data = self._files.read_bytes(self._path(number))
            self._write_again(number, len(data))
            if not data.startswith(MAGIC):
                continue
            for kind, payload in _frames(data):
                try:
                    if kind == _CHANGE:
                        changes.append(FeedEntry.decode(payload))
                    elif kind == _FILE:
                        self._remember(_decode_file(payload))
                except ValueError as error:
                    log.warning("%s has an entry that is not understood: %s", self._path(number), error)
        if changes:
            self.sequence = max(change.sequence for change in changes)
        for contents in self._known.values():
            self.sequence = max(self.sequence, *(known.sequence for known in contents))
        return changes
