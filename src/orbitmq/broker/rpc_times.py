"""How long requests take, by their code and that of their answer; used only with metrics.

A request to a handler is timed by itself. Requests on the fast path are timed once for each chunk and code:
from the chunk's arrival until its answers may go. One-way requests, and requests that wait for messages, are
not timed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Final

from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

# The upper bounds of RocketMQ's histogram.
BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
DONE: Final = "success"
FAILED: Final = "process_request_failed"
_REQUESTS: Final[Mapping[int, str]] = {int(code): code.name.lower() for code in RequestCode}
_ANSWERS: Final[Mapping[int, str]] = {int(code): code.name.lower() for code in ResponseCode}


class RpcTimes:
    """Histograms of the times.

    Attributes:
        tellers: functions called before the times are read; each adds the times that it has noted.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tellers: list[Callable[[], None]] = []
        self._found: defaultdict[tuple[str, str, str], Histogram] = defaultdict(partial(Histogram, BOUNDS_MS))

    def note(self, request: int, answer: int, began: float, times: int = 1, result: str = DONE) -> None:
        """Note the answers to ``times`` requests of one code, received at ``began`` (monotonic seconds)."""
        key = _REQUESTS.get(request, "other"), _ANSWERS.get(answer, "other"), result
        self._found[key].note(int((self.clock.monotonic() - began) * 1000), times)

    def add(self, request: int, counts: Sequence[int], total_ms: int) -> None:
        """Add requests of one code that succeeded: their numbers by :data:`BOUNDS_MS`, and the sum of their
        times."""
        histogram = self._found[_REQUESTS[request], _ANSWERS[ResponseCode.SUCCESS], DONE]
        histogram.counts = [ours + theirs for ours, theirs in zip(histogram.counts, counts, strict=True)]
        histogram.total += total_ms

    def read(self) -> Mapping[tuple[str, str, str], Histogram]:
        """The times so far, by the names of request and answer, and by the result."""
        for tell in self.tellers:
            tell()
        return self._found

    def watch(self, handle: Handler, connection: ServerConnection, command: Command) -> Answer:
        """Return the answer of ``handle``, and note the time that it took."""
        began = self.clock.monotonic()
        try:
            answer = handle(connection, command)
        except BaseException as error:
            self._failed(command, error, began)
            raise
        if isawaitable(answer):
            return self._later(answer, command, began)
        self._answered(command, answer, began)
        return answer

    async def _later(
        self, answer: Awaitable[Command | None], command: Command, began: float
    ) -> Command | None:
        try:
            answered = await answer
        except BaseException as error:
            self._failed(command, error, began)
            raise
        self._answered(command, answered, began)
        return answered

    def _answered(self, command: Command, answer: Command | None, began: float) -> None:
        if answer is not None and not command.is_oneway:
            self.note(command.code, answer.code, began)

    def _failed(self, command: Command, error: BaseException, began: float) -> None:
        if command.is_oneway or not isinstance(error, Exception):
            return
        if isinstance(error, RemotingError):
            self.note(command.code, error.code, began)
        else:
            self.note(command.code, ResponseCode.SYSTEM_ERROR, began, result=FAILED)
