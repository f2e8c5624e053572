"""How a store opens and closes: lock the folder, recover, serve, note that the stop was clean."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from orbitmq.runtime import Runtime
from orbitmq.store.index.index import MessageIndex
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.files import LogFiles
from orbitmq.store.log.flush import Flusher
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reading import Reader
from orbitmq.store.queues.reput import TagsCodeOf
from orbitmq.store.queues.topic_incarnations import TopicIncarnations
from orbitmq.store.recovery.foreign import refuse_foreign
from orbitmq.store.recovery.opening import Opened, Opening, lock
from orbitmq.store.recovery.recovery import Recovered
from orbitmq.store.upkeep.background import Upkeep
from orbitmq.store.writable import WriteGate

logger = logging.getLogger(__name__)


class StoreLifecycle:
    """Starts and stops the parts of one store.

    Attributes:
        recovered: the result of the last start; ``None`` before the first.
        crashed: whether the stop before that start was not clean.
        crash_counts: whether the next start must treat this run's stop as a crash, even if it was clean.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: LogFiles,
        appender: Appender,
        log: CommitLog,
        queues: Queues,
        flusher: Flusher,
        reader: Reader,
        upkeep: Upkeep,
        write_gate: WriteGate,
        codes: Mapping[str, TagsCodeOf],
        incarnations: TopicIncarnations,
    ) -> None:
        self._runtime = runtime
        self._files = files
        self._appender = appender
        self._log = log
        self._queues = queues
        self._flusher = flusher
        self._reader = reader
        self._upkeep = upkeep
        self._write_gate = write_gate
        self._codes = codes
        self._incarnations = incarnations
        self._unlock: Callable[[], None] | None = None
        self._opening: Opening | None = None
        self.recovered: Recovered | None = None
        self.crashed = False
        self.crash_counts = False

    @property
    def open(self) -> bool:
        """Whether the store has locked its folder."""
        return self._unlock is not None

    @property
    def percent_read(self) -> int | None:
        """See ``MessageStore.percent_read``."""
        return self._opening.percent_read if self._opening is not None else None

    async def start(self) -> None:
        """See ``MessageStore.start``."""
        root = self._upkeep.config.root
        self._runtime.files.make_dirs(root)
        self._unlock = lock(self._runtime, root)
        try:
            refuse_foreign(self._runtime.files, root)
            self._opened(await self._recover())
            self._runtime.files.write_atomic(f"{root}/abort", b"orbitmq", sync=True)
        except BaseException:
            self._close_files()
            raise
        self._write_gate.begin()
        self._upkeep.start()

    async def _recover(self) -> Opened:
        """Open the files in a thread. A cancellation ends the thread's work soon and leaves the folder as a
        crash would."""
        opening = self._opening = Opening(
            self._runtime, self._upkeep.config, self._files, self._queues, self._appender, self._codes
        )
        work = self._runtime.threads.run(opening.run)
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                opening.cancelled = True
        self._opening = None
        if opening.cancelled:
            work.exception()
            raise asyncio.CancelledError
        return work.result()

    def _opened(self, opened: Opened) -> None:
        outcome = self.recovered = opened.recovered
        self.crashed = opened.crashed
        self._incarnations.doubtful = opened.crashed or outcome.rebuilt
        self._incarnations.rebuilt = outcome.rebuilt
        self._incarnations.ours = opened.checkpoint.safe_offset >= 0
        if self._incarnations.ours:
            self._incarnations.newest_ms = max(opened.checkpoint.log_timestamp, outcome.last_timestamp)
        self._log.open_at(outcome.end_offset)
        self._appender.count_from_here()
        self._upkeep.resume(opened)
        self._open_index(opened)
        self._appender.now_ms = max(self._runtime.clock.now_ms(), outcome.last_timestamp)
        opened.report()

    def _open_index(self, opened: Opened) -> None:
        config = self._upkeep.config
        if not config.index:
            return
        index = self._upkeep.index = MessageIndex(
            self._runtime,
            config.index_path,
            config.index_slots,
            config.index_entries,
            self._files,
            lambda: self._appender.batch_base,
            self._reader.store_time_at,
        )
        checkpoint = opened.checkpoint
        index.load(
            crashed=opened.crashed,
            sealed_time=checkpoint.index_timestamp,
            position=checkpoint.index_offset,
        )

    async def stop(self) -> None:
        """Take no more messages; write, flush and close everything."""
        if self._unlock is None:
            return
        self._write_gate.end()
        await self._upkeep.stop()
        indexed = await self._upkeep.end_index()
        await self._log.stop()
        try:
            if self._log.write_error is None and self._flusher.error is None:
                await self._upkeep.last_checkpoint(indexed)
                if not self.crash_counts:
                    self._runtime.files.remove(f"{self._upkeep.config.root}/abort")
        except OSError as error:
            logger.error("the store did not stop cleanly, the next start recovers it: %s", error)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        if self._upkeep.index is not None:
            self._upkeep.index.close()
            self._upkeep.index = None
        self._queues.close()
        self._files.close()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
