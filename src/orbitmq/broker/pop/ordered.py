"""Batches dealt out in order: a queue deals no more out until its batch is done (ConsumerOrderInfoManager).

Pure except for the change feed. A group that pops in order gets a queue's messages again when their invisible
time is over, from the first one that is not done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orbitmq.broker.change_feed import POP_ORDERS, ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted

SEPARATOR = "@"
# RocketMQ marks done messages in a 64 bit number; the sign bit stays free.
MAX_BATCH = 63
# The deadline of a message that a batch lists although it is not dealt out.
NOT_OUT_MS = 0


@dataclass(slots=True)
class Batch:
    """The messages of a queue that are out. Times are milliseconds since the epoch.

    Attributes:
        offsets: the queue offsets, ascending, also those of done messages after one that is not done.
        done: bit i is set when message i is done.
        visible: the deadlines of messages that have one of their own.
        counts: how often a message was dealt out before; messages that never were are missing.
        attempt_id: the id of the pop that took them: a repeated pop with this id gets them again.
        owner: the client that keeps the messages invisible while it works on them; empty: the deadline holds.
    """

    pop_time_ms: int
    invisible_ms: int
    offsets: list[int]
    done: int = 0
    visible: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    last_ms: int = 0
    attempt_id: str | None = None
    owner: str = ""

    def is_done(self, index: int) -> bool:
        return self.done >> index & 1 != 0

    @property
    def done_offsets(self) -> set[int]:
        return {offset for index, offset in enumerate(self.offsets) if self.is_done(index)}

    @property
    def left(self) -> int:
        """How many messages are not done."""
        return len(self.offsets) - self.done.bit_count()

    @property
    def next_offset(self) -> int:
        """The first offset that is not done."""
        for index, offset in enumerate(self.offsets):
            if not self.is_done(index):
                return offset
        return self.offsets[-1] + 1 if self.offsets else 0

    def free_at_ms(self) -> int:
        """When the queue is free again: after the last deadline of its messages that are not done."""
        deadline = self.pop_time_ms + self.invisible_ms
        free = 0
        for index, offset in enumerate(self.offsets):
            if not self.is_done(index):
                free = max(free, self.visible.get(offset, deadline))
        return free

    def to_plain(self) -> dict[str, Any]:
        """The batch in the form of RocketMQ's file: offsets after the first are distances from it."""
        first = self.offsets[0] if self.offsets else 0
        plain: dict[str, Any] = {
            "popTime": self.pop_time_ms,
            "i": self.invisible_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])] if self.offsets else [],
            "l": self.last_ms,
            "cm": self.done,
        }
        if self.visible:
            plain["ot"] = dict(self.visible)
        if self.counts:
            plain["oc"] = dict(self.counts)
        if self.attempt_id is not None:
            plain["a"] = self.attempt_id
        if self.owner:
            plain["owner"] = self.owner
        return plain

    @staticmethod
    def of_plain(plain: Mapping[str, Any]) -> Batch:
        first, *others = plain.get("o") or [0]
        return Batch(
            int(plain.get("popTime") or 0),
            int(plain.get("i") or 0),
            [int(first), *(int(first) + int(other) for other in others)] if plain.get("o") else [],
            int(plain.get("cm") or 0),
            {int(offset): int(time) for offset, time in (plain.get("ot") or {}).items()},
            {int(offset): int(count) for offset, count in (plain.get("oc") or {}).items()},
            int(plain.get("l") or 0),
            plain.get("a"),
            plain.get("owner") or "",
        )


