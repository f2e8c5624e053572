"""Holds commands until their Telemetry streams take them, so that a slow client delays no other one."""

from __future__ import annotations

from collections import deque
from typing import Final

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, CallError

# The most answers that wait on one stream; beyond this the oldest is dropped.
MAX_ANSWERS: Final = 32
# The most questions that wait on one stream, the most bytes of them, and the most bytes on all streams.
MAX_QUESTIONS: Final = 1000
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_ALL_BYTES: Final = 64 * 1024 * 1024


class Room:
    """The bytes that waiting questions of all streams may take together."""

    def __init__(self, limit_bytes: int = MAX_ALL_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Take room for this many bytes; returns False if there is not enough."""
        if self.used_bytes + size > self._limit_bytes:
            return False
        self.used_bytes += size
        return True

    def give(self, size: int) -> None:
        """Give back room that was taken."""
        self.used_bytes -= size


class StreamOutbox:
    """The commands that wait for one stream.

    Args:
        room: the bytes for questions, shared by all streams.
        call: the call of the stream, which counts the bytes of the waiting answers.

    Attributes:
        closed: whether the outbox takes no more questions; the stream ends when the waiting answers are sent.
    """

    __slots__ = (
        "_answers",
        "_bytes",
        "_call",
        "_error",
        "_lost",
        "_pumps",
        "_questions",
        "_room",
        "_writes",
        "closed",
    )

    def __init__(self, room: Room, call: Call) -> None:
        self._room = room
        self._call = call
        # None while no commands wait, as on most streams: an empty deque takes 700 bytes.
        self._answers: deque[bytes] | None = None
        self._questions: deque[bytes] | None = None
        self._bytes = 0
        # Whether a command is being written, whether :meth:`pump` runs, and whether the stream has ended.
        self._writes = self._pumps = self._lost = False
        self._error: CallError | None = None
        self.closed = False

    @property
    def idle(self) -> bool:
        """Whether no command waits or is being written, and the stream is not about to end."""
        busy = self._writes or self._pumps or self.closed
        return not busy and self._answers is None and self._questions is None

    def answer(self, command: schema.TelemetryCommand) -> bool:
        """Send a command after the waiting answers, before the questions; False when there is no room."""
        data = command.SerializeToString()
        if self._answers is not None and len(self._answers) >= MAX_ANSWERS:
            self._next_answer(self._answers)
        if self._lost or not self._call.keep(len(data)):
            return False
        self._answers = self._answers or deque()
        self._answers.append(data)
        self.pump()
        return True

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """Send a question after the waiting ones; False when there is no room, or the stream has ended."""
        data = command.SerializeToString()
        waiting = 0 if self._questions is None else len(self._questions)
        full = waiting >= MAX_QUESTIONS or self._bytes + len(data) > MAX_BYTES
        if self.closed or full or not self._room.take(len(data)):
            return False
        self._bytes += len(data)
        self._questions = self._questions or deque()
        self._questions.append(data)
        self.pump()
        return True

    def close(self, error: CallError | None = None) -> None:
        """End the stream when the waiting answers are sent; without an error its status is OK."""
        if not self.closed:
            self.closed = True
            self._error = error
            self.pump()

    def wrote(self) -> None:
        """Go on after a command was sent; a :meth:`pump` that still runs goes on by itself."""
        self._writes = False
        self.pump()

    def pump(self) -> None:
        """Send the waiting commands, as far as the client's window allows."""
        if self._pumps or self._lost:
            return
        self._pumps = True
        try:
            while not self._writes:
                if self._answers:
                    self._put(self._next_answer(self._answers))
                elif self.closed:
                    self._call.end(self._error)
                    return
                elif self._questions:
                    self._put(self._next_question(self._questions))
                else:
                    return
        except CallError as error:
            self._call.end(error)
        finally:
            self._pumps = False

    def lost(self) -> None:
        """Drop the waiting commands: the stream has ended."""
        self._lost = self.closed = True
        while self._answers:
            self._next_answer(self._answers)
        while self._questions:
            self._next_question(self._questions)

    def _put(self, data: bytes) -> None:
        self._writes = True
        self._call.put(data)

    def _next_answer(self, answers: deque[bytes]) -> bytes:
        data = answers.popleft()
        self._answers = answers or None
        self._call.keep(-len(data))
        return data

    def _next_question(self, questions: deque[bytes]) -> bytes:
        data = questions.popleft()
        self._questions = questions or None
        self._bytes -= len(data)
        self._room.give(len(data))
        return data
