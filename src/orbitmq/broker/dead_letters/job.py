"""One running redrive: reads dead letters, puts them into the log as new messages, tracks which are put."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orbitmq.broker.dead_letters.forms import MAX_RANGES, DeadLetter, Ranges, sent_offsets
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.message.properties import MAX_PROPERTIES_BYTES
from orbitmq.message.record import Record, iter_records
from orbitmq.message.reserved import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX, dead_letter_topic
from orbitmq.runtime.seam import Clock, Threads
from orbitmq.store import GetStatus, MessageFilter, MessageStore, NewMessage, PutResult
from orbitmq.wire.bodies.redrive import Redrive, RedriveState
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

QUEUE = 0  # dead letters have one queue
BATCH = 256
BATCH_BYTES = 128 * 1024
SAVE_EVERY_S = 1.0
AGAIN_S = 1.0
MOST_UNSETTLED = 2048
# A job behind its rate catches up on the messages of this time at most.
CATCH_UP_S = 1.0


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts that jobs work with."""

    clock: Clock
    threads: Threads
    role: RoleState
    store: MessageStore
    append: MessageAppend
    topics: TopicConfigs

    def writable(self, topic: str) -> TopicConfig | None:
        """The config of a topic into which messages can be put; ``None``: they cannot."""
        config = self.topics.get(topic)
        if (
            config is None
            or not config.perm & PERM_WRITE
            or config.write_queue_nums < 1
            or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            or self.topics.is_system(topic)
        ):
            return None
        return config


