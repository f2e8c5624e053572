"""What happens to the files of a store before it takes messages: lock, load, recover."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.runtime import Runtime
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreLockedError
from orbitmq.store.log.files import LogFiles, sync_all
from orbitmq.store.queues.queues import Queues
from orbitmq.store.recovery.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.recovery.recovery import Recovered, Recovery, TagsCodeOf, first_record_time, read_record

logger = logging.getLogger(__name__)


def lock(runtime: Runtime, root: str) -> Callable[[], None]:
    """Make the folder this store's own; returns what gives it free.

    Raises:
        StoreLockedError: another broker uses the folder.
    """
    try:
        return runtime.files.lock(f"{root}/lock")
    except BlockingIOError as error:
        raise StoreLockedError(
            f"the folder {root} is used by another broker (lock file {root}/lock)"
        ) from error


@dataclass(frozen=True, slots=True)
class Opened:
    """How the files were found.

    Attributes:
        crashed: the last stop was not a clean one.
        checkpoint: what that run had written down.
        start: from where on records were read.
    """

    crashed: bool
    checkpoint: Checkpoint
    start: int
    recovered: Recovered

    def report(self) -> None:
        """Log what a crash cost."""
        if self.crashed:
            outcome = self.recovered
            logger.warning(
                "recovered after an unclean stop: %d records read from %d, log ends at %d, %d bytes cut%s",
                outcome.records, self.start, outcome.end_offset, outcome.cut_bytes,
                ", all consume queues rebuilt" if outcome.rebuilt else "",
            )  # fmt: skip


class Opening:
    """Loads log and consume queues and makes them agree.

    Args:
        code_of: gives the tags code of a record.
    """

    def __init__(
        self, runtime: Runtime, config: StoreConfig, files: LogFiles, queues: Queues, code_of: TagsCodeOf
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._files = files
        self._queues = queues
        self._code_of = code_of

    def run(self) -> Opened:
        """Afterwards what the log holds is in the queues, and all of it is on the device.

        Raises:
            StoreError: the files do not fit the configuration.
            OSError: the disk refused.
        """
        root = self._config.root
        crashed = self._runtime.files.exists(f"{root}/abort")
        self._files.load()
        self._queues.load()
        checkpoint = read_checkpoint(self._runtime, f"{root}/checkpoint")
        recovery = Recovery(
            self._runtime, self._files, self._queues.files_of, code_of=self._code_of, check_crc=crashed
        )
        start = self._start(checkpoint, crashed)
        # Who wants the consume queues to be made anew removes their folder.
        lost = not self._runtime.files.is_dir(self._config.consume_queue_path)
        outcome = recovery.run(start, self._queues.all_files(), rebuild=lost)
        # What a killed process had written may be in the kernel only; from here on it counts as flushed.
        sync_all(self._files.between(start, outcome.end_offset))
        sync_all(self._queues.save_all())
        self._queues.saved()
        for queue in self._queues.all_files():
            queue.drop_below(self._files.first)
        return Opened(crashed, checkpoint, start, outcome)

    def _start(self, checkpoint: Checkpoint, crashed: bool) -> int:
        """The newest border between records below which log and queues are known to be on the device."""
        files = self._files
        if not files.count:
            return 0
        offset = checkpoint.safe_offset
        if files.first <= offset <= files.end and self._is_border(offset):
            return offset
        starts = files.starts()
        if not crashed:
            return starts[max(0, len(starts) - 3)]
        known = min(checkpoint.log_timestamp, checkpoint.queue_timestamp)
        for start in reversed(starts):
            first = first_record_time(files, start, self._code_of)
            if first is not None and 0 < first <= known:
                return start
        return files.first

    def _is_border(self, offset: int) -> bool:
        """A record begins there, or nothing does (the end of the log)."""
        segment = self._files.segment(offset)
        if segment is None:
            return offset == self._files.end
        at = offset - self._files.start_of(offset)
        view = segment.view()
        found = read_record(view, at, offset, code_of=self._code_of, check_crc=False)
        return found is not None or not view[at : at + 8].tobytes().strip(b"\0")
