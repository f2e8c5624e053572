"""The messages of one queue between pull and acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from orbitmq.client.consumer.redelivery import RedeliveryPolicy
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import Settled, Verdict
from orbitmq.runtime.waiters import Waiters

# What becomes of a message that the user settled, decided by the consumer's delivery.
OnSettled = Callable[["ProcessQueue", ReceivedMessage, Verdict], Settled]


class TotalSize:
    """Bytes of bodies that a consumer holds, of all its queues together.

    Attributes:
        fell: told when they become fewer.
    """

    __slots__ = ("fell", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.fell = Waiters()

    def take_off(self, size_bytes: int) -> None:
        """So many bytes are held no longer."""
        self.size_bytes -= size_bytes
        if self.fell.waiting:
            self.fell.changed()


class ProcessQueue:
    """What was pulled from one queue and is not finished, and the offset that may be committed.

    The offset is that of the smallest unfinished message, or the one behind the last finished message
    when all are done (CR-10): whatever was not finished is delivered again after a crash. It is computed
    when somebody asks, so that a finished message costs no more than leaving a table.

    It is the keeper of its messages: what the user settles comes here.

    Args:
        total: the size of all queues of the consumer, changed along with this one's.
        on_settled: decides about messages that the user settled.
        changes: told when messages end, or the user's code lets go of some; one of its own by default.

    Attributes:
        queue: the queue.
        next_offset: where the next pull begins.
        made_at: of which topic of this name the queue is, see ``QueueOffset``.
        before: for ordered consuming: the queue as it was before a move, while messages of it are in flight.
        dropped: the queue belongs to another member now; nothing more is delivered.
        released: what is still in flight may not move the offset any more either (CR-11).
        begun: messages that are with the user's code now, by offset: since which round of the expiry.
        loose: those of them that no handler of ``run`` holds: what settles them is done at once.
        left: those of them whose loop was left: they may be settled later, and nobody works on them.
        line: for ordered consuming: unfinished messages in order.
        busy: for ordered consuming: the queue is with a handler, is about to be, or pauses.
        redelivery: who takes its messages back when they failed; None: the consumer's usual way.
        pause_s: for ordered consuming: how long it pauses before it goes on, after a failure.
        unfinished_bytes: body bytes held.
    """

    __slots__ = (
        "_highest",
        "_in_order",
        "_on_settled",
        "_pending",
        "_total",
        "before",
        "begun",
        "busy",
        "changes",
        "dropped",
        "last_pull_ms",
        "last_stored_ms",
        "left",
        "line",
        "loose",
        "made_at",
        "next_offset",
        "pause_s",
        "queue",
        "redelivery",
        "released",
        "unfinished_bytes",
    )
    # Whether only the member that has its lock at the broker may consume it in order.
    locked = True

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        total: TotalSize | None = None,
        on_settled: OnSettled | None = None,
        changes: Waiters | None = None,
    ) -> None:
        self.queue = queue
        self.changes = Waiters() if changes is None else changes
        self.next_offset = next_offset
        self.dropped = False
        self.released = False
        self.last_pull_ms = 0
        self.last_stored_ms = 0
        self.made_at: str | None = None
        self.before: ProcessQueue | None = None
        self.begun: dict[int, int] = {}
        self.loose: set[int] = set()
        self.left: set[int] = set()
        self.line: deque[ReceivedMessage] = deque()
        self.busy = False
        self.pause_s = 0.0
        self.redelivery: RedeliveryPolicy | None = None
        self.unfinished_bytes = 0
        self._pending: dict[int, ReceivedMessage] = {}
        self._highest = -1
        # Whether the table is sorted because every message came behind those before: the usual case.
        self._in_order = True
        self._total = TotalSize() if total is None else total
        self._on_settled = on_settled

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, offset: int) -> bool:
        return offset in self._pending

    def messages(self) -> list[ReceivedMessage]:
        """Unfinished messages by offset."""
        return [self._pending[offset] for offset in sorted(self._pending)]

    @property
    def in_flight(self) -> int:
        """Messages that are with the user's code now, those of before a move included."""
        return len(self.begun) + (self.before.in_flight if self.before is not None else 0)

    @property
    def at_work(self) -> int:
        """Messages that the user's code works on now: one handler at a time has a queue in order (CR-18)."""
        return len(self.begun) - len(self.left) + (self.before.at_work if self.before is not None else 0)

    @property
    def span(self) -> int:
        """Distance between the smallest and the largest unfinished offset."""
        if not self._pending:
            return 0
        return self._highest - self._first()

    def add(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Take in pulled messages; those not yet known are returned, for delivery."""
        new: list[ReceivedMessage] = []
        pending, highest, size = self._pending, self._highest, 0
        if not pending:
            self._in_order = True
        for message in messages:
            offset = message.queue_offset
            if offset > highest:
                highest = offset
            elif offset in pending:
                continue
            elif pending:
                self._in_order = False
            pending[offset] = message
            message.keeper = self
            message.verdict = None
            try:
                size += len(message.body)
            except MessageFormatError:
                size += message.body_bytes
            new.append(message)
        self._highest = highest
        self.unfinished_bytes += size
        self._total.size_bytes += size
        return new

    def finish(self, offset: int) -> bool:
        """One message is done (consumed or sent back); False when it was not here or may not count."""
        message = None if self.released else self._pending.pop(offset, None)
        if message is None:
            return False
        self.begun.pop(offset, None)
        if self.loose:
            self.loose.discard(offset)
            self.left.discard(offset)
        try:
            size = len(message.body)
        except MessageFormatError:
            size = message.body_bytes
        self.unfinished_bytes -= size
        self._total.take_off(size)
        if self.changes.waiting:
            self.changes.changed()
        return True

    def put_aside(self, offset: int) -> None:
        """The user's code is done with it, but the message is not."""
        self.begun.pop(offset, None)
        self.loose.discard(offset)
        self.left.discard(offset)
        self.changes.changed()

    def leave_open(self, offset: int) -> None:
        """The loop that had the message was left: it may be settled later, and no code works on it now."""
        self.left.add(offset)
        self.changes.changed()

    def settled(self, message: ReceivedMessage, verdict: Verdict) -> Settled:
        """The user settled a message of this queue; on any thread."""
        if self._on_settled is None:
            return Settled.GONE
        return self._on_settled(self, message, verdict)

    def overdue(self, before: int, at_most: int = 16) -> list[ReceivedMessage]:
        """The first messages, by offset, that the user's code has had since before a round (CR-15)."""
        held = sorted(offset for offset, begun in self.begun.items() if begun < before)
        return [self._pending[offset] for offset in held if offset in self._pending][:at_most]

    def committable(self) -> int:
        """The offset that may be committed now, -1 when nothing was ever held.

        With nothing unfinished that is where the next pull begins: what lies between the last message and
        there was filtered out.
        """
        if self._pending:
            return self._first()
        return max(self._highest + 1, self.next_offset) if self._highest >= 0 else -1

    def position(self) -> int:
        """The offset of the next message that was not given to the user's code yet."""
        waiting = self._pending.keys() - self.begun.keys()
        return min(waiting) if waiting else self.next_offset

    def count_in(self, total: TotalSize) -> None:
        """Count what is held, now and later, in another total: that of a paused topic holds up no other."""
        self._total.take_off(self.unfinished_bytes)
        self._total = total
        total.size_bytes += self.unfinished_bytes

    def drop(self, *, released: bool = False) -> None:
        """The queue is given up: nothing more is delivered. Its size counts no longer.

        Args:
            released: what is in flight may not move the offset any more.
        """
        self.dropped = True
        if released:
            self.released = True
            if self.before is not None:
                self.before.drop(released=True)
        self.count_in(TotalSize())
        self.changes.changed()

    def _first(self) -> int:
        return next(iter(self._pending)) if self._in_order else min(self._pending)