class OrderedPops:
    """The batches that are out, by topic, group and queue; also the table ``consumerOrderInfo.json``."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._table: dict[tuple[str, str], dict[int, Batch]] = {}
        feed.register(
            POP_ORDERS, FedTable(Batch.to_plain, self._apply, items=self._items, is_news=self._is_later)
        )

    def _items(self) -> list[tuple[str, Batch]]:
        return [
            (_key(topic, group, queue_id), batch)
            for (topic, group), queues in self._table.items()
            for queue_id, batch in queues.items()
        ]

    def find(self, topic: str, group: str, queue_id: int) -> Batch | None:
        """The batch that is dealt out, or the last one."""
        return self._table.get((topic, group), {}).get(queue_id)

    def blocked_until(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, now_ms: int
    ) -> int | None:
        """Until when the queue is blocked; ``None``: it is free."""
        batch = self.find(topic, group, queue_id)
        if batch is None or (attempt_id and attempt_id == batch.attempt_id):
            return None
        free = batch.free_at_ms()
        return free if free > now_ms else None

    def left_of(self, topic: str, group: str, queue_id: int, attempt_id: str | None) -> int:
        """How many of the messages that an attempt got from a queue are not done."""
        batch = self.find(topic, group, queue_id) if attempt_id else None
        if batch is None or batch.attempt_id != attempt_id:
            return 0
        return batch.left - sum(due_ms == NOT_OUT_MS for due_ms in batch.visible.values())

    def take(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        *,
        now_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
        keeps_done: bool = True,
    ) -> Batch:
        """Note that messages are dealt out. Acknowledged messages behind the first one stay noted as done.

        Args:
            keeps_done: ``False``: acknowledged messages are dealt out again, as by Apache's broker.
        """
        before = self.find(topic, group, queue_id)
        batch = Batch(now_ms, invisible_ms, list(offsets), last_ms=now_ms, attempt_id=attempt_id)
        if before is not None:
            repeated = bool(attempt_id) and attempt_id == before.attempt_id
            _carry_on(before, batch, repeated=repeated, keeps_done=keeps_done)
        self._put(topic, group, queue_id, batch)
        return batch

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int) -> int | None:
        """Acknowledge a message; returns the offset up to which the group has consumed; ``None``: the message
        is not out by this pop."""
        batch = self._out(topic, group, queue_id, offset, pop_time_ms)
        if batch is None:
            return None
        batch.done |= 1 << batch.offsets.index(offset)
        self._put(topic, group, queue_id, batch)
        return batch.next_offset

    def change(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, visible_ms: int
    ) -> bool:
        """Give a message another deadline; ``False``: it is not out by this pop."""
        batch = self._out(topic, group, queue_id, offset, pop_time_ms)
        if batch is None:
            return False
        batch.visible[offset] = visible_ms
        self._put(topic, group, queue_id, batch)
        return True

    def is_out(self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int) -> bool:
        """Whether the message was dealt out by this pop and is not done."""
        return self._out(topic, group, queue_id, offset, pop_time_ms) is not None

    def _out(self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int) -> Batch | None:
        batch = self.find(topic, group, queue_id)
        if batch is None or batch.pop_time_ms != pop_time_ms or offset not in batch.offsets:
            return None
        return None if batch.is_done(batch.offsets.index(offset)) else batch

    def extend(self, topic: str, group: str, queue_id: int, pop_time_ms: int, due_ms: int) -> bool:
        """Change the deadline of a pop's messages that have none of their own; returns whether any remain."""
        batch = self.find(topic, group, queue_id)
        if batch is None or batch.pop_time_ms != pop_time_ms or not batch.left:
            return False
        batch.invisible_ms = due_ms - pop_time_ms
        self._put(topic, group, queue_id, batch)
        return True

    def own(self, topic: str, group: str, queue_id: int, pop_time_ms: int, client_id: str) -> None:
        """Note which client keeps a pop's remaining messages invisible."""
        batch = self.find(topic, group, queue_id)
        if batch is not None and batch.pop_time_ms == pop_time_ms and batch.left:
            batch.owner = client_id
            self._put(topic, group, queue_id, batch)

    def free(self, topic: str, group: str, queue_id: int) -> None:
        """Drop the queue's batch, after the group was moved: none of its messages counts as dealt out."""
        queues = self._table.get((topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self._feed.changed(POP_ORDERS, _key(topic, group, queue_id), None)
        if not queues:
            self._table.pop((topic, group), None)

    def queues(self) -> list[tuple[str, str, int]]:
        """Topic, group and queue id of every queue with a batch."""
        return [(*pair, queue_id) for pair, queues in self._table.items() for queue_id in queues]

    def cut(self, topic: str, group: str, queue_id: int, end: int) -> None:
        """Count messages from ``end`` on as not dealt out: they are gone, or the group goes back to them."""
        batch = self.find(topic, group, queue_id)
        if batch is None or not batch.offsets or batch.offsets[-1] < end:
            return
        count = bisect_left(batch.offsets, end)
        if not count:
            self.free(topic, group, queue_id)
            return
        left = replace(
            batch,
            offsets=batch.offsets[:count],
            done=batch.done & (1 << count) - 1,
            visible={offset: time for offset, time in batch.visible.items() if offset < end},
            counts={offset: times for offset, times in batch.counts.items() if offset < end},
        )
        self._put(topic, group, queue_id, left)

    def owned(self) -> Iterator[tuple[str, str, int, Batch]]:
        """Topic, group and queue id of each batch that has an owner and messages left, and the batch."""
        for (topic, group), queues in list(self._table.items()):
            for queue_id, batch in list(queues.items()):
                if batch.owner and batch.left:
                    yield topic, group, queue_id, batch

    def drop(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget a deleted topic or group."""
        for pair, queues in list(self._table.items()):
            if pair[0] == topic or pair[1] == group:
                for queue_id in list(queues):
                    self.free(*pair, queue_id)

    def _put(self, topic: str, group: str, queue_id: int, batch: Batch) -> None:
        self._table.setdefault((topic, group), {})[queue_id] = batch
        self._feed.changed(POP_ORDERS, _key(topic, group, queue_id), batch)

    def _apply(self, key: str, plain: Mapping[str, Any] | None) -> None:
        topic, group, queue_id = key.rsplit(SEPARATOR, 2)
        if plain is None:
            self.free(topic, group, int(queue_id))
        else:
            self._put(topic, group, int(queue_id), Batch.of_plain(plain))

    def _is_later(self, key: str, plain: Mapping[str, Any] | None) -> bool:
        topic, group, queue_id = key.rsplit(SEPARATOR, 2)
        known = self.find(topic, group, int(queue_id))
        return plain is not None and (known is None or Batch.of_plain(plain).pop_time_ms > known.pop_time_ms)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``consumerOrderInfo.json``, piece by piece."""
        return file_text([("table", self._entries())])

    def _entries(self) -> Iterator[tuple[str, str]]:
        for pair in list(self._table):
            queues = self._table.get(pair)
            if queues:
                plain = {queue_id: batch.to_plain() for queue_id, batch in queues.items()}
                yield quoted(SEPARATOR.join(pair)), pretty_value(plain, "\n\t\t")

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``consumerOrderInfo.json``."""
        for pair, queues in (content.get("table") or {}).items():
            topic, _, group = pair.partition(SEPARATOR)
            self._table[topic, group] = {
                int(queue_id): Batch.of_plain(plain) for queue_id, plain in (queues or {}).items()
            }


def _carry_on(before: Batch, batch: Batch, *, repeated: bool, keeps_done: bool) -> None:
    """Carry the facts of the previous batch over into a new one.

    Acknowledged offsets behind the first message of the batch are kept, so that they are not dealt out again.
    Offsets between them that are not done are kept too, or the group's offset would pass them; their deadline
    counts as over.
    """
    dealt = set(batch.offsets)
    kept = before.done_offsets if keeps_done else set()
    done = {offset for offset in kept if offset > batch.offsets[0]} - dealt
    last = max(done, default=0)
    waiting = {
        offset for offset in before.offsets if batch.offsets[0] < offset < last and offset not in dealt | done
    }
    for offset in dealt | waiting:
        if offset in before.offsets:
            was_out = before.visible.get(offset) != NOT_OUT_MS and not (repeated and offset in dealt)
            count = before.counts.get(offset, 0) + was_out
            if count:
                batch.counts[offset] = count
    batch.visible = dict.fromkeys(waiting, NOT_OUT_MS)
    batch.offsets = sorted(dealt | done | waiting)
    batch.done = sum(1 << index for index, offset in enumerate(batch.offsets) if offset in done)


def _key(topic: str, group: str, queue_id: int) -> str:
    return SEPARATOR.join((topic, group, str(queue_id)))