class Job:
    """A redrive of one group.

    Args:
        save: saves a copy of the facts; called only with facts that are true for the log on the device.

    Attributes:
        facts: the job's progress; a running job's facts may be ahead of the saved ones.
        task: the running task, if there is one.
        search: whether the log may hold messages that this job sent and ``facts`` does not have.
    """

    def __init__(
        self, tools: Tools, facts: Redrive, save: Callable[[Redrive], object], *, search: bool
    ) -> None:
        self._tools = tools
        self._save_copy = save
        self.facts = facts
        self.done = Ranges(facts.done)
        only = facts.request.only
        self._only = None if only is None else Ranges(only)
        self.search = search
        self.task: asyncio.Task[None] | None = None
        self._sent: set[int] = set()
        self._last_put: PutResult | None = None
        self._unsettled = 0

    @property
    def at_work(self) -> bool:
        return self.task is not None and not self.task.done()

    async def written(self, limit_s: float) -> None:
        """Return when the work has ended, or after ``limit_s`` seconds."""
        if self.task is not None:
            await asyncio.wait([self.task], timeout=limit_s)

    @property
    def group(self) -> str:
        return self.facts.request.group

    # -- work ------------------------------------------------------------------------------------------

    async def run(self, filter: MessageFilter) -> None:
        """Send until all messages are sent, or the state is no longer RUNNING.

        Raises:
            RemotingError: the job cannot continue.
            StoreClosedError: the broker stops.
        """
        facts = self.facts
        if self.search:
            await self._find_sent()
        while True:
            await self._send(filter)
            await self.save()
            if facts.state is not RedriveState.RUNNING:
                return
            # The job was paused, and resumed while the pause was being written.

    async def _send(self, filter: MessageFilter) -> None:
        facts, clock = self.facts, self._tools.clock
        rate = facts.request.rate
        batch = BATCH if rate is None else max(1, min(BATCH, rate // 20))
        due = saved = clock.monotonic()
        while self._goes_on():
            if clock.monotonic() - saved >= SAVE_EVERY_S:
                saved = clock.monotonic()
                await self.save()
            messages = await self._step(filter, batch)
            if len(self.done) > MAX_RANGES:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"what was sent lies in more than {MAX_RANGES} places: choose by time, not by expression",
                )
            now = clock.monotonic()
            due = max(due, now - CATCH_UP_S) + (messages / rate if rate else 0.0)
            await clock.sleep(max(0.0, due - now))
        if facts.state is RedriveState.RUNNING:
            facts.state = RedriveState.DONE
            facts.ended_ms = clock.now_ms()

    def _goes_on(self) -> bool:
        facts = self.facts
        return facts.state is RedriveState.RUNNING and facts.position < facts.end and not self._enough()

    def _enough(self) -> bool:
        limit = self.facts.request.limit
        return limit is not None and self.facts.sent >= limit

    async def save(self) -> None:
        """Save the job's progress. The log is on the device first: messages lost there must be sent again."""
        await self._settle()
        await self._tools.store.flush()
        self.facts.log_offset = self._tools.store.end
        self._save_copy(self.copy())

    def copy(self) -> Redrive:
        """A copy of the facts as they are now."""
        return replace(self.facts, done=self.done.plain())

    async def _find_sent(self) -> None:
        """Count messages that the log shows as sent and the facts lack; then progress may be saved."""
        found = await self._sent_behind()
        self._sent = {offset for offset in found if offset not in self.done}
        for offset in sorted(self._sent):
            self.done.add(offset)
        self.facts.sent += len(self._sent)
        self.search = False

    async def _sent_behind(self) -> set[int]:
        """Dead letters that the log shows as sent and the facts do not have."""
        store = self._tools.store
        found: set[int] = set()
        at, end = max(self.facts.log_offset, store.min_commit_log_offset), store.max_commit_log_offset
        while (piece := store.raw.piece(at, end)) is not None:
            offsets, at = await self._tools.threads.run(sent_offsets, piece, self.group)
            found |= offsets
        return found

    async def _step(self, filter: MessageFilter, count: int) -> int:
        """Read some dead letters and send those that the request selects; returns how many were put."""
        facts = self.facts
        records, behind = self._read(filter, count)
        offsets, messages = self._sort_out(records)
        if messages:
            self._last_put = await self._put(messages)
            self._unsettled += len(messages)
            if self._unsettled >= MOST_UNSETTLED:
                await self._settle()
        facts.sent += len(offsets)
        for offset in offsets:
            self.done.add(offset)
        facts.filtered += behind - facts.position - len(records)
        facts.position = behind
        return len(messages)

    def _read(self, filter: MessageFilter, count: int) -> tuple[list[Record], int]:
        """The next dead letters, and the offset behind them."""
        facts = self.facts
        self._pass_over()
        if facts.position >= facts.end:
            return [], facts.end
        if facts.request.limit is not None:
            count = min(count, facts.request.limit - facts.sent)
        found = self._tools.store.get(
            dead_letter_topic(self.group), QUEUE, facts.position, count, max_bytes=BATCH_BYTES, filter=filter
        )
        if found.status in (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE):
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"the dead letters of group {self.group} are gone"
            )
        records = [one for one in iter_records(found.body) if one.queue_offset < facts.end]
        # The queue entry there may be under repair: then it is read once more.
        least = facts.position + (found.status is not GetStatus.MESSAGE_WAS_REMOVING)
        return records, min(max(found.next_offset, least), facts.end)

    def _pass_over(self) -> None:
        """Move on to the next dead letter that the request lists, if it lists any."""
        if self._only is None:
            return
        facts = self.facts
        wanted = self._only.next_from(facts.position)
        goes_on = facts.end if wanted is None else min(wanted, facts.end)
        facts.filtered += goes_on - facts.position
        facts.position = goes_on

    def _sort_out(self, records: Sequence[Record]) -> tuple[list[int], list[NewMessage]]:
        """The offsets of dead letters to send, and their messages; other dead letters are only counted."""
        facts = self.facts
        offsets: list[int] = []
        messages: list[NewMessage] = []
        for record in records:
            offset = record.queue_offset
            if offset in self._sent:
                self._sent.discard(offset)  # counted already
                continue
            if offset in self.done or (self._only is not None and offset not in self._only):
                facts.filtered += 1
                continue
            message = self._again(record)
            if message is not None:
                offsets.append(offset)
                messages.append(message)
        return offsets, messages

    def _again(self, record: Record) -> NewMessage | None:
        """The message to put; ``None``: the dead letter is not sent, but counted."""
        facts = self.facts
        letter = DeadLetter(record)
        topic = facts.request.to_topic or letter.topic
        config = None if topic is None else self._tools.writable(topic)
        if letter.redrives >= facts.request.max_redrives:
            facts.too_often += 1
        elif topic is None or config is None:
            facts.without_topic += 1
            facts.missing_topic = topic
        else:
            message = letter.again(topic, record.queue_offset % config.write_queue_nums, self.group)
            if len(message.properties) <= MAX_PROPERTIES_BYTES:
                return message
            facts.too_large += 1
        return None

    async def _put(self, messages: list[NewMessage]) -> PutResult:
        """Put the messages; while the broker takes no messages, try again until it does."""
        tools = self._tools
        while True:
            try:
                if not tools.role.leads:
                    raise RemotingError(
                        ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has no right to lead now"
                    )
                tools.append.check_open()
                result = tools.append.put_many(messages)
            except RemotingError as error:
                if error.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise
                self.facts.problem = error.remark
                await tools.clock.sleep(AGAIN_S)
            else:
                self.facts.problem = None
                return result

    async def _settle(self) -> None:
        """Wait until all messages put are as safe as those of a sender, also while the disk refuses."""
        while self._last_put is not None:
            try:
                await self._tools.append.settled(self._last_put)
            except RemotingError as error:
                self.facts.problem = error.remark
                await self._tools.clock.sleep(AGAIN_S)
            else:
                self.facts.problem = None
                self._last_put = None
                self._unsettled = 0

    async def count(self, filter: MessageFilter, limit_s: float) -> None:
        """Only count the messages that :meth:`run` would send, for some seconds at most."""
        facts, clock = self.facts, self._tools.clock
        ends = clock.monotonic() + limit_s
        while self._goes_on():
            if clock.monotonic() >= ends:
                facts.complete = False
                break
            records, behind = self._read(filter, BATCH)
            offsets, _ = self._sort_out(records)
            facts.sent += len(offsets)
            facts.filtered += behind - facts.position - len(records)
            facts.position = behind
            await asyncio.sleep(0)
        facts.state = RedriveState.DONE
