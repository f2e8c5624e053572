"""Transactions: half messages, their commit or roll-back, and checks at the producers of open ones.

On disk this is RocketMQ's scheme (TransactionalMessageServiceImpl): a half topic, an op topic whose messages
mark finished half messages, and the progress of group CID_RMQ_SYS_TRANS in both. Every half message gets a
mark in the write batch in which its transaction ends, or in the next one, so that no ended transaction is
checked. The end is answered when the mark is as safe as a sent message: one mark, and one flush,
for all transactions that end together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.role import LEADING, TAKES_MESSAGES, RoleState
from orbitmq.broker.transactions import forms as messages
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.broker.transactions.half_table import Half
from orbitmq.broker.transactions.reading import HALF as _HALF
from orbitmq.broker.transactions.reading import HalfQueue, HalfReader
from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore, NewMessage, PutResult
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import CheckTransactionStateRequest, EndTransactionRequest

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
MAX_UNFINISHED = 500_000
# A half message that may not be checked yet is copied after this time, so that the progress moves on.
HOLD_MS = 600_000
_HOUR_MS = 3_600_000
_ASK_SLICE = 200


class _Summary:
    """Log lines about transactions: one line per tick for all that have the same event."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, str]] = {}

    def warn(self, text: str, unique_id: str) -> None:
        self._counts[text] = (self._counts.get(text, (0, ""))[0] + 1, unique_id)

    def flush(self) -> None:
        for text, (count, unique_id) in self._counts.items():
            more = f" and {count - 1} more" if count > 1 else ""
            log.warning("transaction %s%s: %s", unique_id, more, text)
        self._counts.clear()


def _check_message(request: EndTransactionRequest, properties: Mapping[str, str]) -> None:
    """Refuse to end a message other than the one that the request describes."""
    for what, asked, name in (
        ("topic", request.topic, property_names.REAL_TOPIC),
        ("message id", request.msg_id, property_names.UNIQ_KEY),
    ):
        if properties.get(name) != asked:
            raise NoTransactionError(f"the half message is not that of {what} {str(asked)[:128]!r}")


