"""What a writer remembers in files: where queues ended before each attempt, and what is committed.

Each attempt writes files of its own, each commit too, so nothing is locked, renamed or overwritten, and any
file system of ``pyarrow.fs`` will do. A file counts when it is whole; it is written before what it announces
is done, so an attempt whose file is not whole has sent nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa
from pyarrow import fs

from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import OffsetError, OptionError, SinkStateError
from orbitmq.spark.locations import failure_text, pyarrow_uri
from orbitmq.spark.write.task import Since, TaskId

# Spark's spark.sql.streaming.minBatchesToRetain: older batches cannot be replayed.
RETAINED_BATCHES = 100
VERSION = 2
_BEGIN = re.compile(r"begin-(-?\d+)-([0-9a-f]+\.\d+)-(.*)\.json")
_COMMIT = re.compile(r"commit-[0-9a-f]+\.json")
_COMMIT_OF_EARLIER_VERSION = "commit.json"
_EARLIER_VERSION = re.compile(r"intent-\d+-.*\.json")
_ROUTES = "routes.json"
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# These have no folders; making one is a request for nothing.
_OBJECT_STORES = ("s3", "gcs", "abfs")


class FolderState:
    """The state of a writer in a folder that driver and workers share.

    Args:
        location: a path, or a URL that ``pyarrow.fs`` knows (file, s3, gs, abfs, hdfs).

    Raises:
        OptionError: a URL of another kind.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        parsed = urlparse(location)
        if parsed.scheme in ("", "file"):
            if parsed.netloc not in ("", "localhost"):
                raise OptionError(f"stateLocation={location!r} names a machine: file URLs are local")
            self._files = fs.LocalFileSystem()
            root = unquote(parsed.path) if parsed.scheme else location
        else:
            try:
                self._files, root = fs.FileSystem.from_uri(pyarrow_uri(location))
            except (pa.ArrowException, OSError, ValueError) as error:
                known = "Known are file, s3, gs, abfs and hdfs"
                raise OptionError(f"stateLocation={location!r} cannot be used: {error}. {known}") from error
        self._root = root.rstrip("/")

    def note_routes(self, routes: Mapping[str, QueueAddresses]) -> None:
        """Write the routes of the option topic to one file, for a driver that finds no name server.

        Raises:
            SinkStateError: the file cannot be written.
        """
        found = {topic: route.to_json() for topic, route in routes.items()}
        self._write(f"{self._root}/{_ROUTES}", {"v": VERSION, "routes": found})

    def noted_routes(self) -> dict[str, QueueAddresses] | None:
        """The routes that were written last; ``None``: no file, or one that cannot be read."""
        try:
            content = self._read(f"{self._root}/{_ROUTES}")
            if content is None:
                return None
            return {topic: QueueAddresses.from_json(value) for topic, value in content["routes"].items()}
        except (SinkStateError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the batch was committed as a whole."""
        return self.commit_record(query_id, batch_id) is not None

    def check_last(self, query_id: str, batch_id: int) -> None:
        """Whether Spark can be running a committed batch again: only the last one of a query can be.

        Raises:
            SinkStateError: a later batch has begun, so the checkpoint is an older one, and the batch another.
        """
        if self._names(self._folder(query_id, batch_id + 1)):
            raise SinkStateError(
                f"batch {batch_id} was committed and batch {batch_id + 1} begun before: the checkpoint is "
                f"older than what {self.location} says. {self.remedy(query_id)}"
            )

    def remedy(self, query_id: str) -> str:
        """What somebody may do who wants batches to be sent whatever was committed."""
        folder = f"{self.location.rstrip('/')}/{query_id}"
        return f"To send the rows, again those that were sent already, remove {folder}"

    def commit_record(self, query_id: str, batch_id: int) -> dict[str, Any] | None:
        """What the commit of a batch noted; ``None``: it is not committed."""
        folder = self._folder(query_id, batch_id)
        for name in self._names(folder):
            if name == _COMMIT_OF_EARLIER_VERSION:
                return {}
            if _COMMIT.fullmatch(name) and (record := self._read(f"{folder}/{name}")) is not None:
                return record
        return None

    def begin(self, task: TaskId, topic: str, ends: Offsets) -> Since | None:
        """Note where the queues of a topic end before an attempt sends to it.

        Returns:
            Where to look for messages of earlier attempts; ``None``: there was none.

        Raises:
            SinkStateError: the folder cannot be read or written, or an earlier version began the batch.
        """
        folder = self._folder(task.query_id, task.batch_id)
        name = f"begin-{task.partition}-{task.attempt_text}-{quote(topic, safe='')}.json"
        # First written, then looked: of two attempts at a time at least one sees the other.
        self._write(f"{folder}/{name}", {"v": VERSION, "ends": ends.to_json()})
        earlier = []
        for partition, attempt, at, path in self._begun(folder):
            other_run = attempt.partition(".")[0] != task.run
            other_attempt = partition == task.partition and attempt != task.attempt_text
            if at == topic and (other_run or other_attempt):
                earlier += self._ends(path)
        return lowest(earlier) if earlier else None

    def begun(self, query_id: str, batch_id: int, successful: Mapping[int, str]) -> dict[str, Since]:
        """Where to look, by topic, when others than the successful attempts began to send; else nothing."""
        folder = self._folder(query_id, batch_id)
        found = self._begun(folder)
        if all(successful.get(partition) == attempt for partition, attempt, _, _ in found):
            return {}
        topics: dict[str, list[Offsets]] = {}
        for _, _, topic, path in found:
            topics.setdefault(topic, []).extend(self._ends(path))
        return {topic: lowest(ends) for topic, ends in topics.items() if ends}

    def commit(self, query_id: str, batch_id: int, run: str, facts: Mapping[str, Any]) -> None:
        """Note that the batch is committed; forget batches that are too old to be replayed."""
        self._write(f"{self._folder(query_id, batch_id)}/commit-{run}.json", {"v": VERSION, **facts})
        old = batch_id - RETAINED_BATCHES
        if old >= 0:
            try:
                self._files.delete_dir(self._folder(query_id, old))
            except OSError:
                # It is gone already, or it stays: nothing depends on it.
                return

    def folder(self, query_id: str, batch_id: int) -> str:
        """Where the files of a batch are, for people."""
        return f"{self.location.rstrip('/')}/{query_id}/{batch_id}"

    def _begun(self, folder: str) -> list[tuple[int, str, str, str]]:
        """Partition, attempt, topic and path of what was begun."""
        found = []
        names = self._names(folder)
        for name in names:
            if (match := _BEGIN.fullmatch(name)) is not None:
                found.append((int(match[1]), match[2], unquote(match[3]), f"{folder}/{name}"))
            elif _EARLIER_VERSION.fullmatch(name) and _COMMIT_OF_EARLIER_VERSION not in names:
                raise SinkStateError(
                    f"{folder} is of an earlier version of this format: let that version finish the batch, "
                    f"or remove the folder, and messages that it has sent already may be doubled"
                )
        return found

    def _ends(self, path: str) -> list[Offsets]:
        content = self._read(path)
        if content is None:
            return []
        try:
            return [Offsets.from_json(content.get("ends"))]
        except OffsetError as error:
            raise SinkStateError(f"{path} is damaged: {error}") from error

    def _folder(self, query_id: str, batch_id: int) -> str:
        if not _SAFE.fullmatch(query_id):
            raise SinkStateError(f"query id {query_id!r} cannot be a folder name")
        return f"{self._root}/{query_id}/{batch_id}"

    def _names(self, folder: str) -> list[str]:
        try:
            infos = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except OSError as error:
            raise SinkStateError(
                f"the state folder {folder} cannot be listed: {failure_text(error)}"
            ) from error
        return sorted(info.base_name for info in infos)

    def _read(self, path: str) -> dict[str, Any] | None:
        """The content of a whole file; ``None`` of one whose writer died over it.

        Raises:
            SinkStateError: the file is whole and no JSON, or it cannot be read.
        """
        try:
            with self._files.open_input_stream(path) as stream:
                data = stream.read()
        except OSError as error:
            raise SinkStateError(f"{path} cannot be read: {failure_text(error)}") from error
        if not data.endswith(b"\n"):
            return None
        try:
            content: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise SinkStateError(f"{path} is damaged: {error}") from error
        return content

    def _write(self, path: str, content: Mapping[str, Any]) -> None:
        try:
            if self._files.type_name not in _OBJECT_STORES:
                self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(path) as stream:
                stream.write(json.dumps(content, sort_keys=True).encode() + b"\n")
        except OSError as error:
            raise SinkStateError(f"{path} cannot be written: {failure_text(error)}") from error


def lowest(ends: list[Offsets]) -> Since:
    """Where the first of several attempts began.

    A queue that one of them did not know counts from its first message. It stays among the others: its broker
    may be away now, and must be waited for, since an attempt that knew it may have sent there.
    """
    return {
        queue: min(each[queue] for each in ends) if all(queue in each for each in ends) else None
        for queue in sorted(set().union(*ends))
    }
