"""The state of a writer in files: the ends of queues before each attempt, and the commits.

Each attempt and each commit writes its own files, so no file is locked, renamed or overwritten, and any file
system of ``pyarrow.fs`` is suitable. Only complete files count. An attempt writes its file before it sends,
so an attempt with an incomplete file has sent nothing.
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

# The value of Spark's spark.sql.streaming.minBatchesToRetain: older batches cannot be replayed.
RETAINED_BATCHES = 100
VERSION = 2
_BEGIN = re.compile(r"begin-(-?\d+)-([0-9a-f]+\.\d+)-(.*)\.json")
_COMMIT = re.compile(r"commit-[0-9a-f]+\.json")
_COMMIT_OF_EARLIER_VERSION = "commit.json"
_EARLIER_VERSION = re.compile(r"intent-\d+-.*\.json")
_ROUTES = "routes.json"
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# File systems without folders, so that none has to be created.
_OBJECT_STORES = ("s3", "gcs", "abfs")


class FolderState:
    """The state of a writer in a folder that driver and workers share.

    Args:
        location: a path, or a URL of a scheme of ``pyarrow.fs`` (file, s3, gs, abfs, hdfs).

    Raises:
        OptionError: the URL has another scheme.
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
        """Write the routes of the topic in the option topic to one file, for a driver that reaches no name
        server.

        Raises:
            SinkStateError: the file cannot be written.
        """
        found = {topic: route.to_json() for topic, route in routes.items()}
        self._write(f"{self._root}/{_ROUTES}", {"v": VERSION, "routes": found})

    def noted_routes(self) -> dict[str, QueueAddresses] | None:
        """The routes that were written last; ``None`` if there is no readable file."""
        try:
            content = self._read(f"{self._root}/{_ROUTES}")
            if content is None:
                return None
            return {topic: QueueAddresses.from_json(value) for topic, value in content["routes"].items()}
        except (SinkStateError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the whole batch was committed."""
        return self.commit_record(query_id, batch_id) is not None

    def check_last(self, query_id: str, batch_id: int) -> None:
        """Check that Spark may repeat this committed batch: it repeats only the last batch of a query.

        Raises:
            SinkStateError: a later batch has begun, so the checkpoint is an older one and this is a different
                batch.
        """
        if self._names(self._folder(query_id, batch_id + 1)):
            raise SinkStateError(
                f"batch {batch_id} was committed and batch {batch_id + 1} begun before: the checkpoint is "
                f"older than what {self.location} says. {self.remedy(query_id)}"
            )

    def remedy(self, query_id: str) -> str:
        """The advice for a user who wants committed batches to be sent again."""
        folder = f"{self.location.rstrip('/')}/{query_id}"
        return f"To send the rows, again those that were sent already, remove {folder}"

    def commit_record(self, query_id: str, batch_id: int) -> dict[str, Any] | None:
        """The facts in the commit file of a batch; ``None`` if the batch is not committed."""
        folder = self._folder(query_id, batch_id)
        for name in self._names(folder):
            if name == _COMMIT_OF_EARLIER_VERSION:
                return {}
            if _COMMIT.fullmatch(name) and (record := self._read(f"{folder}/{name}")) is not None:
                return record
        return None

    def begin(self, task: TaskId, topic: str, ends: Offsets) -> Since | None:
        """Record the ends of a topic's queues before an attempt sends to the topic.

        Returns:
            The offsets at which the search for messages of earlier attempts begins; ``None`` if there was no
                earlier attempt.

        Raises:
            SinkStateError: the folder cannot be read or written, or an earlier version began the batch.
        """
        folder = self._folder(task.query_id, task.batch_id)
        name = f"begin-{task.partition}-{task.attempt_text}-{quote(topic, safe='')}.json"
        # The file is written before the folder is listed, so that of two concurrent attempts at least one
        # sees the other.
        self._write(f"{folder}/{name}", {"v": VERSION, "ends": ends.to_json()})
        earlier = []
        for partition, attempt, at, path in self._begun(folder):
            other_run = attempt.partition(".")[0] != task.run
            other_attempt = partition == task.partition and attempt != task.attempt_text
            if at == topic and (other_run or other_attempt):
                earlier += self._ends(path)
        return lowest(earlier) if earlier else None

    def begun(self, query_id: str, batch_id: int, successful: Mapping[int, str]) -> dict[str, Since]:
        """By topic, the offsets at which the search for messages of unsuccessful attempts begins, if there
        were any.
        """
        folder = self._folder(query_id, batch_id)
        found = self._begun(folder)
        if all(successful.get(partition) == attempt for partition, attempt, _, _ in found):
            return {}
        topics: dict[str, list[Offsets]] = {}
        for _, _, topic, path in found:
            topics.setdefault(topic, []).extend(self._ends(path))
        return {topic: lowest(ends) for topic, ends in topics.items() if ends}

    def commit(self, query_id: str, batch_id: int, run: str, facts: Mapping[str, Any]) -> None:
        """Record that the batch is committed; remove batches that are too old for a replay."""
        self._write(f"{self._folder(query_id, batch_id)}/commit-{run}.json", {"v": VERSION, **facts})
        old = batch_id - RETAINED_BATCHES
        if old >= 0:
            try:
                self._files.delete_dir(self._folder(query_id, old))
            except OSError:
                # The folder is already gone, or it stays: nothing depends on it.
                return

    def folder(self, query_id: str, batch_id: int) -> str:
        """The location of a batch's files, for texts."""
        return f"{self.location.rstrip('/')}/{query_id}/{batch_id}"

    def _begun(self, folder: str) -> list[tuple[int, str, str, str]]:
        """Partition, attempt, topic and path of each file that an attempt wrote before its sends."""
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
        """The content of a file; ``None`` if the file is incomplete because its writer died.

        Raises:
            SinkStateError: the file is complete but no JSON, or it cannot be read.
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
    """The lowest offsets at which several attempts began.

    A queue that is unknown to one of the attempts counts from its first message. It is not left out, since
    another attempt may have sent to it, and its broker has to answer.
    """
    return {
        queue: min(each[queue] for each in ends) if all(queue in each for each in ends) else None
        for queue in sorted(set().union(*ends))
    }
