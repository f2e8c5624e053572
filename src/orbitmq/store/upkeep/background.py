"""What a running store does by itself: flush passes, checkpoints, cleaning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from orbitmq.runtime import Runtime
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.index.index import MessageIndex
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.files import LogFiles, sync_all
from orbitmq.store.log.flush import Flusher
from orbitmq.store.queues.queues import Queues
from orbitmq.store.recovery.checkpoint import Checkpoint, write_checkpoint
from orbitmq.store.recovery.recovery import TagsCodeOf, first_record_time
from orbitmq.store.upkeep.retention import decide
from orbitmq.store.writable import Acceptance

logger = logging.getLogger(__name__)


class Upkeep:
    """The background of one store.

    Args:
        update_clock: sets the store time; returns it, ms.

    Attributes:
        index: the message index, while the store is open and has one.
        safe_offset: log and queues are on the device up to here, and the checkpoint says so.
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
        acceptance: Acceptance,
        *,
        code_of: TagsCodeOf,
        update_clock: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self.config = config
        self._files = files
        self._appender = appender
        self._log = log
        self._queues = queues
        self._flusher = flusher
        self._acceptance = acceptance
        self._code_of = code_of
        self._update_clock = update_clock
        self.index: MessageIndex | None = None
        self.safe_offset = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._next_checkpoint: Checkpoint | None = None
        self._writing_checkpoint = False

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; the store is open."""
        if self.index is not None:
            self.index.start()
        config = self.config
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(interval_ms, step), name=name)
            for name, interval_ms, step in (
                ("store-flush-loop", config.flush_interval_ms, self.flush_pass),
                ("store-checkpoint", config.checkpoint_interval_ms, self.checkpoint),
                ("store-clean", config.clean_interval_ms, self.clean),
            )
        ]

    async def stop(self) -> None:
        """Let the steps under way end, and begin no more."""
        self._stopping = True
        for task in self._resting:
            task.cancel()
        # A step under way goes to its end: its thread could not be stopped anyhow.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _every(self, interval_ms: int, step: Callable[[], object]) -> None:
        task = asyncio.current_task()
        while task is not None and not self._stopping:
            self._resting.add(task)
            try:
                await self._runtime.clock.sleep(interval_ms / 1000)
            finally:
                self._resting.discard(task)
            try:
                outcome = step()
                if asyncio.iscoroutine(outcome):
                    await outcome
            except OSError as error:
                logger.error("%s of the store failed, it is tried again: %s", step.__name__, error)
            except Exception:
                # A mistake of ours: it must be seen, and must not end flushing and cleaning for good.
                logger.exception("%s of the store failed, it is tried again", step.__name__)

    async def end_index(self) -> int:
        """End the index's work; returns up to where it is on the device, -1 when that is unknown."""
        if self.index is None:
            return -1
        try:
            await self.index.stop()
        except OSError as error:
            logger.error("the message index is not on the device: %s", error)
            return -1
        return self.index.position

    async def note_index(self, indexed: int) -> None:
        """Write down up to where the index is, -1: unknown."""
        if indexed >= 0:
            now, safe = self._appender.now_ms, self.safe_offset
            final = Checkpoint(now, now, self._indexed_time(), 0, safe, safe, indexed)
            await self._runtime.threads.run(self._write_checkpoint, final)

    def _indexed_time(self) -> int:
        return self.index.sealed_time if self.index is not None else 0

    # -- flush and checkpoint --------------------------------------------------------------------------

    async def flush_pass(self) -> None:
        """Flush what is written, when nobody waits for that."""
        if not self.config.sync_flush and self._flusher.error is None:
            await self._flusher.flush()

    async def checkpoint(self) -> None:
        """Bring log and queues to the device, then write down how far they are."""
        if self._log.write_error is not None or self._flusher.error is not None:
            return
        target, now = self._flusher.written, self._appender.now_ms
        if target == self.safe_offset and self._runtime.files.exists(f"{self.config.root}/checkpoint"):
            return
        segments = self._queues.save_all()
        if self._flusher.flushed < target:
            await self._flusher.flush()
            if self._flusher.flushed < target:
                return
        await self._runtime.threads.run(sync_all, segments)
        self._queues.saved()
        if target < self.safe_offset:
            return  # a topic was dropped meanwhile
        self.safe_offset = target
        self._next_checkpoint = Checkpoint(now, now, self._indexed_time(), 0, target, target)
        self._writing_checkpoint = True
        try:
            while self._next_checkpoint is not None:
                following, self._next_checkpoint = self._next_checkpoint, None
                await self._runtime.threads.run(self._write_checkpoint, following)
        except OSError:
            self.safe_offset = -1  # nothing says it on disk: write it again
            raise
        finally:
            self._writing_checkpoint = False

    def checkpoint_now(self) -> None:
        """As :meth:`checkpoint`, before anything else happens."""
        sync_all(self._queues.save_all())
        self._queues.saved()
        self._flusher.flush_blocking()
        if self._flusher.error is not None:
            return
        now, safe = self._appender.now_ms, self._flusher.written
        checkpoint = Checkpoint(now, now, self._indexed_time(), 0, safe, safe)
        if self._writing_checkpoint:
            self._next_checkpoint = checkpoint
        else:
            self._write_checkpoint(checkpoint)
        self.safe_offset = safe

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._runtime, f"{self.config.root}/checkpoint", checkpoint)

    # -- cleaning --------------------------------------------------------------------------------------

    def clean_now(self) -> None:
        """Delete expired log files, whatever the hour, and what consume queues say of them."""
        self.clean(any_hour=True)
        self._queues.drop_below(self._files.first)

    def clean(self, *, any_hour: bool = False) -> None:
        """One pass of retention; also tries a failed write again when there is room."""
        self._update_clock()
        used = self._runtime.files.disk_used_ratio(self.config.root)
        finished = self._finished_times()
        now = self._runtime.clock.now_ms()
        hour = self.config.delete_hour if any_hour else datetime.fromtimestamp(now / 1000).hour
        plan = decide(self.config, now, hour, used, finished)
        if plan.delete:
            self._delete_files(plan.delete)
            used = self._runtime.files.disk_used_ratio(self.config.root)
            plan = decide(self.config, now, hour, used, [])
        if plan.refuse_writes:
            self._acceptance.refuse(
                f"the disk of {self.config.root} is {used:.0%} full, "
                f"the limit is {self.config.disk_full_ratio:.0%}"
            )
        elif self._acceptance.refusal is not None and self._flusher.error is None and not self._stopping:
            self._try_again()

    def _finished_times(self) -> list[int]:
        """When the last message of each full file was stored: just before the first of the next file.

        Only of files that are on the device as a whole: a flush may be at work on the others.
        """
        times: list[int] = []
        following: int | None = None
        for start in reversed(self._files.starts()[1:]):
            if start >= self._flusher.written:
                # Nothing is there yet; to look would need a page, which a full disk in memory does not have.
                continue
            stored = first_record_time(self._files, start, self._code_of)
            if stored is not None and stored > 0:
                following = stored
            if following is not None and start <= self._flusher.flushed:
                times.append(following)
        return times[::-1]

    def _delete_files(self, count: int) -> None:
        try:
            for _ in range(count):
                logger.info("deleted expired commit log file %s", self._files.remove_first())
        finally:
            self._log.refresh_maps()
        self._queues.drop_below(self._files.first)
        if self.index is not None:
            self.index.drop_below(self._files.first)

    def _try_again(self) -> None:
        """Do what the disk refused, and take messages again when it is done."""
        try:
            self._log.try_again()
            self._queues.write_all()
        except StoreClosedError as error:
            self._acceptance.refuse(str(error))
        except OSError as error:
            self._acceptance.queues_failed(error)
        else:
            self._acceptance.accept()
