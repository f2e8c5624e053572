"""Logs requests that take longer than ``slowRequestMillis``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from inspect import isawaitable

from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

log = logging.getLogger(__name__)

_NAMES = {int(code): code.name for code in RequestCode}


class SlowRequests:
    """Measures how long handlers take for their requests.

    A pull or a pop that waits for messages is not slow: its handler is done when the wait begins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limiter = LogLimiter(log)

    def watch(self, handle: Handler, connection: ServerConnection, command: Command, limit_ms: int) -> Answer:
        """Return the answer of ``handle``, and log the request if that took ``limit_ms`` or longer."""
        began = self._clock.monotonic()
        answer = handle(connection, command)
        if isawaitable(answer):
            return self._later(answer, connection, command, began, limit_ms)
        self._note(connection, command, began, limit_ms)
        return answer

    async def _later(
        self,
        answer: Awaitable[Command | None],
        connection: ServerConnection,
        command: Command,
        began: float,
        limit_ms: int,
    ) -> Command | None:
        try:
            return await answer
        finally:
            self._note(connection, command, began, limit_ms)

    def _note(self, connection: ServerConnection, command: Command, began: float, limit_ms: int) -> None:
        took_ms = round((self._clock.monotonic() - began) * 1000)
        if took_ms < limit_ms:
            return
        name = _NAMES.get(command.code, "of an unknown code")
        self._limiter.write(
            logging.WARNING,
            f"slow request {name}",
            "request %s of %s took %d ms",
            name,
            connection.remote_address,
            took_ms,
        )
