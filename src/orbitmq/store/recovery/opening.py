"""Opens the files of a store before it takes messages: lock, load, recover."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from orbitmq.runtime import Runtime
from orbitmq.runtime.again import write_again
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreError, StoreLockedError
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import ALLOCATE_AHEAD_BYTES, WAY_OUT, LogFiles, file_name, place_in
from orbitmq.store.log.raw import first_record_time
from orbitmq.store.log.records import RecordReader
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.checking import QueueFiles
from orbitmq.store.queues.positions import QueuePositions, read_positions
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reput import TagsCodeOf
from orbitmq.store.recovery.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from orbitmq.store.recovery.recovery import Recovered, Recovery, StartCancelledError

logger = logging.getLogger(__name__)

# The disk space that a start may need: blocks ahead of the log, consume queues, tables.
ROOM_BYTES = 4 * ALLOCATE_AHEAD_BYTES
# The times of a Java broker's checkpoint are those of dispatched records, not of records on the device;
# RocketMQ's own recovery allows for the same difference.
THEIR_TIMES_AHEAD_MS = 3000


def lock(runtime: Runtime, root: str) -> Callable[[], None]:
    """Lock the folder for this store; returns the function that releases it.

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
    """The state in which the files were found.

    Attributes:
        crashed: whether the last stop was not clean.
        checkpoint: the checkpoint of that run.
        start: the log offset from which records were read.
        positions_name: number of the queue positions' file that was read, -1: none; ``positions_bytes``: its
        size.
    """

    crashed: bool
    checkpoint: Checkpoint
    start: int
    recovered: Recovered
    positions_name: int
    positions_bytes: int

    def report(self) -> None:
        """Log the losses of a crash."""
        if self.crashed:
            outcome = self.recovered
            logger.warning(
                "recovered after an unclean stop: %d records read from %d, log ends at %d, %d bytes cut%s",
                outcome.records, self.start, outcome.end_offset, outcome.cut_bytes,
                ", all consume queues rebuilt" if outcome.rebuilt else "",
            )  # fmt: skip


