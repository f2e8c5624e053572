"""When a message is safe: answers to senders wait here until disk and replicas have the message.

*Safe up to an offset* of the commit log means: every gate has all records below it. The disk is a gate; the
replicas are another, which exists only in some roles of the broker. Answers wait in one queue in the order of
the log, with a deadline at each gate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime.seam import Clock
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.store.log.flush import Flusher
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.frame import FrameDecoder, encode_frame

# The answer to a sender (SendMessageProcessor.handlePutMessageResult).
RESPONSE_CODES: Mapping[PutStatus, ResponseCode] = {
    PutStatus.OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
# RocketMQ sends no remark with the other statuses.
REMARKS: Mapping[PutStatus, str] = {
    PutStatus.SERVICE_NOT_AVAILABLE: "the commit log could not be written in time: the message is in memory "
    "alone, and is stored when the disk takes it"
}
# Deadlines are checked at least this often, so an answer may be this much late.
TICK_SECONDS = 0.1

Release: TypeAlias = Callable[[Any], object]
Late: TypeAlias = Callable[[Any, PutStatus], Any]
GiveUp: TypeAlias = Callable[[], object]
_Waiting: TypeAlias = tuple[int, Release, Any, Late, GiveUp]


class Gate(Protocol):
    """A place that must have a message before the message counts as safe: the disk, or the replicas.

    Attributes:
        late: the status of a sender's answer when this gate keeps it waiting too long.
        timeout_ms: that time, to which :data:`TICK_SECONDS` are added; may change at any time, also for
            waiting answers.
        holds: whether the gate can be behind the written log.
        refusal: why messages whose sender would wait for this gate are refused now; ``None``: they are taken.
        safe_status: the status that senders get when the gate has released their messages.
        error: why this gate will never advance; ``None`` while it works.
    """

    late: PutStatus

    @property
    def timeout_ms(self) -> int: ...

    @property
    def holds(self) -> bool: ...

    @property
    def refusal(self) -> str | None: ...

    @property
    def safe_status(self) -> PutStatus: ...

    @property
    def safe(self) -> int:
        """The offset up to which this gate has every record."""
        ...

    @property
    def error(self) -> BaseException | None: ...

    def request_safe(self, offset: int) -> None:
        """Note that an answer waits for this offset, which may be written already. Called while the gate
        holds."""
        ...

    def tick(self, now: float) -> None:
        """Called again and again while answers wait; ``now`` in monotonic seconds."""
        ...


class DiskGate:
    """The commit log's files: on the device with SYNC_FLUSH, else written."""

    late = PutStatus.FLUSH_DISK_TIMEOUT
    safe_status = PutStatus.OK
    refusal = None

    def __init__(self, flusher: Flusher, config: BrokerConfig) -> None:
        self._flusher = flusher
        self._config = config
        self.request_safe = flusher.request_safe

    @property
    def timeout_ms(self) -> int:
        return self._config.sync_flush_timeout_ms

    @property
    def holds(self) -> bool:
        return self._flusher.sync

    @property
    def safe(self) -> int:
        return self._flusher.safe

    @property
    def error(self) -> BaseException | None:
        return self._flusher.error

    def tick(self, now: float) -> None:
        """Does nothing: for a disk only written bytes matter, not the time."""


