"""Disks that lose unflushed data when a process is killed, as at a loss of power.

The process runs with the library forgetful_disk.c, which makes every change at once and records the state
before it. :meth:`ForgetfulDisks.forget` undoes the recorded changes that were not flushed: contents of files
until fdatasync or fsync of the file; created, changed or removed names until fsync of each folder concerned.
That is the most that POSIX lets a file system lose. A rename is lost as a whole or not at all, as on any
journaling file system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

SOURCE = Path(__file__).with_name("forgetful_disk.c")
NOTE = struct.Struct("=IIqqqqq")
MAGIC = 0x464F5247
CONTENT, NAMES, MOVED_FOLDER, FILE_SYNCED, FOLDER_SYNCED, ALL_SYNCED = range(1, 7)
NOTHING, FOLDER = "-", "folder"
"""Values for the previous target of a name, other than the number of a file."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note of the journal; see forgetful_disk.c for its fields."""

    kind: int
    file: int
    offset: int
    size: int
    length: int
    more: bytes

    @property
    def texts(self) -> list[str]:
        return [os.fsdecode(text) for text in self.more.split(b"\0")[:-1]]


@dataclass
class Flushed:
    """The number of notes when the last flush of each file and folder began."""

    files: dict[int, int] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    all: int = 0

    def add(self, note: Note) -> None:
        if note.kind == FILE_SYNCED:
            self.files[note.file] = max(note.offset, self.files.get(note.file, 0))
        elif note.kind == FOLDER_SYNCED:
            folder = os.fsdecode(note.more)
            self.folders[folder] = max(note.offset, self.folders.get(folder, 0))
        elif note.kind == ALL_SYNCED:
            self.all = max(note.offset, self.all)

    def has(self, number: int, note: Note) -> bool:
        """Whether this change has reached the disk."""
        if number < self.all:
            return True
        if note.kind == CONTENT:
            return number < self.files.get(note.file, 0)
        step = 3 if note.kind == NAMES else 2
        return all(number < self.folders.get(folder, 0) for folder in note.texts[::step])


def library(folder: Path) -> Path:
    """Compile the library into this folder; a process must be started with it as LD_PRELOAD.

    Raises:
        subprocess.CalledProcessError: there is no C compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "forgetful_disk.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return built


class ForgetfulDisks:
    """Folders by name, whose unflushed changes can be undone.

    Args:
        folder: the folder for the notes, on the same file system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = count(1)
        self._notes: dict[str, Path] = {}

    def environment(self, name: str, disk: Path) -> dict[str, str]:
        """The environment variables, in addition to the library, of one process that uses ``disk``."""
        disk.mkdir(parents=True, exist_ok=True)
        notes = self._folder / f"{name}-{next(self._lives)}"
        notes.mkdir(parents=True)
        self._notes[name] = notes
        return {"FORGETFUL_DISK": str(disk), "FORGETFUL_NOTES": str(notes)}

    def forget(self, name: str) -> int:
        """Undo the unflushed changes of the last process with this disk, which has ended.

        Returns:
            the number of changes.
        """
        notes = self._notes.pop(name)
        undone = undo(notes)
        shutil.rmtree(notes)
        return undone


def undo(notes: Path) -> int:
    """Undo the noted changes that were not flushed, the newest first."""
    changes, flushed = list[tuple[int, Note]](), Flushed()
    for number, note in enumerate(read(notes / "journal")):
        flushed.add(note)
        if note.kind in (CONTENT, NAMES, MOVED_FOLDER):
            changes.append((number, note))
    lost = [note for number, note in changes if not flushed.has(number, note)]
    for note in reversed(lost):
        if note.kind == CONTENT:
            _undo_content(notes / str(note.file), note)
        elif note.kind == NAMES:
            _undo_names(notes, note.texts)
        else:
            source, source_name, target, target_name = note.texts
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{target}/{target_name}", f"{source}/{source_name}")
    return len(lost)


def read(journal: Path) -> Iterator[Note]:
    """The notes of a journal. The kill may have cut the last note short; its change had not begun then."""
    data, at = journal.read_bytes() if journal.exists() else b"", 0
    while at + NOTE.size <= len(data):
        magic, kind, file, offset, size, length, more = NOTE.unpack_from(data, at)
        assert magic == MAGIC, f"the journal is broken at {at}"
        at += NOTE.size
        if at + more > len(data):
            return
        yield Note(kind, file, offset, size, length, data[at : at + more])
        at += more


def _undo_content(path: Path, note: Note) -> None:
    with path.open("r+b") as file:
        if note.length:
            file.seek(note.offset)
            file.write(note.more or bytes(note.length))
        file.truncate(note.size)


def _undo_names(notes: Path, texts: list[str]) -> None:
    for at in range(len(texts) - 3, -1, -3):
        folder, name, had = texts[at : at + 3]
        path = Path(folder, name)
        if not path.parent.is_dir() or (had == FOLDER and path.is_dir()):
            continue  # the folder no longer exists, or was never removed because it was not empty
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if had == FOLDER:
            path.mkdir()
        elif had != NOTHING:
            os.link(notes / had, path)