class Opening:
    """Loads log and consume queues and makes them agree. Runs in a thread, before anything else uses them.

    Args:
        codes: topics that keep a number of their own in place of the tags code.

    Attributes:
        percent_read: how many percent of the bytes that recovery reads have been read; ``None`` before the
            first record.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        files: LogFiles,
        queues: Queues,
        appender: Appender,
        codes: Mapping[str, TagsCodeOf],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._files = files
        self._queues = queues
        self._appender = appender
        self._codes = codes
        self.cancelled = False
        self.percent_read: int | None = None
        # Slots and next offsets of queues, as their damaged files showed them.
        self._ends: list[tuple[int, int]] = []
        self._positions: tuple[QueuePositions, int, int] | None = None
        self._positions_name = -1
        self._positions_bytes = 0

    def run(self) -> Opened:
        """Recover: then the queues have everything in the log, and all of the log is on the device.

        Raises:
            StoreError: the files do not fit the configuration.
            StartCancelledError: :attr:`cancelled` was set meanwhile.
            OSError: the disk refused.
        """
        root = self._config.root
        crashed = self._runtime.files.exists(f"{root}/abort")
        self._files.load()
        checkpoint = read_checkpoint(self._runtime, f"{root}/checkpoint")
        self._check_log(checkpoint)
        self._positions = self._named_positions(checkpoint)
        if not crashed:
            self._log_first_files_gone()
        lost = self._queues_lost(checkpoint) or self._queues_damaged(checkpoint)
        start = -1 if lost else self._load_positions(checkpoint)
        if start < 0:
            start = self._start(checkpoint, crashed)
            self._make_room(start)
            self._note_start(checkpoint, start)
            lost |= self._load_folders(start, crashed)
        else:
            self._make_room(start)
        self._bring_to_device(self._durable(checkpoint, start), again=crashed)
        recovery = Recovery(
            self._files,
            self._queues,
            self._appender,
            self._codes,
            check_crc=crashed,
            cancelled=lambda: self.cancelled,
            reading=self._note_read,
            rebuilding=lambda: self._note_rebuild(checkpoint),
        )
        outcome = recovery.run(start, rebuild=lost)
        self._queues.drop_below(self._files.first)
        if lost:
            self._keep_ends()
        return Opened(crashed, checkpoint, start, outcome, self._positions_name, self._positions_bytes)

    def _note_read(self, percent: int) -> None:
        self.percent_read = percent

    def _check_log(self, checkpoint: Checkpoint) -> None:
        """Check that the log has the files that the last checkpoint was written for.

        Raises:
            StoreError: the end of the log is missing.
        """
        files, safe = self._files, checkpoint.safe_offset
        if safe > 0 and not files.count:
            # The whole log was removed; a slave copies it again.
            logger.error("%s has no file, the log was written up to %d", files.folder, safe)
        elif safe > files.end:
            missing = f"{files.folder}/{file_name(files.end)}"
            raise StoreError(
                f"{missing} is missing, the log was written up to {safe}: {WAY_OUT}; or delete "
                f"{self._config.root}/checkpoint to begin without its messages"
            )
        for start in files.starts():
            segment = files.segment(start)
            if start < safe and segment is not None and not segment.view()[:8].tobytes().strip(b"\0"):
                logger.error("%s has no record, its messages are left out: %s", segment.path, WAY_OUT)

    def _log_first_files_gone(self) -> None:
        """Log that the oldest log files of a stopped broker were deleted, to make room or by mistake."""
        if self._positions is None:
            return
        positions, first = self._positions[0].without_dropped(), self._files.first
        rows = zip(positions.places, positions.mins, positions.nexts, strict=True)
        gone = [place for place, low, following in rows if low < following and 0 <= place < first]
        if gone:
            logger.warning(
                "the log begins at %d and began at %d or before when the broker stopped: the messages of the "
                "files between are gone", first, min(gone),
            )  # fmt: skip

    def _queues_lost(self, checkpoint: Checkpoint) -> bool:
        """Whether the queues have to be rebuilt from the log, whatever their files contain."""
        files, root = self._runtime.files, self._config.root
        # An operator requests a rebuild by deleting the folder consumequeue.
        if not files.is_dir(self._config.consume_queue_path):
            return True
        # The queues were still being rebuilt when the last run ended.
        if not checkpoint.queue_timestamp and files.exists(f"{root}/checkpoint"):
            return True
        # A Java broker with enableConsumeQueueExt keeps the tags codes in separate files.
        return checkpoint.safe_offset < 0 and files.is_dir(f"{root}/consumequeue_ext")

    def _queues_damaged(self, checkpoint: Checkpoint) -> bool:
        """Whether a file lacks entries promised by the positions; if so, all queue files are deleted."""
        if self._positions is None:
            return False
        fault = self._queue_files(checkpoint.positions_offset).first_fault(self._positions[0])
        if fault is not None:
            self._delete_queues(fault)
        return fault is not None

    def _queue_files(self, log_end: int) -> QueueFiles:
        config = self._config
        return QueueFiles(
            self._runtime.files,
            config.consume_queue_path,
            config.consume_queue_file_bytes,
            self._files.first,
            log_end,
        )

    def _delete_queues(self, fault: str) -> None:
        logger.warning("%s: the consume queues are made anew from the log", fault)
        self._runtime.files.remove_tree(self._config.consume_queue_path)

    def _note_rebuild(self, checkpoint: Checkpoint) -> None:
        """Note that the queues are not complete until the next checkpoint.

        Otherwise a kill in between would leave files of some queues, and nothing would show that others are
        missing.
        """
        if self._files.count:
            root = self._config.root
            self._runtime.files.write_atomic(f"{root}/abort", b"orbitmq", sync=True)
            write_checkpoint(self._runtime, f"{root}/checkpoint", replace(checkpoint, queue_timestamp=0))

    def _note_start(self, checkpoint: Checkpoint, start: int) -> None:
        """Note that queues are on the device only up to ``start``, if OrbitMQ's checkpoint has a later
        offset.

        Entries behind ``start`` are written again: a power loss before the next checkpoint may destroy them.
        """
        if checkpoint.positions_offset >= 0 or checkpoint.safe_offset > start:
            lowered = replace(checkpoint, safe_offset=start, positions_offset=-1)
            write_checkpoint(self._runtime, f"{self._config.root}/checkpoint", lowered)

    def _keep_ends(self) -> None:
        """Let rebuilt queues without a message continue at their old end, which no record shows."""
        for slot, following in self._ends:
            self._queues.go_on_at(slot, following)
        if self._positions is None:
            return
        positions = self._positions[0].without_dropped()
        for owner, queue_id, following in zip(positions.owners, positions.ids, positions.nexts, strict=True):
            slot = self._queues.register(positions.topics[owner], queue_id)
            if slot >= 0:
                self._queues.go_on_at(slot, following)

    def _make_room(self, border: int) -> None:
        """Delete old log files below ``border`` when the disk has no room for a start's own files.

        Cleaning does so in a running store; without this, a store stopped by a full disk could not start.
        """
        files = self._files
        wanted = min(2 * files.file_bytes, ROOM_BYTES)
        lacking = wanted - self._runtime.files.disk_bytes(self._config.commit_log_path)[1]
        # Computed, not measured again: some file systems free the space later.
        for _ in range(-(-lacking // files.file_bytes)):
            if files.count > 1 and files.first + files.file_bytes <= border:
                logger.warning("the disk is full: deleted commit log file %s", files.remove_first())

    def _durable(self, checkpoint: Checkpoint, start: int) -> int:
        """The end of the bytes known to be on the device by a successful flush."""
        safe = checkpoint.safe_offset
        return max(start, safe) if self._is_border(safe) else start

    def _bring_to_device(self, start: int, *, again: bool) -> None:
        """Flush the bytes from ``start`` on, which will be read and count as flushed.

        A killed process may have left them in the system's memory only. With ``again``, also rewrite bytes
        that its failed flush left there as clean pages, see :func:`write_again`.
        """
        files = self._files
        for segment in files.between(start, files.end):
            if self.cancelled:
                raise StartCancelledError
            try:
                if again:
                    write_again(segment, place_in(segment, start), lambda: self.cancelled)
                else:
                    segment.sync()
            except OSError as error:
                logger.error("%s could not be brought to the device: %s", segment.path, error)
                raise

    def _load_positions(self, checkpoint: Checkpoint) -> int:
        """Take the queues' positions from the file that the checkpoint names; the log offset up to which
        they count, -1: there is no such file, or it does not fit the log."""
        if self._positions is None:
            return -1
        positions, self._positions_name, self._positions_bytes = self._positions
        self._queues.load_positions(positions)
        return checkpoint.positions_offset

    def _named_positions(self, checkpoint: Checkpoint) -> tuple[QueuePositions, int, int] | None:
        offset = checkpoint.positions_offset
        if offset < 0 or not self._is_border(offset):
            return None
        return read_positions(
            self._runtime,
            self._config.root,
            log_offset=offset,
            crc=checkpoint.positions_crc,
            queue_file_bytes=self._config.consume_queue_file_bytes,
        )

    def _load_folders(self, border: int, crashed: bool) -> bool:
        """Find the ends of the queues from their files; returns whether a file lacks entries."""
        fault = None
        files = self._queue_files(self._files.end)
        for topic in self._queues.folders():
            if self.cancelled:
                raise StartCancelledError
            found = self._queues.load_folder(
                topic, border, cut=crashed, is_stored=self._is_stored, files=files
            )
            fault = fault or found
        if fault is not None:
            self._ends = self._queues.forget_all()
            self._delete_queues(fault)
        return fault is not None

    def _is_stored(self, entry: tuple[int, int, int], queue_id: int, offset: int) -> bool:
        """Whether the log has the record of a consume queue entry; entries older than the log count too."""
        physical, size, _ = entry
        segment = self._files.segment(physical)
        if physical < self._files.first:
            return True
        if segment is None:
            return False
        reader = RecordReader()
        found = reader.read_at(segment.view(), physical - self._files.start_of(physical), physical, False)
        return found == table.RECORD and (reader.size, reader.queue_id, reader.queue_offset) == (
            size, queue_id, offset,
        )  # fmt: skip

    def _start(self, checkpoint: Checkpoint, crashed: bool) -> int:
        """The latest record boundary up to which log and queues are known to be on the device."""
        files = self._files
        if not files.count:
            return 0
        offset = checkpoint.safe_offset
        if self._is_border(offset):
            return offset
        starts = files.starts()
        if not crashed:
            return starts[max(0, len(starts) - 3)]
        known = min(checkpoint.log_timestamp, checkpoint.queue_timestamp) - THEIR_TIMES_AHEAD_MS
        for start in reversed(starts):
            first = first_record_time(files, start)
            if first is not None and 0 < first <= known:
                return start
        return files.first

    def _is_border(self, offset: int) -> bool:
        """Whether a record begins at ``offset``, or the log ends there."""
        files = self._files
        if not files.count:
            return offset == 0
        if not files.first <= offset <= files.end:
            return False
        segment = files.segment(offset)
        if segment is None:
            return offset == files.end
        at = offset - files.start_of(offset)
        view = segment.view()
        found = RecordReader().read_at(view, at, offset, False)
        return found in (table.RECORD, table.BLANK) or not view[at : at + 8].tobytes().strip(b"\0")
