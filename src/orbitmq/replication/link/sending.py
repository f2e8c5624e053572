# cython: annotation_typing=False
"""Sends the log over one connection: new bytes at once, a long backlog in small steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.classic import MAX_DATA_BYTES
from orbitmq.replication.link.cursor import Cursor, Flow
from orbitmq.runtime.file_sending import FileSender
from orbitmq.runtime.seam import Clock
from orbitmq.store.ports import CopiedLog

# The most bytes sent to one follower in one iteration of the event loop (some 200 us): between two such steps
# the event loop serves the senders of messages.
STEP_BYTES = 1 << 20
# While no sender waits for the follower, bytes written this soon after a step wait for the next step: one
# step for each batch would cost master and follower more than the bytes do. At 200 MB/s it is 1 MB.
GATHER_S = 0.005
# A follower farther behind than this gets a copy in small steps with pauses, 64 MB/s, but always more than is
# written meanwhile, so that it catches up whatever the senders do. Half a step after half the pause delays
# sends more: each step wakes the follower, which takes the processor from master and senders.
FAR_BYTES = 16 << 20
FAR_STEP_BYTES = 256 * 1024
FAR_PAUSE_S = 0.004
# Largest step of a copy while the master is busy: 500 MB/s.
FAR_MOST_BYTES = 2 << 20
# If the event loop is this late, the master, its disk or its machine is busy: the pauses of a copy grow, down
# to 8 MB/s.
LATE_S = 0.002
FAR_LONGEST_PAUSE_S = 0.032
# For a follower far behind, the kernel reads this much ahead, so that the event loop seldom waits for a page.
READ_AHEAD_BYTES = 4 << 20


class Pace:
    """How much all followers together may be sent (haFlowControlEnable)."""

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._config = config
        self._flow = Flow(clock.monotonic())

    @property
    def unlimited(self) -> bool:
        """Whether any number of bytes may be sent."""
        return not self._config.ha_flow_control_enable

    def allowed(self) -> int:
        """How many bytes may be sent now."""
        if not self._config.ha_flow_control_enable:
            return FAR_MOST_BYTES
        limit = self._config.max_ha_transfer_bytes_per_second
        return self._flow.left(self._clock.monotonic(), limit)

    def sent(self, size_bytes: int, now: float) -> None:
        """Count bytes that were sent at ``now``, in monotonic seconds."""
        if self._config.ha_flow_control_enable:
            self._flow.sent(now, size_bytes)

    def wait_s(self) -> float:
        """Seconds until more may be sent."""
        return max(0.001, self._flow.until_next(self._clock.monotonic()))


class Rest:
    """The pauses between two steps of a copy: they grow while the event loop is late. Pure.

    Attributes:
        seconds: the length of the next pause.
    """

    def __init__(self) -> None:
        self.seconds = FAR_PAUSE_S
        self._due = math.inf

    def begins(self, now: float) -> float:
        """Begin a pause at ``now``, in monotonic seconds; returns its length."""
        self._due = now + self.seconds
        return self.seconds

    def ended(self, now: float) -> None:
        """The event loop runs again: measure how late it is, if a pause has just ended."""
        due, self._due = self._due, math.inf
        if due == math.inf:
            return
        if now - due > LATE_S:
            self.seconds = min(2 * self.seconds, FAR_LONGEST_PAUSE_S)
        else:
            self.seconds = max(FAR_PAUSE_S, self.seconds - FAR_PAUSE_S / 4)


class LogSender:
    """Sends the log from a position on.

    Args:
        header: makes the header of a piece from its offset and size.
        piece_bytes: the longest piece.
        awaited: returns whether senders of messages wait for the follower.

    Attributes:
        begin: the log offset at which the sender began.
        cursor: the place in the log from which the next bytes are sent.
        last_sent: monotonic seconds.
    """

    def __init__(
        self,
        clock: Clock,
        store: CopiedLog,
        pace: Pace,
        transport: asyncio.Transport,
        position: int,
        header: Callable[[int, int], bytes],
        piece_bytes: int,
        awaited: Callable[[], bool],
    ) -> None:
        self._monotonic = clock.monotonic
        self._store = store
        self._in_memory = store.in_memory
        self._pace = pace
        self._transport = transport
        self._out = FileSender(transport)
        self._header = header
        self._piece_bytes = min(piece_bytes, MAX_DATA_BYTES, STEP_BYTES)
        self._awaited = awaited
        self._paused = False
        self._next: asyncio.Handle | None = None
        self._gathers = False
        self._ahead = position
        self._end_seen = self._store.max_commit_log_offset
        self._flow = Flow(clock.monotonic())
        self._last_step = -math.inf
        self._rest = Rest()
        self.begin = position
        self.cursor = Cursor(store, position)
        self.last_sent = clock.monotonic()

    @property
    def rate(self) -> int:
        """Bytes sent in the last whole second."""
        return self._flow.rate(self._monotonic())

    def broken(self) -> str:
        """Why the log cannot be sent from the follower's place on; empty: it can."""
        position, store = self.cursor.position, self._store
        if position > store.max_commit_log_offset:
            return "the master's log became shorter"
        if position < store.min_commit_log_offset:
            return (
                f"the slave was too slow: the master has deleted its log at {position}, the next part to send"
            )
        return ""

    def pump(self) -> None:
        """Send the bytes by which the log has grown at once, or together with the next ones."""
        if self._paused or self._next is not None:
            return
        if self._awaited():
            if not self._send_batch():
                self._step()
        elif self._monotonic() - self._last_step < GATHER_S:
            self._next = asyncio.get_running_loop().call_later(GATHER_S, self._step)
            self._gathers = True
        else:
            self._step()

    def _send_batch(self) -> bool:
        """Send the batch just written from the append buffer, if it is all that the follower lacks: the
        shortest way for senders that wait. ``False``: nothing was sent, decide the next step."""
        offset = self.cursor.position
        memory = self._in_memory(offset)
        if memory is None or self._transport.is_closing():
            return False
        size = len(memory)
        if size > self._piece_bytes or not self._pace.unlimited:
            return False
        self._out.send_memory(self._header(offset, size), memory)
        self.cursor.position = self._end_seen = offset + size
        self.last_sent = self._last_step = now = self._monotonic()
        self._flow.sent(now, size)
        return True

    def send_gathered(self) -> None:
        """Send the bytes kept for the next step now, because another frame has to follow them."""
        if self._gathers and self._next is not None:
            self._next.cancel()
            self._step()

    def _step(self) -> None:
        """Send as many bytes of the log as the connection and this iteration of the event loop allow."""
        self._next, self._gathers = None, False
        self._rest.ended(self._monotonic())
        if self._paused or self._transport.is_closing():
            return
        cursor, end = self.cursor, self._store.max_commit_log_offset
        share = self._share(end)
        left = allowed = min(self._pace.allowed(), share)
        flows = True
        while left > 0 and flows and cursor.position < end:
            piece = cursor.take(min(left, self._piece_bytes))
            if piece is None:
                break  # the next bytes of the log are deleted
            offset, (segment, start, stop, memory) = piece
            left -= stop - start
            flows = self._out.send(self._header(offset, stop - start), segment, start, stop, memory)
        if left < allowed:
            self._sent(allowed - left)
        elif allowed:
            return  # nothing new, or the next bytes are deleted
        behind = end - cursor.position
        if behind > 0:
            self._read_ahead(behind)
            self._again(slowed=allowed < share, far=behind > FAR_BYTES)

    def _sent(self, size_bytes: int) -> None:
        self.last_sent = self._last_step = now = self._monotonic()
        self._pace.sent(size_bytes, now)
        self._flow.sent(now, size_bytes)

    def _share(self, end: int) -> int:
        """How many bytes of a log that ends at ``end`` may be sent to this follower in this step."""
        grown, self._end_seen = end - self._end_seen, end
        if end - self.cursor.position <= FAR_BYTES:
            return STEP_BYTES
        return min(FAR_STEP_BYTES + 2 * grown, FAR_MOST_BYTES)

    def _again(self, *, slowed: bool, far: bool) -> None:
        loop = asyncio.get_running_loop()
        if slowed:
            self._next = loop.call_later(self._pace.wait_s(), self._step)
        elif self._paused:
            return
        elif far:
            self._next = loop.call_later(self._rest.begins(self._monotonic()), self._step)
        else:
            self._next = loop.call_soon(self._step)

    def _read_ahead(self, behind: int) -> None:
        if behind > READ_AHEAD_BYTES and self.cursor.position + READ_AHEAD_BYTES // 2 >= self._ahead:
            start = max(self._ahead, self.cursor.position)
            self._ahead = self.cursor.position + READ_AHEAD_BYTES
            self._store.raw.read_ahead(start, self._ahead)

    def heartbeat(self) -> None:
        """Send a piece without bytes."""
        self.last_sent = self._monotonic()
        self._transport.write(self._header(self.cursor.position, 0))

    def pause(self) -> None:
        """Send nothing while the connection's buffer is full."""
        self._paused = True

    def resume(self) -> None:
        """Continue, since the connection's buffer has room again."""
        self._paused = False
        if self._next is None:
            self._step()

    def stop(self) -> None:
        """Send nothing more."""
        self._paused = True
        self._out.close()
        if self._next is not None:
            self._next.cancel()
            self._next = None
