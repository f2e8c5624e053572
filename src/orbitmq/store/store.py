"""The interface of the message store: put, get, look up, start and stop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from orbitmq.runtime import Runtime
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import StoreClosedError
from orbitmq.store.filter import PASS_ALL, MessageFilter
from orbitmq.store.index.index import MessageIndex
from orbitmq.store.lifecycle import StoreLifecycle
from orbitmq.store.log.append import Writer, pack_host
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.files import LogFiles, touch
from orbitmq.store.log.flush import Flusher
from orbitmq.store.log.raw import RawLog
from orbitmq.store.model import GetResult, NewMessage, PutResult
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.lookup import Lookup
from orbitmq.store.queues.queues import Queues, StoredTopic
from orbitmq.store.queues.reading import Reader
from orbitmq.store.queues.reput import TagsCodeOf
from orbitmq.store.queues.topic_incarnations import TopicIncarnations
from orbitmq.store.raw_append import RawAppend
from orbitmq.store.recovery.recovery import Recovered
from orbitmq.store.upkeep.background import Upkeep
from orbitmq.store.upkeep.held import HeldFiles
from orbitmq.store.writable import WriteGate

logger = logging.getLogger(__name__)

OUTPUT_BYTES = 1 << 20
# How often to check whether the disk takes bytes that it refused.
WRITTEN_LOOK_S = 0.1
Arrival = Callable[[str, int, int], None]


class MessageStore:
    """Messages of all topics in one log. Not thread-safe: it belongs to one event loop.

    A message put is visible to :meth:`get` when the current iteration of the event loop ends, and safe by the
    rules of the flush mode when :meth:`stored` returns.

    Args:
        codes: topics whose consume queue entries hold another number than the hash of the tags (a delivery
            time), with the function that gives it.
        on_arrival: called with topic, queue id and end of a watched queue that got messages.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        *,
        codes: Mapping[str, TagsCodeOf] | None = None,
        on_arrival: Arrival | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._codes = codes or {}
        self._on_arrival = on_arrival
        self._now_ms = runtime.clock.now_ms
        self.write_gate = WriteGate()
        self.appender = Appender(
            config.batch_bytes,
            config.tail_entries,
            config.commit_log_file_bytes,
            pack_host(config.store_host),
        )
        self.lookup = Lookup(self.appender)
        self._files = LogFiles(runtime, config.commit_log_path, config.commit_log_file_bytes)
        self.flusher = Flusher(
            runtime,
            sync=config.sync_flush,
            segments=self._files.between,
            failed=self.write_gate.flush_failed,
            end_batch_soon=lambda: self.schedule(),
        )
        self.log = CommitLog(
            runtime,
            self._files,
            self.appender,
            self.lookup,
            self.flusher,
            self._arrived,
            self.write_gate.write_failed,
        )
        self.queues = Queues(runtime, config, self.appender, self.lookup)
        self.schedule = self.log.schedule
        self.map_entries = self.queues.map_entries
        self._reader = Reader(self.queues, self._files, self.appender, self.lookup, self._codes, OUTPUT_BYTES)
        self.incarnations = TopicIncarnations(self.queues, self.appender, self._reader, self.update_clock)
        self._writer = Writer(
            config, self.queues, self.log, self.appender, self.write_gate, self.update_clock, self._now_ms
        )
        self.held = HeldFiles(config.commit_log_file_bytes)
        self._upkeep = Upkeep(
            runtime,
            config,
            self._files,
            self.appender,
            self.log,
            self.queues,
            self.flusher,
            self.write_gate,
            update_clock=self.update_clock,
            held=self.held,
        )
        self._raw = RawAppend(
            runtime,
            self.log,
            self.queues,
            self.appender,
            self.flusher,
            self._upkeep,
            self._codes,
        )
        self.raw = RawLog(runtime, self._files, lambda: self.appender.batch_base, self.log.in_memory)
        self._lifecycle = StoreLifecycle(
            runtime,
            self._files,
            self.appender,
            self.log,
            self.queues,
            self.flusher,
            self._reader,
            self._upkeep,
            self.write_gate,
            self._codes,
            self.incarnations,
        )
        # Log offsets at which the log was cut while it was open, in order: data derived from it before must
        # be checked.
        self.cuts: list[int] = []

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock the folder, recover, open for messages.

        Raises:
            StoreLockedError: another broker uses the folder.
            StoreError: the files do not fit the configuration.
            OSError: the disk refused.
        """
        await self._lifecycle.start()

    async def stop(self) -> None:
        """Take no more messages; write, flush and close everything."""
        await self._lifecycle.stop()

    @property
    def recovered(self) -> Recovered | None:
        """The result of the last start, ``None`` before the first."""
        return self._lifecycle.recovered

    @property
    def percent_read(self) -> int | None:
        """Percent of the log that recovery has read; ``None`` when no recovery runs."""
        return self._lifecycle.percent_read

    @property
    def crashed(self) -> bool:
        """Whether the stop before the last start was not clean."""
        return self._lifecycle.crashed

    def count_crash(self, counts: bool) -> None:
        """Set whether the next start must treat this run's stop as a crash, even if it is clean."""
        self._lifecycle.crash_counts = counts and self.crashed

    def stop_as_crash(self) -> None:
        """Let the next start search for deliveries even after a clean stop: their progress is not on the
        disk."""
        self._lifecycle.crash_counts = True

    @property
    def config(self) -> StoreConfig:
        """The settings. While the store runs they may be replaced: new times, limits and addresses take
        effect."""
        return self._config

    @config.setter
    def config(self, config: StoreConfig) -> None:
        self._config = self._upkeep.config = self._writer.config = config

    def clean(self) -> None:
        """Delete expired log files now, whatever the hour, and the consume queues' entries for them."""
        self._upkeep.clean_now()

    # -- taking messages or not ------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether messages are taken now; see :attr:`refusal`."""
        return self.write_gate.refusal is None

    @property
    def refusal(self) -> str | None:
        """Why no message is taken, as a clause: "the disk of /x is 91% full, the limit is 90%"."""
        return self.write_gate.refusal

    def refuse(self, reason: str) -> None:
        """Refuse messages until cleaning finds that the disk works again."""
        self.write_gate.refuse(reason)

    @property
    def index(self) -> MessageIndex | None:
        """The message index, while the store is open and has one."""
        return self._upkeep.index

    # -- topics ----------------------------------------------------------------------------------------

    def set_topic(self, topic: str, *, read_queues: int, write_queues: int, perm: int) -> None:
        """Make the topic known, or change its numbers. Needed before :meth:`put` and :meth:`get`."""
        self.queues.set_topic(topic, read_queues, write_queues, perm)

    def find_topic(self, topic: str) -> StoredTopic | None:
        """The slots of a topic's queues; ``None``: the topic was not set."""
        return self.queues.topics.get(topic)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the topic was set and has such a queue."""
        return self.queues.slot(topic, queue_id) >= 0

    def drop_topics(self, topics: Iterable[str]) -> None:
        """Delete the queues of topics. Their records stay in the log until that is cleaned.

        The queues are gone even if the disk refuses; then a crash before the next checkpoint may bring them
        back.
        """
        try:
            self.log.end_batch()
        except StoreClosedError as error:
            logger.warning("topics are deleted while messages wait: %s", error)
        for topic in topics:
            self.incarnations.forget(topic)
            try:
                self.queues.drop_topic(topic)
            except OSError as error:
                logger.error("the queues' files of the deleted topic %s are still there: %s", topic, error)
        try:
            # Recovery must not read the dropped records again: it starts at the safe offset.
            self._upkeep.checkpoint_now()
        except OSError as error:
            logger.error("what was deleted is in no checkpoint yet: %s", error)

    def drop_topic(self, topic: str) -> None:
        """:meth:`drop_topics` for one."""
        self.drop_topics((topic,))

    def drop_unknown_topics(self) -> list[str]:
        """Delete queues on disk whose topic was not set; returns these topics' names."""
        unknown = self.queues.unknown_topics()
        if unknown:
            self.drop_topics(unknown)
        return unknown

    def quiet_ends(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Topics with queues that had messages and have none now: queue ids and next offsets.

        No record of the log shows these offsets. Each topic is read when its turn comes.
        """
        for topic in self.queues.quiet_topics():
            if ends := self.queues.quiet_ends(topic):
                yield topic, ends

    def go_on_at(self, topic: str, queue_id: int, offset: int) -> bool:
        """Let an empty queue give its next message a later offset than it would: another copy of the log
        had messages there that this one never had. :meth:`keep_ends` makes the move durable.

        Returns:
            False: the topic was not set, or the queue has messages, or is that far already.
        """
        if topic not in self.queues.topics:
            return False
        slot = self.queues.register(topic, queue_id)
        return slot >= 0 and self.queues.go_on_at(slot, offset)

    async def keep_ends(self) -> None:
        """Return when the moves by :meth:`go_on_at` are on the device.

        Raises:
            OSError: the disk refused; the next checkpoint tries again.
        """
        await self._upkeep.keep_moved()

    def watch(self, topic: str, queue_id: int, *, on: bool = True) -> None:
        """Have ``on_arrival`` called when the queue gets messages."""
        slot = self.queues.slot(topic, queue_id)
        if slot >= 0:
            self.appender.set(slot, table.Q_WATCHED, 1 if on else 0)

    def _arrived(self, slots: list[int]) -> None:
        if self._on_arrival is None:
            return
        for slot in slots:
            known, queue_id = self.queues.of_slot(slot)
            try:
                self._on_arrival(known.topic, queue_id, self.appender.get(slot, table.Q_VISIBLE))
            except Exception:
                # The messages are written: no failure here may keep them from the device.
                logger.exception(
                    "queue %d of topic %s: a waiting reader was not notified of new messages",
                    queue_id,
                    known.topic,
                )

    def growth(self) -> dict[str, int]:
        """How many messages each topic got since the last call; topics that got none are left out."""
        grown: dict[str, int] = {}
        for slot, messages in self.appender.take_grown():
            topic = self.queues.of_slot(slot)[0].topic
            grown[topic] = grown.get(topic, 0) + messages
        return grown

    # -- put -------------------------------------------------------------------------------------------

    def update_clock(self) -> int:
        """Set the store time of messages put next; returns it, ms."""
        now = self._now_ms()
        appender = self.appender
        # Search by time needs store times that never go back, whatever the wall clock does.
        if now > appender.now_ms:
            appender.now_ms = now
        return appender.now_ms

    def put(self, message: NewMessage) -> PutResult:
        """Append one message.

        Raises:
            StoreClosedError: no messages are taken now; the text says why.
            UnknownQueueError: the topic has no such queue here.
            RecordTooLongError: a record has no room for its properties.
        """
        return self.put_many([message])

    def put_many(self, messages: list[NewMessage]) -> PutResult:
        """Append messages with no other message between them; the result is that of the first one.

        Raises: as :meth:`put`.
        """
        return self._writer.put_many(messages)

    def make_room(self, reason: int, slot: int) -> None:
        """Make the room that the appender lacks: its answer was NO_ROOM, ROLL or TAIL_FULL.

        Raises:
            StoreClosedError: the disk refused.
        """
        self._writer.make_room(reason, slot)

    def write(self) -> None:
        """Write the messages of this batch, without waiting for the device.

        Raises:
            StoreClosedError: the disk refused.
        """
        self.log.end_batch()

    @property
    def has_unwritten(self) -> bool:
        """Whether the disk refused messages but may still take them: until then no reader sees them."""
        refused = self.log.write_error is not None and self.flusher.error is None
        return refused and self.appender.batch_used > 0

    async def written(self) -> None:
        """Return when the messages put so far are in the log's files, or never will be."""
        with contextlib.suppress(StoreClosedError):
            self.write()
        while self.has_unwritten:
            await self._runtime.clock.sleep(WRITTEN_LOOK_S)

    async def flush(self) -> None:
        """Return when all bytes written by now are on the device, or the disk failed."""
        await self.flusher.flush()

    async def stored(self, end_offset: int) -> None:
        """Wait until the log is safe up to ``end_offset`` by the rules of the flush mode, without a limit.

        Raises:
            StoreClosedError: the disk failed; whether the message survives is unknown.
        """
        await self.flusher.stored(end_offset)

    async def bring_to_memory(self, places: Sequence[int]) -> None:
        """Load the records at these places of the log in a thread, so that later reads do not wait for the
        disk."""
        parts = self._files.parts_at(places)
        await self._runtime.threads.run(touch, self._runtime.files, parts)

    # -- copying the log ------------------------------------------------------------------------------

    def on_written(self, waker: Callable[[], None], *, first: bool = False) -> None:
        """Call ``waker`` after each write; a waker already registered is not added again.

        Args:
            first: whether to call it before all others.
        """
        wakers = self.log.wakers
        if waker not in wakers:
            wakers.insert(0 if first else len(wakers), waker)

    def off_written(self, waker: Callable[[], None]) -> None:
        """Undo :meth:`on_written`, if it was called."""
        if waker in self.log.wakers:
            self.log.wakers.remove(waker)

    def on_flushed(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` whenever a flush has ended, well or not."""
        self.flusher.watchers.append(watcher)

    def off_flushed(self, watcher: Callable[[], None]) -> None:
        """Undo :meth:`on_flushed`."""
        self.flusher.watchers.remove(watcher)

    def in_memory(self, offset: int) -> memoryview | None:
        """See ``CommitLog.in_memory``."""
        return self.log.in_memory(offset)

    @property
    def flush_error(self) -> BaseException | None:
        """Why nothing is flushed any more; ``None``: flushes work."""
        return self.flusher.error

    def check_flush(self) -> None:
        """See ``Flusher.check``."""
        self.flusher.check()

    def flush_soon(self, offset: int) -> None:
        """See ``Flusher.request_safe``."""
        self.flusher.request_safe(offset)

    # -- a master's log --------------------------------------------------------------------------------

    def append_raw(self, offset: int, data: bytes | memoryview) -> None:
        """Append the bytes that a master's log has at ``offset``; see ``RawAppend.append``.

        Raises:
            RawAppendError: the bytes do not continue this log, or are not undamaged records.
            StoreClosedError, OSError: the disk refused.
        """
        self._raw.append(offset, data)

    def refuse_raw(self) -> None:
        """Check whether bytes of a master would be refused.

        Raises:
            StoreClosedError: the disk refused the last bytes; the store tries again by itself.
        """
        if self.log.write_error is not None:
            raise StoreClosedError(f"the commit log could not be written: {self.log.write_error}")

    def drop_partial(self) -> None:
        """Forget bytes that a master sent behind the last whole record.

        Raises:
            StoreClosedError: the disk refused.
        """
        if self.log.received > self.appender.batch_base:
            self.log.drop_partial()

    @property
    def received_offset(self) -> int:
        """Where :meth:`append_raw` continues: after the last byte, which may lie within a record."""
        return max(self.log.received, self.appender.batch_base)

    async def truncate(self, to: int) -> None:
        """Remove all records from ``to`` on, from log, queues and index; durable on return.

        When no record is left, queues continue at the offset of their next record.

        The caller must allow no puts and reads meanwhile.

        Raises:
            RawAppendError: no record begins at ``to``.
            StoreClosedError, OSError: the disk refused.
        """
        try:
            await self._raw.truncate(to)
        finally:
            # Note the cut only after it was made: until then a reader may see records that are about to be
            # removed.
            self.cuts.append(to)

    # -- get -------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = 262144,
        filter: MessageFilter = PASS_ALL,
    ) -> GetResult:
        """Read up to ``max_count`` messages from ``offset``, at least one however large it is.

        Args:
            filter: which messages pass.
        """
        return self._reader.get(topic, queue_id, offset, max_count, max_bytes, filter)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest offset still stored; 0 for an unknown queue."""
        slot = self.queues.slot(topic, queue_id)
        return self.appender.get(slot, table.Q_MIN) if slot >= 0 else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the newest visible message; 0 for an unknown queue."""
        slot = self.queues.slot(topic, queue_id)
        return self.appender.get(slot, table.Q_VISIBLE) if slot >= 0 else 0

    def max_offsets(self, topic: str, queues: int) -> list[int]:
        """:meth:`max_offset` of the topic's first queues."""
        return self._of_queues(topic, queues, table.Q_VISIBLE)

    def topic_counts(self, topic: str) -> Sequence[int]:
        """The counts of the messages put into the topic since the start, as ``Appender.counts_of``; empty:
        none."""
        known = self.queues.topics.get(topic)
        return () if known is None or known.counts < 0 else self.appender.counts_of(known.counts)

    def _of_queues(self, topic: str, queues: int, column: int) -> list[int]:
        known, get = self.queues.topics.get(topic), self.appender.get
        slots = () if known is None else known.slots[:queues]
        found = [get(slot, column) if slot >= 0 else 0 for slot in slots]
        return found + [0] * (queues - len(found))

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """(commit log offset, size, tags code) of a visible message; ``None`` when it is not there."""
        slot = self.queues.slot(topic, queue_id)
        return self._reader.entry(slot, offset) if slot >= 0 else None

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message was stored, ms; -1 when there is no such message."""
        slot = self.queues.slot(topic, queue_id)
        return self._reader.store_time(slot, offset) if slot >= 0 else -1

    @property
    def earliest_store_time(self) -> int:
        """When the oldest message of the log was stored, ms; -1 when the log is empty."""
        return self._reader.store_time_at(self._files.first)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """See ``Reader.offset_by_time``; 0 for an unknown queue."""
        slot = self.queues.slot(topic, queue_id)
        return self._reader.offset_by_time(slot, timestamp_ms, upper=upper) if slot >= 0 else 0

    def record_at(self, commit_log_offset: int, *, damaged: bool = False) -> bytes | None:
        """See ``Reader.record_at``."""
        return self._reader.record_at(commit_log_offset, damaged=damaged)

    @property
    def min_commit_log_offset(self) -> int:
        return self._files.first

    @property
    def max_commit_log_offset(self) -> int:
        """The end of the log as it is written to its files."""
        return self.appender.batch_base

    @property
    def end(self) -> int:
        """The log offset behind the newest record, written or not."""
        return self.appender.end

    @property
    def flushed_offset(self) -> int:
        return self.flusher.flushed