class Durability(Component):
    """The queue of answers. A gate calls :meth:`advance` when it has more, :meth:`changed` when it requires
    more or less than before, and :meth:`abandon` when it fails.

    Args:
        gates: the first gate that is behind gives the status of a late answer.
        written: writes the messages put so far, which may release answers; returns the end of the log's
            files. A sender whose message the disk refuses, so that it is behind that end, gets
            SERVICE_NOT_AVAILABLE: a "late" status would mean that the message is stored.
        answered: called with how many ms the oldest of the answers released together had waited.

    Attributes:
        holds: whether answers wait for more than the write.
        refusal: why messages whose sender waits are refused now; ``None``: they are taken.
    """

    name = "durability"

    def __init__(
        self,
        clock: Clock,
        gates: Sequence[Gate],
        written: Callable[[], int],
        answered: Callable[[int], object] = lambda _elapsed_ms: None,
    ) -> None:
        self._monotonic = clock.monotonic
        self._gates = list(gates)
        self._written = written
        # ``request_safe`` of the gates that may be behind the written log.
        self._safe_requests: list[Callable[[int], None]] = []
        self._waiting: deque[_Waiting] = deque()
        # How many answers have left the queue; with its length added, how many were ever in it.
        self._gone = 0
        # (time, number of answers ever queued by then), oldest first: no answer carries its own time.
        self._marks: deque[tuple[float, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._answered = answered
        # When the first answer was queued after each release: (number of answers before it, time).
        self._groups: deque[tuple[int, float]] = deque()
        self._group_open = False
        self._safe_status = PutStatus.OK
        self.holds = False
        self.refusal: str | None = None
        self.changed()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether an answer waits."""
        return bool(self._waiting)

    @property
    def safe(self) -> int:
        """The offset below which all gates have every record."""
        gates = self._gates
        return gates[0].safe if len(gates) == 1 else min([gate.safe for gate in gates])

    # -- gates -----------------------------------------------------------------------------------------

    def add(self, gate: Gate) -> None:
        """Let answers wait for ``gate`` too, also answers that are queued already.

        Its late status takes precedence over those of the other gates.
        """
        self._gates.insert(0, gate)
        self.changed()

    def remove(self, gate: Gate) -> None:
        """Wait for ``gate`` no more. Answers that it held up are late: it may never have their messages."""
        if gate not in self._gates:
            return
        written = self._written()
        kept = [answer for answer in self._waiting if answer[0] <= gate.safe]
        late = list(self._waiting)[len(kept) :]
        self._waiting = deque(kept)
        self._gates.remove(gate)
        # Answers left from the middle of the queue, so the notes that count answers are wrong now.
        self._marks.clear()
        self._groups.clear()
        for offset, release, argument, late_answer, _ in late:
            release(late_answer(argument, _if_there(gate.late, offset, written)))
        self.changed()

    def changed(self) -> None:
        """Read the gates' requirements again: a gate requires more or less than before."""
        gates = self._gates
        self._safe_requests = [gate.request_safe for gate in gates if gate.holds]
        self.holds = bool(self._safe_requests)
        self.refusal = next((gate.refusal for gate in gates if gate.refusal is not None), None)
        self._safe_status = next(
            (gate.safe_status for gate in gates if gate.safe_status is not PutStatus.OK), PutStatus.OK
        )
        self.advance()

    # -- the queue -------------------------------------------------------------------------------------

    def when_safe(self, offset: int, release: Release, argument: Any, late: Late, give_up: GiveUp) -> None:
        """Call ``release(argument)`` when the log is safe up to ``offset``.

        After a gate's timeout ``release(late(argument, status))`` is called instead, and ``give_up()`` when
        the log can never be safe any more. Offsets do not go down from call to call; answers leave in order.
        """
        self._waiting.append((offset, release, argument, late, give_up))
        if not self._group_open:
            self._open_group()
        for request_safe in self._safe_requests:
            request_safe(offset)

    def release_or_queue(
        self, offset: int, release: Release, argument: Any, late: Late, give_up: GiveUp
    ) -> None:
        """Call ``release`` like :meth:`when_safe`, but at once if the log is safe already.

        Raises:
            StoreClosedError: as :meth:`stored`.
        """
        self._check()
        if offset > self.safe:
            self.when_safe(offset, release, argument, late, give_up)
        else:
            release(argument if self._safe_status is PutStatus.OK else late(argument, self._safe_status))

    def _open_group(self) -> None:
        """Note the time of the first answer queued after a release."""
        self._group_open = True
        self._groups.append((self._gone + len(self._waiting) - 1, self._monotonic()))
        if self._timer is None:
            self._start_timer()

    def advance(self) -> None:
        """Release the answers that are safe now."""
        waiting = self._waiting
        if not waiting:
            return
        gates = self._gates
        # The same as :attr:`safe` without one more call: this runs after every write.
        safe = gates[0].safe if len(gates) == 1 else self.safe
        safe_status = self._safe_status
        while waiting and waiting[0][0] <= safe:
            _, release, argument, late, _ = waiting.popleft()
            self._gone += 1
            release(argument if safe_status is PutStatus.OK else late(argument, safe_status))
        self._note_answered()

    def _note_answered(self) -> None:
        """Report how long the oldest of the released answers had waited."""
        self._group_open = False
        groups, gone = self._groups, self._gone
        if not groups or groups[0][0] >= gone:
            return
        oldest = groups.popleft()[1]
        while groups and groups[0][0] < gone:
            groups.popleft()
        self._answered(int((self._monotonic() - oldest) * 1000))

    def abandon(self) -> None:
        """Give up the waiting answers: none of them may report its message as safe."""
        while self._waiting:
            _, _, _, _, give_up = self._waiting.popleft()
            self._gone += 1
            give_up()
        self._groups.clear()
        self._group_open = False

    # -- deadlines -------------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Release the answers whose deadline has passed.

        Args:
            now: monotonic seconds.

        Returns:
            Seconds until the next call is due; ``None`` when no answer waits.
        """
        for gate in self._gates:
            gate.tick(now)
        self._release_late(now)
        marks = self._marks
        while marks and marks[0][1] <= self._gone:
            marks.popleft()
        if not self._waiting:
            return None
        total = self._gone + len(self._waiting)
        if not marks or marks[-1][1] < total:
            marks.append((now, total))
        ends = [mark + gate.timeout_ms / 1000 for mark, _ in marks for gate in self._gates]
        return min([TICK_SECONDS, *(end - now for end in ends if end > now)])

    def _release_late(self, now: float) -> None:
        """Release the late answers. They leave in order: an answer whose gate allows more time delays those
        behind it."""
        late = [(gate, self._queued_before(now, gate.timeout_ms)) for gate in self._gates]
        if all(number <= self._gone for _, number in late):
            return
        written = self._written()
        gone = self._gone
        while self._waiting:
            offset = self._waiting[0][0]
            if not any(self._gone < number and gate.safe < offset for gate, number in late):
                break
            self._release_one_late(_if_there(self._late_status(offset), offset, written))
        if self._gone > gone:
            self._note_answered()

    def _queued_before(self, now: float, timeout_ms: int) -> int:
        """How many answers have waited longer than ``timeout_ms``, including answers that have left."""
        number = 0
        for time, queued in self._marks:
            if time + timeout_ms / 1000 > now:
                break
            number = queued
        return number

    def _release_one_late(self, status: PutStatus) -> None:
        _, release, argument, late, _ = self._waiting.popleft()
        self._gone += 1
        release(late(argument, status))

    def _late_status(self, offset: int) -> PutStatus:
        return next((gate.late for gate in self._gates if gate.safe < offset), PutStatus.OK)

    def _start_timer(self) -> None:
        self._timer = None
        wait_s = self.tick(self._monotonic())
        if wait_s is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._start_timer)

    async def stop(self) -> None:
        """Give up the answers that still wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.abandon()

    # -- one waiter ------------------------------------------------------------------------------------

    async def stored(self, offset: int) -> PutStatus:
        """Return when the log is safe up to ``offset``, or after the timeout with the reason why it is not.

        Raises:
            StoreClosedError: a gate failed; whether the message survives is unknown.
        """
        self._check()
        if offset <= self.safe:
            return self._safe_status
        done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def finish(status: PutStatus) -> None:
            if not done.done():
                done.set_result(status)

        self.when_safe(offset, finish, PutStatus.OK, lambda _ok, status: status, done.cancel)
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


def _if_there(status: PutStatus, offset: int, written: int) -> PutStatus:
    return status if offset <= written else PutStatus.SERVICE_NOT_AVAILABLE


def with_code(responses: bytes, status: PutStatus) -> bytes:
    """Encoded success responses, one after the other, changed into responses of ``status``."""
    decoder = FrameDecoder()
    decoder.feed(responses)
    changed = []
    for command in decoder.commands():
        command.code, command.remark = RESPONSE_CODES[status], REMARKS.get(status, command.remark)
        changed.append(encode_frame(command))
    return b"".join(changed)
