"""Commands that wait for Telemetry streams. A client that does not read its stream delays no other client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call

# The most answers that wait on one stream; beyond that the oldest is dropped.
MAX_ANSWERS: Final = 32
# The most questions that wait on one stream, their bytes, and the bytes on all streams of this broker.
MAX_QUESTIONS: Final = 1000
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_ALL_BYTES: Final = 64 * 1024 * 1024


class Room:
    """The bytes that waiting questions of all streams may take together."""

    def __init__(self, limit_bytes: int = MAX_ALL_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Take room; False when there is not enough."""
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
        keep: of the stream's call: counts the answers that wait.
    """

    def __init__(self, room: Room, keep: Callable[[int], bool]) -> None:
        self._room = room
        self._keep = keep
        # Lists: most streams wait with nothing in them, and an empty deque takes 700 bytes.
        self._answers: list[bytes] = []
        self._questions: list[bytes] = []
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._closed = False

    def answer(self, command: schema.TelemetryCommand) -> bool:
        """Send a command behind the answers that wait, before the questions; False when there is no room."""
        data = command.SerializeToString()
        if len(self._answers) >= MAX_ANSWERS:
            self._next_answer()
        if not self._keep(len(data)):
            return False
        self._answers.append(data)
        self._awake()
        return True

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """Send a question behind those that wait; False when there is no room, or the stream has ended."""
        data = command.SerializeToString()
        full = len(self._questions) >= MAX_QUESTIONS or self._bytes + len(data) > MAX_BYTES
        if self._closed or full or not self._room.take(len(data)):
            return False
        self._bytes += len(data)
        self._questions.append(data)
        self._awake()
        return True

    def close(self) -> None:
        """End the stream when the waiting answers are sent."""
        self._closed = True
        self._awake()

    async def pump(self, call: Call) -> None:
        """Send the waiting commands until the outbox is closed or the client is gone."""
        try:
            while True:
                while self._answers or self._questions:
                    if self._answers:
                        await call.write(self._next_answer())
                    elif self._closed:
                        return
                    else:
                        await call.write(self._next_question())
                if self._closed:
                    return
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
        finally:
            self._closed = True
            while self._answers:
                self._next_answer()
            while self._questions:
                self._next_question()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _next_answer(self) -> bytes:
        data = self._answers.pop(0)
        self._keep(-len(data))
        return data

    def _next_question(self) -> bytes:
        data = self._questions.pop(0)
        self._bytes -= len(data)
        self._room.give(len(data))
        return data
