"""What a streaming writer remembers about its batches, so that a replay sends only what is missing.

Two kinds of small files lie in the state folder, by query and batch: an *intent* per task and topic, written
before anything is sent (where the queues ended then), and one *commit* record per batch.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, unquote, urlparse

from orbitmq.runtime.seam import Files
from orbitmq.spark.brokers import Patience
from orbitmq.spark.errors import OffsetError, OptionError, SinkStateError
from orbitmq.spark.messages import TaskId
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.send import Begun

# Spark's spark.sql.streaming.minBatchesToRetain: older batches cannot be replayed.
RETAINED_BATCHES = 100
LOCK_TIMEOUT_MS = 10_000
_INTENT = re.compile(r"intent-(\d+)-(.*)\.json")
_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SinkState:
    """The state folder of a writer.

    Args:
        files: the file system; it must be the same for the driver and all workers.
        location: a folder, as a path or a ``file:`` URL.

    Raises:
        OptionError: another kind of URL.
    """

    def __init__(self, files: Files, location: str) -> None:
        parsed = urlparse(location)
        if parsed.scheme not in ("", "file") or parsed.netloc not in ("", "localhost"):
            raise OptionError(f"stateLocation={location!r} must be a folder that driver and workers share")
        self._files = files
        self._root = (unquote(parsed.path) if parsed.scheme else location).rstrip("/")

    def intend(self, task: TaskId, topic: str, ends: Offsets) -> Begun:
        """Record where the queues of ``topic`` end before a task sends to it; an earlier record is kept.

        Raises:
            SinkStateError: the earlier record is damaged.
        """
        folder = self._folder(task.query_id, task.batch_id)
        path = f"{folder}/intent-{task.partition}-{quote(topic, safe='')}.json"
        if self._create(path, ends.to_json()):
            return Begun(ends, again=False)
        try:
            return Begun(Offsets.from_json(json.loads(self._files.read_bytes(path))), again=True)
        except (ValueError, OffsetError) as error:
            raise SinkStateError(f"{path} is damaged: {error}") from error

    def check_partitions(self, query_id: str, batch_id: int, replayed: set[int]) -> None:
        """Every partition that ever sent messages of the batch has been replayed.

        Raises:
            SinkStateError: an earlier attempt had more partitions; what these stored is there, and its rows
                were sent again by others.
        """
        names = self._files.list_dir(self._folder(query_id, batch_id))
        begun = {int(match[1]) for name in names if (match := _INTENT.fullmatch(name))}
        left = sorted(begun - replayed)
        if left:
            raise SinkStateError(
                f"batch {batch_id} was sent from {len(begun)} partitions and replayed from {len(replayed)}: "
                f"messages of partitions {left[:5]} may be doubled. Keep the number of partitions; to go on "
                f"all the same remove {self._folder(query_id, batch_id)}"
            )

    def topics_of(self, task: TaskId) -> list[str]:
        """The topics that earlier attempts of the task began to send to."""
        names = self._files.list_dir(self._folder(task.query_id, task.batch_id))
        found = (match for name in names if (match := _INTENT.fullmatch(name)))
        return sorted(unquote(match[2]) for match in found if int(match[1]) == task.partition)

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the batch was committed as a whole."""
        return self._files.exists(f"{self._folder(query_id, batch_id)}/commit.json")

    def commit(self, query_id: str, batch_id: int, facts: dict[str, Any]) -> bool:
        """Record the commit of a batch once; whether this call did it. Forgets batches too old to replay."""
        done = self._create(f"{self._folder(query_id, batch_id)}/commit.json", facts)
        if batch_id >= RETAINED_BATCHES:
            self._files.remove_tree(self._folder(query_id, batch_id - RETAINED_BATCHES))
        return done

    def _folder(self, query_id: str, batch_id: int) -> str:
        if not _SAFE.fullmatch(query_id):
            raise SinkStateError(f"query id {query_id!r} cannot be a folder name")
        return f"{self._root}/{query_id}/{batch_id}"

    def _create(self, path: str, value: dict[str, Any]) -> bool:
        """Write ``path`` as a whole unless it exists; two attempts of one task may race here."""
        self._files.make_dirs(path.rpartition("/")[0])
        patience = Patience(LOCK_TIMEOUT_MS)
        while True:
            try:
                release = self._files.lock(path + ".lock")
                break
            except BlockingIOError as error:
                if patience.is_over:
                    raise SinkStateError(f"{path}.lock is held by another task") from error
                patience.pause()
        try:
            if self._files.exists(path):
                return False
            self._files.write_atomic(path, json.dumps(value, sort_keys=True).encode())
            return True
        finally:
            release()
