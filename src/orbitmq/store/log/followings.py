"""All followers of one log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.runtime import Runtime
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.following import Following, Progress
from orbitmq.store.ports import LogFollower

logger = logging.getLogger(__name__)


class Followings:
    """Starts and stops them with the store.

    Args:
        root: the store's folder: the progress of each follower is a file below it.
        written: gives the log offset up to which the log is written.
    """

    def __init__(
        self,
        runtime: Runtime,
        root: str,
        files: LogFiles,
        log: CommitLog,
        flusher: Flusher,
        written: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._root = root
        self._files = files
        self._log = log
        self._flusher = flusher
        self._written = written
        self._by_name: dict[str, Following] = {}

    def add(
        self, follower: LogFollower, name: str, *, flushed: bool, own_progress: bool, at_once: bool
    ) -> Following:
        """See ``MessageStore.follow``."""
        if name in self._by_name or not name.isidentifier():
            raise ValueError(f"no follower can be called {name!r} here")
        path = f"{self._root}/followers/{name}"
        following = self._by_name[name] = Following(
            self._runtime,
            follower,
            self._files,
            (lambda: self._flusher.flushed) if flushed else self._written,
            name=name,
            progress=None if own_progress else Progress(self._runtime, path),
            at_once=at_once,
        )
        if at_once:
            self._log.wakers.append(following.wake)
        return following

    def start(self) -> None:
        """Feed them from now on."""
        for following in self._by_name.values():
            following.start()

    async def stop(self) -> None:
        """End what is under way; a follower whose progress cannot be written goes on from the last one."""
        for following in self._by_name.values():
            try:
                await following.stop()
            except OSError as error:
                logger.error("the progress of %s is not on the device: %s", following.name, error)

    def all(self) -> list[Following]:
        """All of them."""
        return list(self._by_name.values())
