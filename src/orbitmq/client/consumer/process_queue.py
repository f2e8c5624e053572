"""The messages of one queue between pull and acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from orbitmq.message.model import MessageQueue, ReceivedMessage


class ProcessQueue:
    """What was pulled from one queue and is not finished, and the offset that may be committed.

    The offset is that of the smallest unfinished message, or the one behind the last finished message
    when all are done (CR-10): whatever was not finished is delivered again after a crash.

    Attributes:
        queue: the queue.
        next_offset: where the next pull begins.
        dropped: the queue belongs to another member now; nothing more is delivered.
        released: what is still in flight may not move the offset any more either (CR-11).
        in_flight: messages that are with the listener now.
        line: for ordered consuming: unfinished messages in order, the first one with the listener.
        unfinished_bytes: body bytes held.
    """

    __slots__ = (
        "_begun",
        "_highest",
        "_pending",
        "_smallest",
        "dropped",
        "in_flight",
        "last_pull_ms",
        "line",
        "next_offset",
        "queue",
        "released",
        "unfinished_bytes",
    )

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.dropped = False
        self.released = False
        self.in_flight = 0
        self.last_pull_ms = 0
        self.line: deque[ReceivedMessage] = deque()
        self.unfinished_bytes = 0
        self._pending: dict[int, ReceivedMessage] = {}
        self._smallest: list[int] = []
        self._highest = -1
        self._begun: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, offset: int) -> bool:
        return offset in self._pending

    def messages(self) -> list[ReceivedMessage]:
        """Unfinished messages by offset."""
        return [self._pending[offset] for offset in sorted(self._pending)]

    @property
    def span(self) -> int:
        """Distance between the smallest and the largest unfinished offset."""
        if not self._pending:
            return 0
        return self._highest - self._first()

    def add(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Take in pulled messages; those not yet known are returned, for delivery."""
        new: list[ReceivedMessage] = []
        for message in messages:
            offset = message.queue_offset
            if offset in self._pending:
                continue
            self._pending[offset] = message
            heappush(self._smallest, offset)
            self.unfinished_bytes += message.body_bytes
            self._highest = max(self._highest, offset)
            new.append(message)
        return new

    def finish(self, offset: int) -> int:
        """One message is done (consumed or sent back); the offset to commit, -1 when it was not here."""
        message = self._pending.pop(offset, None)
        if message is None:
            return -1
        self.put_aside(offset)
        self.unfinished_bytes -= message.body_bytes
        return self.committable()

    def begin(self, offset: int, now_ms: int) -> None:
        """The listener has this message from now on."""
        self.in_flight += 1
        self._begun[offset] = now_ms

    def put_aside(self, offset: int) -> None:
        """The listener is done with it, but the message is not."""
        if self._begun.pop(offset, None) is not None:
            self.in_flight -= 1

    def overdue(self, before_ms: int, at_most: int = 16) -> list[ReceivedMessage]:
        """The first messages, by offset, that the listener has had since before ``before_ms`` (CR-15)."""
        found = [self._pending[offset] for offset, begun in sorted(self._begun.items()) if begun < before_ms]
        return found[:at_most]

    def committable(self) -> int:
        """The offset that may be committed now, -1 when nothing was ever held.

        With nothing unfinished that is where the next pull begins: what lies between the last message and
        there was filtered out.
        """
        if self._pending:
            return self._first()
        return max(self._highest + 1, self.next_offset) if self._highest >= 0 else -1

    def clear(self) -> None:
        """Forget everything, as after a reset of the offset."""
        self._pending.clear()
        self._begun.clear()
        self.line.clear()
        self.in_flight = 0
        self._smallest.clear()
        self.unfinished_bytes = 0
        self._highest = -1

    def _first(self) -> int:
        # Finished offsets leave the heap only when they reach its top: finish() stays cheap.
        while self._smallest[0] not in self._pending:
            heappop(self._smallest)
        return self._smallest[0]
