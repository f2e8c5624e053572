"""The writing half of a store: puts messages into the write batch and makes room for them."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.message.ids import offset_message_id, pack_ip
from orbitmq.message.message_types import message_type
from orbitmq.message.properties import MAX_PROPERTIES_BYTES
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import RecordTooLongError, StoreClosedError, UnknownQueueError
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.model import NewMessage, PutResult, PutStatus
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.queues import Queues
from orbitmq.store.writable import WriteGate

# After a clock was set back, a delayed message may be delivered late by this much. The delivery service
# allows for the same difference (CLOCKS_APART_MS of the broker's delay levels); with a smaller one it would
# deliver the message early.
LATE_AT_MOST_MS = 60_000


class Writer:
    """The writing half of a store. Runs on the event loop; the log writes out the batch.

    Args:
        update_clock: sets the store time; returns it, ms.
        now_ms: the time of the wall clock.
    """

    def __init__(
        self,
        config: StoreConfig,
        queues: Queues,
        log: CommitLog,
        appender: Appender,
        write_gate: WriteGate,
        update_clock: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self._queues = queues
        self._log = log
        self._appender = appender
        self._write_gate = write_gate
        self._update_clock = update_clock
        self._now_ms = now_ms
        self._born_cache: dict[tuple[str, int], bytes] = {}

    def put_many(self, messages: list[NewMessage]) -> PutResult:
        """Append messages with no other message between them; the result is that of the first one.

        Raises: as ``MessageStore.put``.
        """
        if self._write_gate.refusal is not None:
            raise StoreClosedError(f"the store takes no messages: {self._write_gate.refusal}")
        if not messages:
            raise ValueError("no messages to put")
        slots = [self._slot(message) for message in messages]
        self._update_clock()
        self._make_room_for(messages)
        host, port = self.config.store_host
        physical: list[int] = []
        first_offset = self._appender.get(slots[0], table.Q_NEXT)
        for slot, message in zip(slots, messages, strict=True):
            physical.append(self._append(slot, message))
        self._log.schedule()
        ids = ",".join(offset_message_id(host, port, offset) for offset in physical)
        return PutResult(PutStatus.OK, first_offset, physical[0], self._log.end, ids)

    def _slot(self, message: NewMessage) -> int:
        slot = self._queues.slot(message.topic, message.queue_id)
        if slot < 0:
            known = self._queues.topics.get(message.topic)
            detail = f"it has {len(known.slots)} queues" if known else "the topic is unknown to the store"
            raise UnknownQueueError(f"no queue {message.queue_id} of topic {message.topic}: {detail}")
        return slot

    def _make_room_for(self, messages: list[NewMessage]) -> None:
        """Start a new batch, and a new file, when the messages do not fit as a whole."""
        size = 0
        for m in messages:
            length = len(m.properties)
            if length > MAX_PROPERTIES_BYTES:
                # The length would overflow in the record, and readers of the log would stop there.
                raise RecordTooLongError(
                    f"the message is illegal: properties of {length} bytes, "
                    f"limit {MAX_PROPERTIES_BYTES} bytes"
                )
            size += self._appender.record_bytes(len(m.body), len(m.topic.encode()), length, 20)
        most = self.config.batch_bytes
        if len(messages) == 1:
            most = max(most, self.config.largest_bytes)
        if self._appender.batch_room < size <= most:
            # The limit for messages was raised while the broker ran, or was higher when the message was first
            # stored.
            self._log.end_batch()
            self._appender.grow_batch(max(self.config.batch_bytes, size))
        if size > self._appender.batch_room or size + 8 > self.config.commit_log_file_bytes:
            limit = min(self._appender.batch_room, self.config.commit_log_file_bytes - 8)
            raise StoreClosedError(
                f"messages of {size} bytes are larger than the store's limit of {limit} bytes"
            )
        if self._appender.batch_used + size > self._appender.batch_room:
            self._log.end_batch()
        if self._log.end + size + 8 > self._appender.file_end:
            self._log.roll()

    def _delay_begins(self) -> int:
        """When a message's wait begins, ms: at its store time, the only time that a rebuilt queue has.

        If the store time is far ahead because the clock was set back, the wait begins at the wall clock's
        time.
        """
        now, stored = self._now_ms(), self._appender.now_ms
        return now if stored > now + LATE_AT_MOST_MS else stored

    def _append(self, slot: int, m: NewMessage) -> int:
        code = m.tags_code
        if m.deliver_after_ms is not None:
            code = self._delay_begins() + m.deliver_after_ms
        for _ in range(2):
            physical = self._appender.append_message(
                slot, m.queue_id, m.flag, m.sys_flag, m.born_timestamp, self._packed(m.born_host),
                m.reconsume_times, m.prepared_transaction_offset, m.body, m.topic.encode(), m.properties,
                code, message_type(m.properties),
            )  # fmt: skip
            if physical >= 0:
                return physical
            self.make_room(physical, slot)
        raise StoreClosedError(f"no room for a record of {len(m.body)} bytes (reason {physical})")

    def make_room(self, reason: int, slot: int) -> None:
        """Make the room that the appender lacks: its answer was NO_ROOM, ROLL or TAIL_FULL.

        Raises:
            StoreClosedError: the disk refused.
        """
        if reason == table.TAIL_FULL:
            self._queues.make_counts(slot)
            if self._appender.prepare_tail(slot):
                return
            try:
                self._queues.save_unfinished(slot)
            except OSError as error:
                self._write_gate.queues_failed(error)
                raise StoreClosedError(f"the store takes no messages: {self._write_gate.refusal}") from error
        elif reason == table.ROLL:
            self._log.roll()
        else:
            self._log.end_batch()

    def _packed(self, host: tuple[str, int]) -> bytes:
        packed = self._born_cache.get(host)
        if packed is None:
            if len(self._born_cache) > 4096:
                self._born_cache.clear()
            packed = self._born_cache[host] = pack_host(host)
        return packed


def pack_host(host: tuple[str, int]) -> bytes:
    """An address and port as a record keeps them: 8 bytes for IPv4, 20 for IPv6."""
    address, port = host
    return pack_ip(address) + (port & 0xFFFFFFFF).to_bytes(4, "big")
