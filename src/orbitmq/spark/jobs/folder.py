"""The folder of an archive or a table, on any file system of pyarrow: a path, or a URI such as s3://."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from orbitmq.runtime.paths import absolute, expanded
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_names import OWN_FOLDER, ArchiveFile, parse_path
from orbitmq.spark.locations import failure_text, pyarrow_uri

T = TypeVar("T")


class Folder:
    """A folder that driver and workers can open by the same location. Can be pickled.

    Args:
        location: a path, or a URI (``file``, ``s3``, ``gs``, ``abfs``, ``hdfs``).

    Raises:
        JobError: the kind of file system is unknown, or it cannot be reached.
    """

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") if "://" in location else absolute(expanded(location))
        try:
            self._fs, self._root = fs.FileSystem.from_uri(pyarrow_uri(self.location))
        except (OSError, pa.ArrowException) as error:
            raise JobError(f"{location} cannot be opened as a folder: {failure_text(error)}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.location,)

    def __str__(self) -> str:
        return self.location

    def files(self, below: str = "") -> dict[str, int]:
        """The files below this folder, by relative path, with their sizes in bytes.

        Raises:
            JobError: the folder cannot be listed.
        """
        if self.attempt("read", lambda: self._fs.get_file_info(self._path(below))).type is fs.FileType.File:
            return {}
        selector = fs.FileSelector(self._path(below), recursive=True, allow_not_found=True)
        listed = self.attempt("listed", lambda: self._fs.get_file_info(selector))
        prefix = len(self._root.rstrip("/")) + 1
        return {info.path[prefix:]: info.size for info in listed if info.type is fs.FileType.File}

    def archive_files(self, below: str = "") -> dict[ArchiveFile, int]:
        """The files of an archive and their sizes."""
        found = {parse_path(path): size for path, size in self.files(below).items()}
        return {file: size for file, size in found.items() if file is not None}

    def exists(self, path: str = "") -> bool:
        """Whether a file or folder exists at this path."""
        info = self.attempt("read", lambda: self._fs.get_file_info(self._path(path)))
        return bool(info.type is not fs.FileType.NotFound)

    def prepare(self) -> None:
        """Create the folder, and check that it is writable.

        Raises:
            JobError: the folder is not writable.
        """
        probe = f"{OWN_FOLDER}/probe"
        self.write(probe, b"")
        self.remove(probe)

    def open(self, path: str) -> Any:
        """Open a file for reading, as a file of pyarrow."""
        return self.attempt("read", lambda: self._fs.open_input_file(self._path(path)))

    def create(self, path: str) -> Any:
        """Open a new file for writing; missing folders are created."""
        full = self._path(path)

        def make() -> Any:
            self._fs.create_dir(full.rpartition("/")[0], recursive=True)
            return self._fs.open_output_stream(full)

        return self.attempt("written to", make)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        with self.open(path) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """Write a file."""
        with self.create(path) as file:
            file.write(content)

    def move(self, source: str, target: str) -> None:
        """Atomically give a file its final name; an existing file of that name is replaced."""
        full = self._path(target)

        def move() -> None:
            self._fs.create_dir(full.rpartition("/")[0], recursive=True)
            self._fs.move(self._path(source), full)

        self.attempt("written to", move)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

        def remove() -> None:
            try:
                self._fs.delete_file(self._path(path))
            except FileNotFoundError:
                return

        self.attempt("written to", remove)

    def remove_tree(self, path: str) -> None:
        """Remove a folder, if it exists."""

        def remove() -> None:
            self._fs.delete_dir_contents(self._path(path), missing_dir_ok=True)

        self.attempt("written to", remove)

    def below(self, path: str) -> str:
        """The full path or URI of a relative path in this folder."""
        return f"{self.location}/{path}"

    def uri(self, path: str) -> str:
        """:meth:`below` as a URI."""
        return self.below(path) if "://" in self.location else f"file://{self.below(path)}"

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else str(self._root)

    def attempt(self, what: str, work: Callable[[], T]) -> T:
        """The result of ``work`` in this folder.

        Args:
            what: the operation, as the end of the sentence "... cannot be ...".

        Raises:
            JobError: the file system refused.
        """
        try:
            return work()
        except (OSError, pa.ArrowException) as error:
            raise JobError(f"{self.location} cannot be {what}: {failure_text(error)}") from error
