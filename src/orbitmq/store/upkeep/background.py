"""Background work of a running store: flush passes, checkpoints, cleaning."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.runtime import Runtime
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.index.index import MessageIndex
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.raw import first_record_time
from orbitmq.store.queues.positions import NAMES, QueuePositions
from orbitmq.store.queues.positions import checksum as positions_checksum
from orbitmq.store.queues.queues import Queues
from orbitmq.store.recovery.checkpoint import Checkpoint, write_checkpoint
from orbitmq.store.recovery.opening import Opened
from orbitmq.store.upkeep.held import HeldFiles
from orbitmq.store.upkeep.retention import decide
from orbitmq.store.writable import WriteGate

logger = logging.getLogger(__name__)

# How many queues one call in a thread saves; between two calls other work gets its turn.
SAVE_AT_ONCE = 500
# How often a caller's checkpoint is begun again because a topic was deleted meanwhile.
CHECKPOINT_TRIES = 5
# Positions of all queues are written again when the log has grown this many times their size: a start reads
# the log from there.
POSITIONS_GROWTH = 4


@dataclass(slots=True)
class _Written:
    """The content of a checkpoint.

    Attributes:
        positions: a new file of positions to name; without one the last named file stays.
        forgets: whether to name no file, because the last named one covers more than is safe now.
    """

    checkpoint: Checkpoint
    positions: QueuePositions | None
    forgets: bool = False


class Upkeep:
    """The background work of one store.

    Args:
        update_clock: sets the store time; returns it, ms.

    Attributes:
        index: the message index, while the store is open and has one.
        safe_offset: the log offset up to which log and queues are on the device according to the checkpoint.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        files: LogFiles,
        appender: Appender,
        log: CommitLog,
        queues: Queues,
        flusher: Flusher,
        write_gate: WriteGate,
        *,
        update_clock: Callable[[], int],
        held: HeldFiles,
    ) -> None:
        self._runtime = runtime
        self.config = config
        self._files = files
        self._appender = appender
        self._log = log
        self._queues = queues
        self._flusher = flusher
        self._write_gate = write_gate
        self._update_clock = update_clock
        self._held = held
        self.index: MessageIndex | None = None
        self.safe_offset = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._next_checkpoint: _Written | None = None
        self._no_checkpoint = asyncio.Event()
        self._no_checkpoint.set()
        self._checkpointing = asyncio.Lock()
        # The beginning of the log when the queues were last cut to it.
        self._queues_from = 0
        # The queues were rebuilt, and no checkpoint shows yet that they are complete.
        self._rebuilt = False
        self._keeping: asyncio.Task[None] | None = None
        # Counts events that make a checkpoint under way worthless.
        self._drops = 0
        # The log offset of the positions file that the checkpoint names, -1: it names no file.
        self._positions_offset = -1
        self._positions_crc = 0
        self._positions_bytes = 0
        self._positions_name = 0

    # -- life ------------------------------------------------------------------------------------------

    def resume(self, opened: Opened) -> None:
        """Go on from the state found on disk."""
        self.safe_offset = opened.start
        self._rebuilt = opened.recovered.rebuilt
        self._queues_from = self._files.first
        if opened.positions_name >= 0 and not self._rebuilt:
            self._positions_offset = opened.checkpoint.positions_offset
            self._positions_crc = opened.checkpoint.positions_crc
            self._positions_bytes = opened.positions_bytes
            self._positions_name = opened.positions_name

    def start(self) -> None:
        """Start the background work of the open store."""
        if self.index is not None:
            self._log.wakers.append(self.index.feed.wake)
            self.index.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(interval_ms, step), name=name)
            for name, interval_ms, step in (
                ("store-flush-loop", lambda: self.config.flush_interval_ms, self.flush_pass),
                ("store-checkpoint", lambda: self.config.checkpoint_interval_ms, self.checkpoint),
                ("store-clean", lambda: self.config.clean_interval_ms, self.clean),
            )
        ]

    async def stop(self) -> None:
        """Wait until the steps under way end, and begin no more."""
        self._stopping = True
        for task in self._resting:
            task.cancel()
        # A step under way is completed: its thread could not be stopped anyway.
        keeping = [] if self._keeping is None else [self._keeping]
        await asyncio.gather(*self._tasks, *keeping, return_exceptions=True)
        self._tasks = []

    async def _every(self, interval_ms: Callable[[], int], step: Callable[[], object]) -> None:
        task = asyncio.current_task()
        while task is not None and not self._stopping:
            self._resting.add(task)
            try:
                await self._runtime.clock.sleep(interval_ms() / 1000)
            finally:
                self._resting.discard(task)
            try:
                outcome = step()
                if asyncio.iscoroutine(outcome):
                    await outcome
            except OSError as error:
                logger.error("%s of the store failed, it is tried again: %s", step.__name__, error)
            except Exception:
                # A bug: log it, and go on flushing and cleaning.
                logger.exception("%s of the store failed, it is tried again", step.__name__)

    async def end_index(self) -> int:
        """End the index's work; returns how far it is on the device, -1 when that is unknown."""
        if self.index is None:
            return -1
        self._log.wakers.remove(self.index.feed.wake)
        try:
            await self.index.stop()
        except OSError as error:
            logger.error("the message index is not on the device: %s", error)
            return -1
        return self.index.position

    async def last_checkpoint(self, indexed: int) -> None:
        """The checkpoint of a clean stop, with the positions of all queues.

        Args:
            indexed: how far the index is on the device, -1: unknown.
        """
        await self.checkpoint(indexed=indexed, last=True)

    def _indexed_time(self) -> int:
        return self.index.sealed_time if self.index is not None else 0

    # -- flush and checkpoint --------------------------------------------------------------------------

    async def flush_pass(self) -> None:
        """Flush written bytes that no sender waits for."""
        if not self.config.sync_flush and self._flusher.error is None:
            await self._flusher.flush()

    async def checkpoint(self, *, indexed: int = -1, last: bool = False) -> None:
        """Bring log and queues to the device, then note up to where they are.

        Only queues with new entries are touched, in threads.
        """
        async with self._checkpointing:
            await self._checkpoint(indexed, last=last)

    async def keep_moved(self) -> None:
        """Return when the new offsets of moved queues are on the device.

        Raises:
            OSError: the device refuses; the next checkpoint tries again.
        """
        if not self._queues.moved:
            return
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep_moved(), name="store-moved")
        # A waiting task may be cancelled, a writing thread may not.
        await asyncio.shield(self._keeping)

    async def _keep_moved(self) -> None:
        for _ in range(CHECKPOINT_TRIES):
            await self.checkpoint()
            if not self._queues.moved:
                return
        raise OSError(f"{self.config.root}: no checkpoint says where {len(self._queues.moved)} queues go on")

    async def _checkpoint(self, indexed: int, *, last: bool) -> None:
        if self._log.write_error is not None or self._flusher.error is not None:
            return
        target, now = self._flusher.written, self._appender.now_ms
        written = self._runtime.files.exists(f"{self.config.root}/checkpoint")
        # The positions on the disk lack the offsets of moved queues, whatever the queues' files contain.
        moved = dict(self._queues.moved)
        known = self._positions_offset >= 0 and not moved
        if target == self.safe_offset and known and written and not last:
            return
        grown = target - self._positions_offset
        due = last or not known or grown > POSITIONS_GROWTH * self._positions_bytes
        # Taken now, while the visible messages end at the target.
        positions = self._queues.positions() if due else None
        drops = self._drops
        await self._save_queues()
        await self._file_moved(list(moved))
        if self._flusher.flushed < target:
            await self._flusher.flush()
            if self._flusher.flushed < target:
                return
        await self._runtime.threads.run(self._queues.sync)
        if drops != self._drops:
            return  # a topic was dropped meanwhile
        self.safe_offset = target
        self._next_checkpoint = _Written(
            Checkpoint(now, now, self._indexed_time(), 0, 0, target, indexed), positions
        )
        self._no_checkpoint.clear()
        try:
            while self._next_checkpoint is not None:
                following, self._next_checkpoint = self._next_checkpoint, None
                await self._runtime.threads.run(self._write_checkpoint, following)
            if drops == self._drops:  # otherwise the checkpoint names no positions
                self._queues.forget_moved(moved)
        except OSError:
            self.safe_offset = -1  # no checkpoint on disk names the new offset: write it again
            raise
        finally:
            self._no_checkpoint.set()

    async def checkpoint_written(self) -> None:
        """Return when no thread writes a checkpoint, which could end after the next one."""
        await self._no_checkpoint.wait()

    async def _save_queues(self) -> None:
        slots = self._appender.take_unsaved()
        try:
            while slots:
                piece = slots[-SAVE_AT_ONCE:]
                del slots[-SAVE_AT_ONCE:]
                await self._runtime.threads.run(self._queues.save_many, piece)
        finally:
            for slot in slots:
                self._appender.note_unsaved(slot)

    async def _file_moved(self, slots: list[int]) -> None:
        for first in range(0, len(slots), SAVE_AT_ONCE):
            await self._runtime.threads.run(self._queues.file_moved, slots[first : first + SAVE_AT_ONCE])

    def checkpoint_now(self) -> None:
        """Write a checkpoint without waiting, on the calling thread; the next one writes the queues'
        positions."""
        self._drops += 1
        self._positions_offset = -1
        self._queues.write_all()
        self._queues.sync()
        self._flusher.flush_blocking()
        if self._flusher.error is not None:
            return
        now, safe = self._appender.now_ms, self._flusher.written
        written = _Written(Checkpoint(now, now, self._indexed_time(), 0, 0, safe), None, forgets=True)
        if self._no_checkpoint.is_set():
            self._write_checkpoint(written)
        else:
            self._next_checkpoint = written
        self.safe_offset = safe

    def lower(self, offset: int) -> None:
        """Note in the checkpoint that nothing behind ``offset`` is safe, before the log is cut there; the
        caller has just awaited :meth:`checkpoint_written`.
        """
        self._drops += 1
        self.safe_offset = min(self.safe_offset, offset)
        # Without a safe offset the next start uses the times, so these must not show all bytes as safe.
        now = self._appender.now_ms if self.safe_offset >= 0 else 0
        queues = 0 if self._rebuilt else now
        self._write_checkpoint(
            _Written(Checkpoint(now, queues, 0, 0, 0, self.safe_offset), None, forgets=True)
        )

    def _write_checkpoint(self, written: _Written) -> None:
        root, checkpoint = self.config.root, written.checkpoint
        if written.forgets:
            self._positions_offset = -1
        if written.positions is not None:
            offset = checkpoint.safe_offset
            data = written.positions.encoded(offset, self.config.consume_queue_file_bytes)
            name = 1 - self._positions_name
            self._runtime.files.write_atomic(f"{root}/{NAMES[name]}", data)
            self._positions_name = name
            self._positions_offset, self._positions_bytes = offset, len(data)
            self._positions_crc = positions_checksum(data)
        checkpoint.positions_offset = self._positions_offset
        checkpoint.positions_crc = self._positions_crc
        write_checkpoint(self._runtime, f"{root}/checkpoint", checkpoint)
        if checkpoint.queue_timestamp:
            self._rebuilt = False

    # -- cleaning --------------------------------------------------------------------------------------

    def clean_now(self) -> None:
        """Delete expired log files, whatever the hour, and the consume queues' entries for them."""
        self._clean_log(any_hour=True)
        self._queues.drop_below(self._files.first)
        self._queues_from = self._files.first

    async def clean(self) -> None:
        """Delete expired files once (retention); also try a failed write again when there is room."""
        try:
            self._clean_log(any_hour=False)
        finally:
            if (first := self._files.first) != self._queues_from:
                await self._runtime.threads.run(self._queues.drop_below, first)
                self._queues_from = first

    def _clean_log(self, *, any_hour: bool) -> None:
        self._update_clock()
        used, folder = self._disk_used()
        finished = self._finished_times()
        now = self._runtime.clock.now_ms()
        due = any_hour or self._runtime.clock.local_time(now).hour in self.config.delete_hours
        plan = decide(self.config, now, due, used, finished, self._held_from())
        if plan.delete:
            self._delete_files(plan.delete)
            used, folder = self._disk_used()
            plan = decide(self.config, now, due, used, [], 0)
        if plan.refuse_writes:
            self._write_gate.refuse(
                f"the disk of {folder} is {used:.0%} full, the limit is {self.config.disk_full_ratio:.0%}"
            )
        elif self._write_gate.refusal is not None and self._flusher.error is None and not self._stopping:
            self._try_again()

    def _held_from(self) -> int:
        """How many of the oldest files are not held."""
        first, starts = self._held.first, self._files.starts()
        return len(starts) if first is None else bisect_left(starts, first)

    def _disk_used(self) -> tuple[float, str]:
        """The used share of the disk, of the fuller one if the log has its own disk, and a folder on it."""
        ratio = self._runtime.files.disk_used_ratio
        used = [(ratio(folder), folder) for folder in (self.config.root, self.config.commit_log_path)]
        return max(used, key=lambda one: one[0])

    def _finished_times(self) -> list[int]:
        """When the last message of each full file was stored: just before the first of the next file.

        Only for files that are completely on the device: a flush may be at work on the others.
        """
        times: list[int] = []
        following: int | None = None
        for start in reversed(self._files.starts()[1:]):
            if start >= self._flusher.written:
                # The file has no record yet; reading it would need a page, which a full disk in memory
                # (tmpfs) cannot provide.
                continue
            stored = first_record_time(self._files, start)
            if stored is not None and stored > 0:
                # If the clock was ahead for a while, files written then must not stay until that time comes.
                following = stored if following is None else min(stored, following)
            if following is not None and start <= self._flusher.flushed:
                times.append(following)
        return times[::-1]

    def _delete_files(self, count: int) -> None:
        try:
            for _ in range(count):
                logger.info("deleted expired commit log file %s", self._files.remove_first())
        finally:
            self._log.refresh_maps()
        if self.index is not None:
            self.index.drop_below(self._files.first)

    def _try_again(self) -> None:
        """Try again the write that the disk refused, and take messages again when it succeeds."""
        try:
            self._log.try_again()
            self._queues.write_all()
        except StoreClosedError as error:
            self._write_gate.refuse(str(error))
        except OSError as error:
            self._write_gate.queues_failed(error)
        else:
            self._write_gate.accept()
