"""Asks a server's gate about each request, and logs what it refuses."""

from __future__ import annotations

import logging

from orbitmq.auth.gate import Gate
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class Guard:
    """Stands before a server's handlers.

    Args:
        log: gets one line a second about refusals, at most.
    """

    def __init__(self, gate: Gate, log: logging.Logger) -> None:
        self._gate = gate
        self._log = LogLimiter(log)

    def check(self, connection: ServerConnection, command: Command) -> None:
        """Raise unless the sender is permitted to make the request.

        Raises:
            RemotingError: NO_PERMISSION.
            WireError: a field or body that names what is asked is missing or cannot be read.
        """
        try:
            self._gate.check(command, connection.remote[0])
        except RemotingError as error:
            self._log.write(
                logging.WARNING,
                "not permitted",
                "request %d from %s is refused: %r",
                command.code,
                connection.remote_address,
                error.remark,
            )
            raise
