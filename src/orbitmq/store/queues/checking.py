"""Checks at a start whether consume queue files hold the entries that the noted positions promise.

A file may be gone, empty, cut or full of zeros: it was deleted, or a copy or a disk lost it. There are many
queues, so the check looks only at the size of each file and at its first and last entry. Places in the log
rise from entry to entry, so swapped files are noticed, too. The entries between are checked when they are
read (``mending.py``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orbitmq.runtime.seam import Files
from orbitmq.store.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from orbitmq.store.log.files import file_name
from orbitmq.store.queues.positions import QueuePositions

_PLACE_AND_SIZE = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """Checks the files of consume queues.

    Attributes:
        root: the folder of all consume queues.
        file_bytes: the size of each file, whole entries.
        log_first: the beginning of the log: files with only older entries may be gone.
        log_end: the end of the log: no entry may name a record there or behind.
    """

    files: Files
    root: str
    file_bytes: int
    log_first: int
    log_end: int

    def first_fault(self, positions: QueuePositions) -> str | None:
        """The first file that lacks entries promised by the positions, and why; ``None``: there is none."""
        columns = (positions.mins, positions.nexts, positions.places)
        for owner, queue_id, low, following, place in zip(
            positions.owners, positions.ids, *columns, strict=True
        ):
            if low < following and positions.topics[owner]:
                folder = f"{self.root}/{positions.topics[owner]}/{queue_id}"
                if (fault := self.fault(folder, low, following, place)) is not None:
                    return fault
        return None

    def fault(self, folder: str, low: int, following: int, low_place: int = -1) -> str | None:
        """The first file of a queue that lacks entries of the offsets ``low`` to ``following`` - 1.

        Args:
            low_place: the place in the log of the message at ``low``, -1: unknown.
        """
        per_file = self.file_bytes // ENTRY_BYTES
        gone = ""
        any_there = False
        before = -1
        for number in range(low // per_file, (following - 1) // per_file + 1):
            path = f"{folder}/{file_name(number * self.file_bytes)}"
            begin = number * per_file
            first, last = max(low, begin), min(following, begin + per_file) - 1
            offsets = (first,) if first == last else (first, last)
            try:
                size, entries = self.files.read_parts(
                    path, [(offset - begin) * ENTRY_BYTES for offset in offsets], _PLACE_AND_SIZE.size
                )
            except FileNotFoundError:
                if any_there:
                    return f"{path} is missing"
                gone = gone or path
                continue
            if size != self.file_bytes:
                return f"{path} has {size} bytes, not {self.file_bytes}"
            if gone and not any_there and _place(entries[0]) >= self.log_first:
                # Cleaning removes only files whose entries are all below the log's first file.
                return f"{gone} is missing"
            any_there = True
            for offset, entry in zip(offsets, entries, strict=True):
                place = _place(entry)
                if not -1 < place < self.log_end:
                    return f"{path} has no entry for offset {offset}"
                if place <= before or (offset == low and place != low_place >= 0):
                    return f"{path} has an entry for offset {offset} that is another one's"
                before = place
        return None if any_there else f"{gone} is missing"


def _place(entry: bytes) -> int:
    """The place of an entry's record in the log, -1: the entry was never written."""
    place, size = _PLACE_AND_SIZE.unpack(entry)
    return place if size > 0 else -1
