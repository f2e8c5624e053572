"""The messages of one queue between pull and acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from orbitmq.client.consumer.redelivery import RedeliveryPolicy
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import Settled, Verdict
from orbitmq.runtime.waiters import Waiters

# Called with each message that the user settled; the consumer's ``Delivery`` carries out the verdict.
OnSettled = Callable[["ProcessQueue", ReceivedMessage, Verdict], Settled]
# Most messages of one queue that a check for overdue handlers sends back at a time (CR-15).
MOST_OVERDUE = 16


class DeliveryState(Enum):
    """The state of a message that the user's code has. A message that waits for a handler has no state."""

    HANDLER = "a handler of run() has it: a verdict other than done waits for its return"
    LOOP = "a poll or a loop gave it: a verdict is carried out at once"
    LEFT = "its loop was left while it was open: the user may settle it later"
    ENDED = "its verdict is being carried out"


class TotalSize:
    """Counts the bytes of the message bodies that a consumer holds in all its queues.

    Attributes:
        fell: called when the count falls.
    """

    __slots__ = ("fell", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.fell = Waiters()

    def take_off(self, size_bytes: int) -> None:
        """Subtract bytes that are released."""
        self.size_bytes -= size_bytes
        if self.fell.waiting:
            self.fell.changed()


class ProcessQueue:
    """The unfinished messages of one queue, and the offset that may be committed.

    The offset is that of the smallest unfinished message, or the one behind the last finished message when
    all are done (CR-10): unfinished messages are delivered again after a crash. The offset is computed only
    when it is requested, so that a finished message costs no more than its removal from a table.

    The queue is also the owner of its messages' deliveries, which receives the user's verdicts.

    Args:
        total: the byte count of all queues of the consumer, which includes this queue's bytes.
        on_settled: called with messages that the user settled.
        changes: called when messages are finished or released by the user's code.

    Attributes:
        queue: the queue.
        next_offset: the offset of the next pull.
        made_at: the creation stamp of the queue's topic, see ``QueueOffset``.
        behind: the offset after the last message that a poll returned; at first the start offset.
        before: with order: the process queue from before a move, while some of its messages are in flight.
        dropped: the queue belongs to another member; nothing more is delivered.
        released: messages that end from here on do not move the offset (CR-11).
        begun: messages in the user's code, by offset: their state, and the round of the expiry check in which
            they were handed out.
        line: with order: the unfinished messages.
        busy: with order: the queue has a running handler, is about to get one, or pauses.
        redelivery: sends back failed messages; None: the consumer's own policy.
        pause_s: with order: the pause after a failure.
        unfinished_bytes: bytes of the bodies of unfinished messages.
    """

    __slots__ = (
        "_highest",
        "_in_order",
        "_on_settled",
        "_pending",
        "_total",
        "before",
        "begun",
        "behind",
        "busy",
        "changes",
        "dropped",
        "last_pull_ms",
        "last_stored_ms",
        "line",
        "made_at",
        "next_offset",
        "pause_s",
        "queue",
        "redelivery",
        "released",
        "unfinished_bytes",
    )
    # Whether the queue needs a lock at the broker.
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
        self.behind = next_offset
        self.dropped = False
        self.released = False
        self.last_pull_ms = 0
        self.last_stored_ms = 0
        self.made_at: str | None = None
        self.before: ProcessQueue | None = None
        self.begun: dict[int, tuple[DeliveryState, int]] = {}
        self.line: deque[ReceivedMessage] = deque()
        self.busy = False
        self.pause_s = 0.0
        self.redelivery: RedeliveryPolicy | None = None
        self.unfinished_bytes = 0
        self._pending: dict[int, ReceivedMessage] = {}
        self._highest = -1
        # Whether the messages arrived in the order of offsets, the usual case: then the table is sorted.
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
        """Number of messages in the user's code, messages handed out before a move included."""
        return len(self.begun) + (self.before.in_flight if self.before is not None else 0)

    @property
    def at_work(self) -> bool:
        """Whether the user's code works on a message; a message whose loop was left does not count
        (CR-18).
        """
        if any(state is not DeliveryState.LEFT for state, _ in self.begun.values()):
            return True
        return self.before is not None and self.before.at_work

    @property
    def span(self) -> int:
        """Distance between the smallest and the largest unfinished offset."""
        if not self._pending:
            return 0
        return self._highest - self._first()

    def add(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Add pulled messages; returns the new ones, for delivery."""
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
            message.owner = self
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
        """Finish a message (consumed or sent back); False if the queue does not hold it or is released."""
        message = None if self.released else self._pending.pop(offset, None)
        if message is None:
            return False
        self.begun.pop(offset, None)
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
        """Release an unfinished message from the user's code."""
        self.begun.pop(offset, None)
        self.changes.changed()

    def state(self, offset: int) -> DeliveryState | None:
        """The state of a message; None: the user's code does not have it."""
        begun = self.begun.get(offset)
        return None if begun is None else begun[0]

    def move(self, offset: int, to: DeliveryState) -> None:
        """Change the state of a message that the user's code has."""
        begun = self.begun.get(offset)
        if begun is not None:
            self.begun[offset] = (to, begun[1])

    def leave_open(self, offset: int) -> None:
        """Record that the user's loop was left with this message: the user may settle it later."""
        self.move(offset, DeliveryState.LEFT)
        self.changes.changed()

    def settled(self, message: ReceivedMessage, verdict: Verdict) -> Settled:
        """Pass on the user's verdict on a message of this queue, from any thread."""
        if self._on_settled is None:
            return Settled.GONE
        return self._on_settled(self, message, verdict)

    def overdue(self, before: int) -> list[ReceivedMessage]:
        """Messages that the user's code has had since before round ``before``, the smallest offsets first
        (CR-15).
        """
        held = sorted(offset for offset, (_, since) in self.begun.items() if since < before)
        return [self._pending[offset] for offset in held if offset in self._pending][:MOST_OVERDUE]

    def committable(self) -> int:
        """The offset that may be committed now, -1 when nothing was ever held.

        Without unfinished messages it is the offset of the next pull: messages before it were filtered out.
        """
        if self._pending:
            return self._first()
        return max(self._highest + 1, self.next_offset) if self._highest >= 0 else -1

    def position(self) -> int:
        """The offset of the next message for the user's code."""
        waiting = self._pending.keys() - self.begun.keys()
        return min(waiting) if waiting else self.next_offset

    def count_in(self, total: TotalSize) -> None:
        """Count the held bytes in another total from here on: a paused topic has one of its own."""
        self._total.take_off(self.unfinished_bytes)
        self._total = total
        total.size_bytes += self.unfinished_bytes

    def drop(self, *, released: bool = False) -> None:
        """Give the queue up: nothing more is delivered, and its bytes leave the count.

        Args:
            released: messages that end from here on do not move the offset.
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