class NoTransactionError(RemotingError):
    """The request names no transaction that can be ended."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class Transactions(Component):
    """The transactions of one broker.

    Args:
        host: this broker's address, which is written into marks.
        role: checked before each check-back: after a freeze another broker may own all due transactions.
    """

    name = "transactions"
    runs_as = LEADING & TAKES_MESSAGES

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        store: MessageStore,
        append: MessageAppend,
        metadata: MetadataAccess,
        queue: HalfQueue,
        escaped: EscapedHalves,
        clients: ClientManager,
        host: tuple[str, int],
        role: RoleState,
        counts: Counts,
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._config = config
        self._store = store
        self._append = append
        self._metadata = metadata
        self._queue = queue
        self._escaped = escaped
        self._handed_on: list[int] = []
        self._clients = clients
        self._host = host
        self._role = role
        self._halves = HalfReader(queue, config, HOLD_MS, self._mark)
        self._unmarked: list[int] = []
        self._marking = False
        # The result of putting the next marks, or why they were not put; ends of transactions await it.
        self._marked: asyncio.Future[PutResult | RemotingError] | None = None
        self._loading = False
        self._tell = _Summary()

    # -- starting ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._load()
        self._every(self._clock, TICK_SECONDS, self.tick)

    async def stop(self) -> None:
        """Write the marks that wait."""
        await self.end_work()
        self._write_marks()

    async def _load(self) -> None:
        """Load the committed progress, and the marks behind it.

        Nothing is loaded while the disk refuses marks: only the table in memory has them, and no other broker
        writes the log.
        """
        self._loading = True
        try:
            if not self._store.has_unwritten:
                self._halves.table, self._halves.marks = await self._queue.load()
                for offset in self._unmarked:
                    self._halves.table.finish(offset)
            # Half messages that another broker took over while this one was away are ended here.
            self._handed_on = [offset for offset in self._escaped if offset < self._queue.end]
            self._halves.elsewhere = await self._queue.origins(self._handed_on)
            for offset in self._handed_on:
                self._finish(offset)
        finally:
            self._loading = False

    @property
    def half_messages(self) -> Mapping[str, int]:
        """How many half messages are unfinished, by topic, without some of those from the last second."""
        return self._halves.table.by_topic

    def log_cut(self) -> None:
        """Drop marks that are not written yet: the log was cut, and their transactions may be open again."""
        self._unmarked.clear()

    # -- the first half ----------------------------------------------------------------------------------

    def prepare(self, message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
        """The append hook that turns a prepared message into a half message.

        Raises:
            RemotingError: NO_PERMISSION with ``rejectTransactionMessage``; SYSTEM_BUSY, too many transactions
                are unfinished.
        """
        if not messages.is_prepared(message, properties):
            return message
        config = self._config
        if config.reject_transaction_message:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending transaction message is forbidden",
            )
        unfinished = self._halves.table.unfinished(self._store.max_offset(_HALF, 0))
        if unfinished >= MAX_UNFINISHED:
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"[TRANSACTION]broker busy: {unfinished} transactions of broker {config.broker_name} are "
                f"neither committed nor rolled back, the limit is {MAX_UNFINISHED}",
            )
        return messages.half_message(message, properties)

    # -- the end -----------------------------------------------------------------------------------------

    def end(self, request: EndTransactionRequest, *, exact: bool = False) -> bool:
        """Commit or roll back; :meth:`marked` returns when the mark of the end is put.

        Args:
            exact: whether topic and message id of the request must also be those of the half message.

        Returns:
            Whether the transaction has ended; ``False``: its producer has not decided yet.

        Raises:
            NoTransactionError: the request names no half message, or one that has ended or does not fit the
                request's other fields.
            RemotingError: the end comes too late, or the final message cannot be stored; then the transaction
                stays unfinished.
        """
        state = request.commit_or_rollback
        if state not in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
            return False
        if self._loading:
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                "this broker still reads which transactions have ended: the next check includes this one",
            )
        record = self._half_record(request)
        properties = decode_properties(record.properties)
        self._check_end(request, record, properties)
        if exact:
            _check_message(request, properties)
        origin = messages.origin(record.queue_offset, properties)
        offset = self._halves.table.current(record.queue_offset, origin)
        if offset is None:
            raise NoTransactionError(
                f"the transaction of half message {record.queue_offset} ({request.msg_id}) has ended already"
            )
        # Schedule the marks first: normally they get into the same write batch, behind the message.
        self._schedule_marks()
        if state == sysflag.TRANSACTION_COMMIT:
            message, judged = messages.final_message(record, properties)
            self._append.put(message, judged)
        age_ms = self._clock.now_ms() - record.born_timestamp
        topic = properties.get(property_names.REAL_TOPIC, "")
        self._counts.ended(topic, age_ms, committed=state == sysflag.TRANSACTION_COMMIT)
        self._finish(offset)
        return True

    def marked(self) -> Awaitable[PutResult | RemotingError]:
        """Wait until the marks of all transactions that have ended are put, behind the final messages.

        Returns:
            The last mark, or why the marks have to wait: in that case a broker that starts again checks these
            transactions once more.
        """
        if self._marked is None:
            self._marked = asyncio.get_running_loop().create_future()
        return self._marked

    def _half_record(self, request: EndTransactionRequest) -> Record:
        stored = self._store.record_at(request.commit_log_offset)
        record = decode_record(stored) if stored is not None else None
        if record is None or record.topic != _HALF:
            raise NoTransactionError(
                "Find prepared transaction message failed: "
                f"none at commitLogOffset {request.commit_log_offset}"
            )
        return record

    def _check_end(
        self, request: EndTransactionRequest, record: Record, properties: Mapping[str, str]
    ) -> None:
        """Refuse an end as EndTransactionProcessor.checkPrepareMessage and rejectCommitOrRollback do."""
        group = properties.get(property_names.PRODUCER_GROUP)
        if group != request.producer_group:
            raise NoTransactionError(
                f"The producer group wrong: {request.producer_group}, the message is of {group}"
            )
        if record.queue_offset != request.tran_state_table_offset:
            raise NoTransactionError(
                f"The transaction state table offset wrong: {request.tran_state_table_offset}, "
                f"the message is at {record.queue_offset}"
            )
        if request.from_transaction_check or not messages.has_immunity(properties):
            return
        limit = messages.immunity_ms(properties, self._config.transaction_timeout_ms)
        age = self._clock.now_ms() - record.born_timestamp
        if age > limit:
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction ends {age} ms after its message was made, its "
                f"{property_names.CHECK_IMMUNITY_TIME_IN_SECONDS} is {limit} ms: "
                "the answer to the next check decides",
            )

    def _finish(self, offset: int) -> None:
        self._halves.table.finish(offset)
        self._mark(offset)

    # -- marks -------------------------------------------------------------------------------------------

    def _mark(self, offset: int) -> None:
        self._unmarked.append(offset)
        self._schedule_marks()

    def _schedule_marks(self) -> None:
        if not self._marking:
            self._marking = True
            asyncio.get_running_loop().call_soon(self._write_marks)

    def _write_marks(self) -> None:
        self._marking = False
        outcome = self._put_marks()
        marked, self._marked = self._marked, None
        if marked is not None and not marked.done():
            marked.set_result(outcome)

    def _put_marks(self) -> PutResult | RemotingError:
        """Put the waiting marks; returns the last one, or why they still wait."""
        result: PutResult | RemotingError = RemotingError(
            ResponseCode.SERVICE_NOT_AVAILABLE, "the log was cut: the end of the transaction may be lost"
        )
        offsets, self._unmarked = self._unmarked, []
        if not offsets:
            return result
        made = messages.op_messages(
            offsets, self._config.transaction_op_max_bytes, self._clock.now_ms(), self._host
        )
        for at, (message, highest) in enumerate(made):
            try:
                result = self._append.put_many([message])
            except RemotingError as error:
                log.warning("marks of %d ended transactions wait: %s", len(offsets), error)
                for late, _ in made[at:]:
                    self._unmarked += messages.marked_offsets(late.body)
                return error
            self._halves.marks.note(result.queue_offset, highest)
        return result

    # -- checking ----------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Read new half messages, check those due, note the progress."""
        if self._unmarked:
            self._write_marks()
        await self._halves.read_new()
        try:
            await self._check_due()
        finally:
            self._tell.flush()
        self._note_progress()

    async def _check_due(self) -> None:
        now = self._clock.now_ms()
        while due := self._halves.table.due(now, _ASK_SLICE):
            for at, half in enumerate(due):
                if not self._role.leads:
                    for late in due[at:]:
                        self._halves.table.postpone(late, late.due_ms)
                    return
                try:
                    await self._check_half(half, now)
                except (RemotingError, OSError) as error:
                    if isinstance(error, RemotingError) and error.code == ResponseCode.MESSAGE_ILLEGAL:
                        self._tell.warn(f"it cannot be checked: {error}", half.unique_id)
                        self._halves.table.postpone(half, now + self._config.transaction_check_interval_ms)
                        continue
                    log.warning("checking transactions waits: %s", error)
                    for late in due[at:]:
                        self._halves.table.postpone(late, late.due_ms)
                    return
            await asyncio.sleep(0)

    async def _check_half(self, half: Half, now: int) -> None:
        if half not in self._halves.table:
            return
        if half.origin in self._halves.elsewhere:
            self._finish(half.offset)
            return
        stored = self._store.record_at(half.physical_offset)
        if stored is None:
            self._tell.warn("the half message is no longer stored", half.unique_id)
            self._finish(half.offset)
            return
        record = decode_record(stored)
        properties = decode_properties(record.properties)
        checks = messages.checks_so_far(properties)
        config = self._config
        too_old = now - record.born_timestamp > config.file_reserved_time_hours * _HOUR_MS
        until = self._halves.immune_until(record, properties)
        if checks >= config.transaction_check_max or too_old:
            await self._discard(half, record, properties, checks)
        elif not checks and messages.has_immunity(properties) and until > now:
            self._renew(half, record, properties, min(until, now + HOLD_MS))
        else:
            properties[property_names.TRANSACTION_CHECK_TIMES] = str(checks + 1)
            copy = self._renew(half, record, properties, now + config.transaction_check_interval_ms)
            self._send_check(copy, record, properties)

    async def _discard(self, half: Half, record: Record, properties: Mapping[str, str], checks: int) -> None:
        topic = reserved.TRANS_CHECK_MAX_TIME_TOPIC
        await self._metadata.inner_topic(topic, 1)
        if half not in self._halves.table:
            return
        if not self._role.leads:
            raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has no right to lead now")
        group, real_topic = (
            properties.get(property_names.PRODUCER_GROUP),
            properties.get(property_names.REAL_TOPIC),
        )
        self._tell.warn(
            f"group {group}, topic {real_topic}: not ended after {checks} checks, moved to {topic}",
            half.unique_id,
        )
        self._append.put_many([messages.discarded(record, properties)])
        self._finish(half.offset)

    def _renew(self, half: Half, record: Record, properties: dict[str, str], due_ms: int) -> Half:
        """Copy a half message to the end of its queue, so that the progress does not wait for it."""
        properties[property_names.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(half.origin)
        self._schedule_marks()
        result = self._append.put_many([messages.renewed(record, properties)])
        copy = replace(
            half, offset=result.queue_offset, physical_offset=result.commit_log_offset, due_ms=due_ms
        )
        self._halves.table.replace(half, copy)
        self._unmarked.append(half.offset)
        return copy

    def _send_check(self, half: Half, record: Record, properties: Mapping[str, str]) -> None:
        group = properties.get(property_names.PRODUCER_GROUP, "")
        header = CheckTransactionStateRequest(
            topic=_HALF,
            tran_state_table_offset=half.offset,
            commit_log_offset=half.physical_offset,
            msg_id=half.unique_id or None,
            transaction_id=half.unique_id or None,
            offset_msg_id=offset_message_id(*record.store_host, half.physical_offset),
            bname=self._config.broker_name,
        )
        body = messages.question(record, properties, half.offset, half.physical_offset)
        producers = self._clients.producers(group)
        # Each check of a transaction goes to another producer of the group.
        first = half.origin + messages.checks_so_far(properties)
        for at in range(len(producers)):
            # If a producer's connection has just closed, try the next producer.
            with suppress(TransportError):
                producers[(first + at) % len(producers)].peer.oneway(header.command(body))
                return
        self._tell.warn(f"no producer of group {group} is there to be asked", half.unique_id)

    def _note_progress(self) -> None:
        """Commit the progress; when its marks are durable, remove half messages that a slave handed on."""
        if self._queue.note(self._halves.table, self._halves.marks, all_marked=not self._unmarked):
            handed_on, self._handed_on = self._handed_on, []
            for offset in handed_on:
                self._escaped.remove(offset)

    # -- an administrator --------------------------------------------------------------------------------

    def resume(self, record: Record) -> PutResult:
        """Check a discarded half message again from the start (RESUME_CHECK_HALF_MESSAGE).

        Raises:
            RemotingError: the message is not a half message, or the store takes no messages.
        """
        properties = decode_properties(record.properties)
        if property_names.REAL_TOPIC not in properties or property_names.PRODUCER_GROUP not in properties:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"message {record.message_id} of topic {record.topic} is no half message",
            )
        properties[property_names.TRANSACTION_CHECK_TIMES] = "0"
        return self._append.put_many([messages.renewed(record, properties)])
