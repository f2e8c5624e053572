"""When a message is safe: the answers to senders wait here for the disk, and for whatever else must have it.

*Safe up to an offset* of the commit log means: every gate has all records below it. The disk is a gate;
replicas are others. Answers wait in one queue in the order of the log, each with a deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from orbitmq.broker.component import Component
from orbitmq.runtime.seam import Clock
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.store.log.flush import Flusher
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.frame import FrameDecoder, encode_frame

# What a sender is told (SendMessageProcessor.handlePutMessageResult).
RESPONSE_CODES: Mapping[PutStatus, ResponseCode] = {
    PutStatus.OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
# A deadline is looked at this often at least, so it may be met so much late.
TICK_SECONDS = 0.1

Release: TypeAlias = Callable[[Any], object]
Late: TypeAlias = Callable[[Any, PutStatus], Any]
GiveUp: TypeAlias = Callable[[], object]
_Waiting: TypeAlias = tuple[int, Release, Any, Late, GiveUp]


class Gate(Protocol):
    """One of the things that must have a message before it counts as safe.

    Attributes:
        late: what a sender is told when this gate keeps it waiting for too long.
        error: why this gate will never have more, ``None`` while it works.
    """

    late: PutStatus

    @property
    def safe(self) -> int:
        """The offset below which this gate has everything."""
        ...

    @property
    def error(self) -> BaseException | None: ...

    def want(self, offset: int) -> None:
        """An answer waits for this offset, which may be written already."""
        ...


class DiskGate:
    """The commit log's files: on the device with SYNC_FLUSH, else written."""

    late = PutStatus.FLUSH_DISK_TIMEOUT

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self.want = flusher.want

    @property
    def safe(self) -> int:
        return self._flusher.safe

    @property
    def error(self) -> BaseException | None:
        return self._flusher.error


class Durability(Component):
    """The queue of answers. A gate calls :meth:`advance` when it has more, and :meth:`abandon` when it fails.

    Args:
        gates: the first one that is behind says why an answer is late.
        timeout_ms: how long an answer waits at most (syncFlushTimeout), plus :data:`TICK_SECONDS`; an
            attribute that may change at any time, also for answers that wait already.
        answered: told how many ms the oldest of the answers that left together had waited.
    """

    name = "durability"

    def __init__(
        self,
        clock: Clock,
        gates: Sequence[Gate],
        timeout_ms: int,
        answered: Callable[[int], object] = lambda _elapsed_ms: None,
    ) -> None:
        self._clock = clock
        self._gates = list(gates)
        self.timeout_ms = timeout_ms
        self._waiting: deque[_Waiting] = deque()
        # How many answers have left the queue; with its length, how many were ever in it.
        self._gone = 0
        # (time, number of answers ever queued at that time), oldest first: no answer carries its own time.
        self._marks: deque[tuple[float, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._answered = answered
        # When the first answer was queued after each release: (number of answers before it, time).
        self._groups: deque[tuple[int, float]] = deque()
        self._group_open = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether an answer waits."""
        return bool(self._waiting)

    @property
    def safe(self) -> int:
        """All gates have everything below this offset."""
        return min([gate.safe for gate in self._gates])

    def when_safe(self, offset: int, release: Release, argument: Any, late: Late, give_up: GiveUp) -> None:
        """Call ``release(argument)`` when the log is safe up to ``offset``, which is written after this call.

        After the timeout ``release(late(argument, status))`` is called instead, and ``give_up()`` when the
        log can never be safe any more. Offsets do not go down from call to call.
        """
        self._waiting.append((offset, release, argument, late, give_up))
        if not self._group_open:
            self._open_group()

    def _open_group(self) -> None:
        """The first answer was queued after a release: from now on there are times to keep."""
        self._group_open = True
        self._groups.append((self._gone + len(self._waiting) - 1, self._clock.monotonic()))
        if self._timer is None:
            self._start_timer()

    def advance(self) -> None:
        """Release what is safe now."""
        waiting = self._waiting
        if not waiting:
            return
        safe = self.safe
        gone = 0
        try:
            while waiting and waiting[0][0] <= safe:
                _, release, argument, _, _ = waiting.popleft()
                gone += 1
                release(argument)
        finally:
            self._gone += gone
        self._note_answered()

    def _note_answered(self) -> None:
        """Tell how long the oldest of the answers that left had waited."""
        self._group_open = False
        oldest = None
        while self._groups and self._groups[0][0] < self._gone:
            queued = self._groups.popleft()[1]
            oldest = queued if oldest is None else oldest
        if oldest is not None:
            self._answered(int((self._clock.monotonic() - oldest) * 1000))

    def abandon(self) -> None:
        """Give up what waits: no answer may say that these messages are safe."""
        while self._waiting:
            _, _, _, _, give_up = self._waiting.popleft()
            self._gone += 1
            give_up()
        self._groups.clear()
        self._group_open = False

    # -- deadlines -------------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Release the answers whose time is over.

        Args:
            now: monotonic seconds.

        Returns:
            Seconds until the next call is due, ``None`` when nothing waits.
        """
        marks = self._marks
        while marks and marks[0][0] + self.timeout_ms / 1000 <= now:
            self._release_late(marks.popleft()[1])
        if not self._waiting:
            marks.clear()
            return None
        total = self._gone + len(self._waiting)
        if not marks or marks[-1][1] < total:
            marks.append((now, total))
        return min(TICK_SECONDS, max(0.0, marks[0][0] + self.timeout_ms / 1000 - now))

    def _release_late(self, number: int) -> None:
        while self._waiting and self._gone < number:
            offset, release, argument, late, _ = self._waiting.popleft()
            self._gone += 1
            release(late(argument, self._late_status(offset)))
        self._note_answered()

    def _late_status(self, offset: int) -> PutStatus:
        return next((gate.late for gate in self._gates if gate.safe < offset), PutStatus.OK)

    def _start_timer(self) -> None:
        self._timer = None
        wait_s = self.tick(self._clock.monotonic())
        if wait_s is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._start_timer)

    async def stop(self) -> None:
        """Give up what still waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.abandon()

    # -- one waiter ------------------------------------------------------------------------------------

    async def stored(self, offset: int) -> PutStatus:
        """Return when the log is safe up to ``offset``, or with why not after the timeout.

        Raises:
            StoreClosedError: a gate failed; whether the message survives is unknown.
        """
        self._check()
        if offset <= self.safe:
            return PutStatus.OK
        done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def finish(status: PutStatus) -> None:
            if not done.done():
                done.set_result(status)

        self.when_safe(offset, finish, PutStatus.OK, lambda _ok, status: status, done.cancel)
        for gate in self._gates:
            gate.want(offset)
        try:
            return await done
        except asyncio.CancelledError:
            if done.cancelled():
                self._check()
            raise

    def _check(self) -> None:
        error = next((gate.error for gate in self._gates if gate.error is not None), None)
        if error is not None:
            raise StoreClosedError(f"the commit log could not be flushed: {error}")


def with_code(responses: bytes, status: PutStatus) -> bytes:
    """Encoded responses of success, one behind the other, as responses of ``status``."""
    decoder = FrameDecoder()
    decoder.feed(responses)
    changed = []
    for command in decoder.commands():
        command.code = RESPONSE_CODES[status]
        changed.append(encode_frame(command))
    return b"".join(changed)
