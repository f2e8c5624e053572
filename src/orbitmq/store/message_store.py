"""The store as its users see it: put, get, look up, start, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from orbitmq.message.ids import offset_message_id, pack_ip
from orbitmq.runtime import Runtime, Segment
from orbitmq.store import layout as table
from orbitmq.store.appender import Appender
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreClosedError, StoreLockedError, UnknownQueueError
from orbitmq.store.flush import Flusher
from orbitmq.store.index import MessageIndex
from orbitmq.store.log_files import LogFiles
from orbitmq.store.lookup import Lookup
from orbitmq.store.model import GetResult, NewMessage, PutResult, PutStatus
from orbitmq.store.queues import Queues
from orbitmq.store.reading import Reader
from orbitmq.store.recovery import Recovered, Recovery, TagsCodeOf, read_record, tags_code_of_properties
from orbitmq.store.retention import decide

logger = logging.getLogger(__name__)

OUTPUT_BYTES = 1 << 20
Arrival = Callable[[str, int, int], None]


class MessageStore:
    """Messages of all topics in one log. Not thread-safe: it belongs to one event loop.

    A message put is visible to :meth:`get` when the current turn of the event loop ends, and safe by the
    rules of the flush mode when :meth:`stored` returns.

    Args:
        tags_code_of: gives the tags code of a record during recovery; the broker passes its own when some
            topics keep another number there (a delivery time).
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        *,
        tags_code_of: TagsCodeOf = tags_code_of_properties,
    ) -> None:
        self._runtime = runtime
        self.config = config
        self._tags_code_of = tags_code_of
        self.appender = Appender(
            config.turn_bytes, config.tail_entries, config.commit_log_file_bytes, pack_host(config.store_host)
        )
        self.lookup = Lookup(self.appender)
        self._files = LogFiles(runtime, config.commit_log_path, config.commit_log_file_bytes)
        self.flusher = Flusher(
            runtime,
            sync=config.sync_flush,
            timeout_ms=config.sync_flush_timeout_ms,
            segments=self._files.between,
            failed=self._flush_failed,
        )
        self.log = CommitLog(
            runtime, self._files, self.appender, self.lookup, self.flusher, self._arrived, self._write_failed
        )
        self.queues = Queues(runtime, config, self.appender, self.lookup)
        self._reader = Reader(self.queues, self._files, self.appender, self.lookup, OUTPUT_BYTES)
        self.index: MessageIndex | None = None
        self._unlock: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._next_checkpoint: Checkpoint | None = None
        self._writing_checkpoint = False
        self._refusal: str | None = "it is not started"
        self._safe_offset = 0
        self._born_cache: dict[tuple[str, int], bytes] = {}
        self.on_arrival: Arrival | None = None
        self.on_accepting: Callable[[bool], None] | None = None
        self.recovered: Recovered | None = None

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock the folder, recover, open for messages.

        Raises:
            StoreLockedError: another broker uses the folder.
            StoreError: the files do not fit the configuration.
            OSError: the disk refused.
        """
        root = self.config.root
        self._runtime.files.make_dirs(root)
        try:
            self._unlock = self._runtime.files.lock(f"{root}/lock")
        except BlockingIOError as error:
            raise StoreLockedError(
                f"the folder {root} is used by another broker (lock file {root}/lock)"
            ) from error
        try:
            self._recover()
            self._runtime.files.write_atomic(f"{root}/abort", b"orbitmq", sync=True)
        except BaseException:
            self._close_files()
            raise
        self._refusal = None
        self._tell_accepting()
        if self.index is not None:
            self.index.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(
                self._every(self.config.flush_interval_ms, self._flush_pass), name="store-flush-loop"
            ),
            loop.create_task(
                self._every(self.config.checkpoint_interval_ms, self._checkpoint), name="store-checkpoint"
            ),
            loop.create_task(self._every(self.config.clean_interval_ms, self._clean), name="store-clean"),
        ]

    def _recover(self) -> None:
        root = self.config.root
        crashed = self._runtime.files.exists(f"{root}/abort")
        self._files.load()
        self.queues.load()
        checkpoint = read_checkpoint(self._runtime, f"{root}/checkpoint")
        recovery = Recovery(
            self._runtime, self._files, self.queues.files_of, code_of=self._tags_code_of, check_crc=crashed
        )
        start = self._recovery_start(checkpoint, crashed)
        # Who wants the consume queues to be made anew removes their folder.
        lost = not self._runtime.files.is_dir(self.config.consume_queue_path)
        outcome = self.recovered = recovery.run(start, self.queues.all_files(), rebuild=lost)
        # What a killed process had written may be in the kernel only; from here on it counts as flushed.
        _sync_all(self._files.between(start, outcome.end_offset))
        _sync_all(self.queues.save_all())
        self.queues.saved()
        for queue in self.queues.all_files():
            queue.drop_below(self._files.first)
        self.log.open_at(outcome.end_offset)
        self._safe_offset = outcome.end_offset
        self._open_index(crashed, checkpoint)
        self.appender.now_ms = max(self._runtime.clock.now_ms(), outcome.last_timestamp)
        if crashed:
            logger.warning(
                "recovered after an unclean stop: %d records read from %d, log ends at %d, %d bytes cut%s",
                outcome.records, start, outcome.end_offset, outcome.cut_bytes,
                ", all consume queues rebuilt" if outcome.rebuilt else "",
            )  # fmt: skip

    def _open_index(self, crashed: bool, checkpoint: Checkpoint) -> None:
        config = self.config
        if not config.index:
            return
        self.index = MessageIndex(
            self._runtime,
            config.index_path,
            config.index_slots,
            config.index_entries,
            self._files,
            lambda: self.appender.turn_base,
            self._reader.store_time_at,
        )
        self.index.load(
            crashed=crashed, sealed_time=checkpoint.index_timestamp, position=checkpoint.index_offset
        )

    def _recovery_start(self, checkpoint: Checkpoint, crashed: bool) -> int:
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
            first = self._first_record_time(start)
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
        found = read_record(view, at, offset, code_of=self._tags_code_of, check_crc=False)
        return found is not None or not view[at : at + 8].tobytes().strip(b"\0")

    def _first_record_time(self, start: int) -> int | None:
        segment = self._files.segment(start)
        if segment is None:
            return None
        found = read_record(segment.view(), 0, start, code_of=self._tags_code_of, check_crc=False)
        return None if found is None or isinstance(found, int) else found.store_timestamp

    async def stop(self) -> None:
        """Take no more messages; write, flush and close everything."""
        if self._unlock is None:
            return
        self._refusal = "it is stopped"
        self._tell_accepting()
        self._stopping = True
        for task in self._resting:
            task.cancel()
        # A step under way goes to its end: its thread could not be stopped anyhow.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        indexed = await self._end_index()
        await self.log.stop()
        try:
            if self.log.write_error is None and self.flusher.error is None:
                await self._checkpoint()
                await self._note_index(indexed)
                self._runtime.files.remove(f"{self.config.root}/abort")
        except OSError as error:
            logger.error("the store did not stop cleanly, the next start recovers it: %s", error)
        finally:
            self._close_files()

    async def _end_index(self) -> int:
        """End the index's work; returns up to where it is on the device, -1 when that is unknown."""
        if self.index is None:
            return -1
        try:
            await self.index.stop()
        except OSError as error:
            logger.error("the message index is not on the device: %s", error)
            return -1
        return self.index.position

    async def _note_index(self, indexed: int) -> None:
        if indexed >= 0:
            now, safe = self.appender.now_ms, self._safe_offset
            final = Checkpoint(now, now, self._indexed_time(), 0, safe, safe, indexed)
            await self._runtime.threads.run(self._write_checkpoint, final)

    def _indexed_time(self) -> int:
        return self.index.sealed_time if self.index is not None else 0

    def _close_files(self) -> None:
        if self.index is not None:
            self.index.close()
            self.index = None
        self.queues.close()
        self._files.close()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    # -- background ------------------------------------------------------------------------------------

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
                logger.error("%s of the store failed, it is tried again: %s", step.__name__.strip("_"), error)

    async def _flush_pass(self) -> None:
        if not self.config.sync_flush and self.flusher.error is None:
            await self.flusher.flush()

    async def _checkpoint(self) -> None:
        """Bring log and queues to the device, then write down how far they are."""
        if self.log.write_error is not None or self.flusher.error is not None:
            return
        target, now = self.flusher.written, self.appender.now_ms
        if target == self._safe_offset and self._runtime.files.exists(f"{self.config.root}/checkpoint"):
            return
        segments = self.queues.save_all()
        if self.flusher.flushed < target:
            await self.flusher.flush()
            if self.flusher.flushed < target:
                return
        await self._runtime.threads.run(_sync_all, segments)
        self.queues.saved()
        if target < self._safe_offset:
            return  # a topic was dropped meanwhile
        self._safe_offset = target
        self._next_checkpoint = Checkpoint(now, now, self._indexed_time(), 0, target, target)
        self._writing_checkpoint = True
        try:
            while self._next_checkpoint is not None:
                following, self._next_checkpoint = self._next_checkpoint, None
                await self._runtime.threads.run(self._write_checkpoint, following)
        except OSError:
            self._safe_offset = -1  # nothing says it on disk: write it again
            raise
        finally:
            self._writing_checkpoint = False

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._runtime, f"{self.config.root}/checkpoint", checkpoint)

    def clean(self) -> None:
        """Delete expired log files now, whatever the hour, and what consume queues say of them."""
        self._clean(any_hour=True)
        self.queues.drop_below(self._files.first)

    def _clean(self, *, any_hour: bool = False) -> None:
        """One pass of retention; also tries a failed write again when there is room."""
        self.update_clock()
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
            self.refuse(
                f"the disk of {self.config.root} is {used:.0%} full, "
                f"the limit is {self.config.disk_full_ratio:.0%}"
            )
        elif self._refusal is not None and self.flusher.error is None and not self._stopping:
            self._try_again()

    def _finished_times(self) -> list[int]:
        """When the last message of each full file was stored: just before the first of the next file.

        Only of files that are on the device as a whole: a flush may be at work on the others.
        """
        times: list[int] = []
        following: int | None = None
        for start in reversed(self._files.starts()[1:]):
            if start >= self.flusher.written:
                # Nothing is there yet; to look would need a page, which a full disk in memory does not have.
                continue
            stored = self._first_record_time(start)
            if stored is not None and stored > 0:
                following = stored
            if following is not None and start <= self.flusher.flushed:
                times.append(following)
        return times[::-1]

    def _delete_files(self, count: int) -> None:
        try:
            for _ in range(count):
                logger.info("deleted expired commit log file %s", self._files.remove_first())
        finally:
            self.log.refresh_maps()
        self.queues.drop_below(self._files.first)
        if self.index is not None:
            self.index.drop_below(self._files.first)

    def _try_again(self) -> None:
        """Do what the disk refused, and take messages again when it is done."""
        try:
            self.log.try_again()
            self.queues.write_all()
        except StoreClosedError as error:
            self.refuse(str(error))
        except OSError as error:
            self._index_failed(error)
        else:
            self._accept()

    def _index_failed(self, error: OSError) -> None:
        self.refuse(f"the consume queues could not be written ({error}); it is tried again")

    # -- taking messages or not ------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether messages are taken now; see :attr:`refusal`."""
        return self._refusal is None

    @property
    def refusal(self) -> str | None:
        """Why no message is taken, as a clause: "the disk of /x is 91% full, the limit is 90%"."""
        return self._refusal

    def refuse(self, reason: str) -> None:
        if self._refusal is None:
            logger.warning("the store takes no messages: %s", reason)
        self._refusal = reason
        self._tell_accepting()

    def _accept(self) -> None:
        logger.info("the store takes messages again")
        self._refusal = None
        self._tell_accepting()

    def _tell_accepting(self) -> None:
        if self.on_accepting is not None:
            self.on_accepting(self._refusal is None)

    def _write_failed(self, error: OSError) -> None:
        self.refuse(f"the commit log could not be written ({error}); it is tried again")

    def _flush_failed(self, error: BaseException) -> None:
        self.refuse(
            f"a flush of the commit log failed ({error}); restart the broker after repairing the disk"
        )

    # -- topics ----------------------------------------------------------------------------------------

    def set_topic(self, topic: str, *, read_queues: int, write_queues: int, perm: int) -> None:
        """Make the topic known, or change its numbers. Needed before :meth:`put` and :meth:`get`."""
        self.queues.set_topic(topic, read_queues, write_queues, perm)

    def drop_topic(self, topic: str) -> None:
        """Delete the topic's queues. Its records stay in the log until that is cleaned."""
        self.log.end_turn()
        self.queues.drop_topic(topic)
        # Recovery must not read the dropped records again: it starts at the safe offset.
        _sync_all(self.queues.save_all())
        self.queues.saved()
        self.flusher.flush_blocking()
        if self.flusher.error is not None:
            return
        now, safe = self.appender.now_ms, self.flusher.written
        checkpoint = Checkpoint(now, now, self._indexed_time(), 0, safe, safe)
        if self._writing_checkpoint:
            self._next_checkpoint = checkpoint
        else:
            self._write_checkpoint(checkpoint)
        self._safe_offset = safe

    def drop_unknown_topics(self) -> list[str]:
        """Delete queues on disk that belong to no topic that was set; the names of their topics."""
        unknown = self.queues.unknown_topics()
        for topic in unknown:
            self.drop_topic(topic)
        return unknown

    def watch(self, topic: str, queue_id: int, *, on: bool = True) -> None:
        """Ask for ``on_arrival`` when the queue gets messages."""
        row = self.queues.row(topic, queue_id)
        if row >= 0:
            self.appender.set(row, table.Q_WATCHED, 1 if on else 0)

    def _arrived(self, rows: list[int]) -> None:
        if self.on_arrival is None:
            return
        for row in rows:
            known, queue_id, _ = self.queues.of_row(row)
            self.on_arrival(known.topic, queue_id, self.appender.get(row, table.Q_VISIBLE))

    # -- put -------------------------------------------------------------------------------------------

    def update_clock(self) -> int:
        """Set the store time of what is put next; returns it, ms."""
        now = self._runtime.clock.now_ms()
        # Search by time needs store times that never go back, whatever the wall clock does.
        if now > self.appender.now_ms:
            self.appender.now_ms = now
        return self.appender.now_ms

    def put(self, message: NewMessage) -> PutResult:
        """Append one message.

        Raises:
            StoreClosedError: no messages are taken now; the text says why.
            UnknownQueueError: the topic has no such queue here.
        """
        return self.put_many([message])

    def put_many(self, messages: list[NewMessage]) -> PutResult:
        """Append messages one after the other, nothing between them; the result speaks of the first.

        Raises: as :meth:`put`.
        """
        if self._refusal is not None:
            raise StoreClosedError(f"the store takes no messages: {self._refusal}")
        if not messages:
            raise ValueError("no messages to put")
        rows = [self._row(message) for message in messages]
        self.update_clock()
        self._make_room_for(messages)
        host, port = self.config.store_host
        physical: list[int] = []
        first_offset = self.appender.get(rows[0], table.Q_NEXT)
        for row, message in zip(rows, messages, strict=True):
            physical.append(self._append(row, message))
        self.log.schedule()
        ids = ",".join(offset_message_id(host, port, offset) for offset in physical)
        return PutResult(PutStatus.OK, first_offset, physical[0], self.log.end, ids)

    def _row(self, message: NewMessage) -> int:
        row = self.queues.row(message.topic, message.queue_id)
        if row < 0:
            known = self.queues.topics.get(message.topic)
            detail = f"it has {len(known.rows)} queues" if known else "the topic is unknown to the store"
            raise UnknownQueueError(f"no queue {message.queue_id} of topic {message.topic}: {detail}")
        return row

    def _make_room_for(self, messages: list[NewMessage]) -> None:
        """Start a new turn, and a new file, when the messages do not fit as a whole."""
        size = sum(
            self.appender.record_bytes(len(m.body), len(m.topic.encode()), len(m.properties), 20)
            for m in messages
        )
        if size > self.appender.turn_room or size + 8 > self.config.commit_log_file_bytes:
            limit = min(self.appender.turn_room, self.config.commit_log_file_bytes - 8)
            raise StoreClosedError(
                f"messages of {size} bytes are larger than the store's limit of {limit} bytes"
            )
        if self.appender.turn_used + size > self.appender.turn_room:
            self.log.end_turn()
        if self.log.end + size + 8 > self.appender.file_end:
            self.log.roll()

    def _append(self, row: int, m: NewMessage) -> int:
        code = m.tags_code
        if m.deliver_after_ms is not None:
            code = self.appender.now_ms + m.deliver_after_ms
        for _ in range(2):
            physical = self.appender.append_message(
                row, m.queue_id, m.flag, m.sys_flag, m.born_timestamp, self._packed(m.born_host),
                m.reconsume_times, m.prepared_transaction_offset, m.body, m.topic.encode(), m.properties,
                code,
            )  # fmt: skip
            if physical >= 0:
                return physical
            self.make_room(physical, row)
        raise StoreClosedError(f"no room for a record of {len(m.body)} bytes (reason {physical})")

    def make_room(self, reason: int, row: int) -> None:
        """Do what the appender asked for with NO_ROOM, ROLL or TAIL_FULL.

        Raises:
            StoreClosedError: the disk refused.
        """
        if reason == table.TAIL_FULL:
            self.appender.prepare_tail(row)
            try:
                self.queues.save_unfinished(row)
            except OSError as error:
                self._index_failed(error)
                raise StoreClosedError(f"the store takes no messages: {self._refusal}") from error
        elif reason == table.ROLL:
            self.log.roll()
        else:
            self.log.end_turn()

    def _packed(self, host: tuple[str, int]) -> bytes:
        packed = self._born_cache.get(host)
        if packed is None:
            if len(self._born_cache) > 4096:
                self._born_cache.clear()
            packed = self._born_cache[host] = pack_host(host)
        return packed

    def write(self) -> None:
        """Write what was put in this turn, without waiting for the device.

        Raises:
            StoreClosedError: the disk refused.
        """
        self.log.end_turn()

    async def stored(self, end_offset: int) -> PutStatus:
        """Wait until the log is safe up to ``end_offset`` by the rules of the flush mode.

        Raises:
            StoreClosedError: the disk failed; whether the message survives is unknown.
        """
        return await self.flusher.stored(end_offset)

    # -- get -------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = 262144,
        tags: frozenset[int] | None = None,
    ) -> GetResult:
        """Read up to ``max_count`` messages from ``offset``, at least one however large it is.

        Args:
            tags: only messages whose tags code is among these; ``None``: all.
        """
        return self._reader.get(topic, queue_id, offset, max_count, max_bytes, tags)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest offset still stored; 0 for an unknown queue."""
        row = self.queues.row(topic, queue_id)
        return self.appender.get(row, table.Q_MIN) if row >= 0 else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the newest visible message; 0 for an unknown queue."""
        row = self.queues.row(topic, queue_id)
        return self.appender.get(row, table.Q_VISIBLE) if row >= 0 else 0

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """(commit log offset, size, tags code) of a visible message, ``None`` when it is not there."""
        row = self.queues.row(topic, queue_id)
        return self._reader.entry(row, offset) if row >= 0 else None

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message was stored, ms; -1 when it is not there."""
        row = self.queues.row(topic, queue_id)
        return self._reader.store_time(row, offset) if row >= 0 else -1

    @property
    def earliest_store_time(self) -> int:
        """When the oldest message of the log was stored, ms; -1 when there is none."""
        return self._reader.store_time_at(self._files.first)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """See ``Reader.offset_by_time``; 0 for an unknown queue."""
        row = self.queues.row(topic, queue_id)
        return self._reader.offset_by_time(row, timestamp_ms, upper=upper) if row >= 0 else 0

    def record_at(self, commit_log_offset: int) -> bytes | None:
        """The whole record that begins at this place of the log."""
        return self._reader.record_at(commit_log_offset)

    @property
    def min_commit_log_offset(self) -> int:
        return self._files.first

    @property
    def max_commit_log_offset(self) -> int:
        """The end of what is written to the log's files."""
        return self.appender.turn_base

    @property
    def flushed_offset(self) -> int:
        return self.flusher.flushed


def _sync_all(segments: list[Segment]) -> None:
    for segment in segments:
        segment.sync()


def pack_host(host: tuple[str, int]) -> bytes:
    """An address and port as a record keeps them: 8 bytes for IPv4, 20 for IPv6."""
    address, port = host
    return pack_ip(address) + (port & 0xFFFFFFFF).to_bytes(4, "big")
