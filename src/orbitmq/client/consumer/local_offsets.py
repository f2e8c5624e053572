"""Progress of a broadcasting consumer, in a local file of the format of RocketMQ's LocalFileOffsetStore."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.bodies import ResetOffsetBody
from orbitmq.wire.errors import WireError

log = logging.getLogger("orbitmq.client")

DEFAULT_INSTANCE = "DEFAULT"


def offsets_path(group: str, folder: str | None = None) -> str:
    """The file of a group.

    Args:
        folder: one client's, as ``~/.rocketmq_offsets/<client id>``. A Java client without an instance name
            is ``<its IP address>@DEFAULT``; the default here has the host name in place of the address.
    """
    client = f"{os.uname().nodename}@{DEFAULT_INSTANCE}"
    base = folder or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets", client)
    return os.path.join(base, group, "offsets.json")


class LocalOffsets:
    """Offsets in memory, written to one file.

    Args:
        path: see :func:`offsets_path`. Its content is loaded by :meth:`load`.
    """

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime = runtime
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._changed = False

    async def load(self) -> None:
        """Take up what an earlier run wrote; a file that cannot be read counts as none, with a warning."""
        # Java's client keeps the last version beside the file, and has a moment with only that one.
        for path in (self._path, self._path + ".bak"):
            try:
                data = await self._runtime.threads.run(self._runtime.files.read_bytes, path)
                self._offsets = dict(ResetOffsetBody.decode(data).offset_table)
                return
            except FileNotFoundError:
                continue
            except (OSError, WireError) as error:
                log.warning("offsets in %s cannot be read: %s", path, error)

    def get(self, queue: MessageQueue) -> int:
        """The offset known here, -1 for none."""
        return self._offsets.get(queue, -1)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Take note of progress (CR-12); ``increase_only=False`` for a reset."""
        known = self._offsets.get(queue, -1)
        if offset > known or (not increase_only and offset != known):
            self._offsets[queue] = offset
            self._changed = True

    def release(self, queue: MessageQueue) -> None:
        """Kept: the queue may come back, and nobody else knows how far this member is."""

    def claim(self, queue: MessageQueue, committed: int) -> int:
        """The file is the only truth, and ``committed`` came from it."""
        return committed

    async def commit_periodically(self) -> None:
        """Write the file when something changed."""
        await self.commit()

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the file, whole; what cannot be written is logged and tried again next time."""
        if not self._changed:
            return
        self._changed = False
        data = ResetOffsetBody(dict(self._offsets)).encode(java_keys=True)
        try:
            await self._runtime.threads.run(self._write, data)
        except OSError as error:
            self._changed = True
            log.warning("offsets cannot be written to %s: %s", self._path, error)

    def _write(self, data: bytes) -> None:
        self._runtime.files.make_dirs(os.path.dirname(self._path))
        self._runtime.files.write_atomic(self._path, data)
