"""The client behind a request that may be answered later, when messages are there."""

from __future__ import annotations

from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class WaitingClient:
    """Waits on its connection for the answer to one request."""

    __slots__ = ("_command", "_connection")

    def __init__(self, connection: ServerConnection, command: Command) -> None:
        self._connection = connection
        self._command = command

    @property
    def gone(self) -> bool:
        return self._connection.closed

    def refuse(self, error: RemotingError) -> None:
        self._connection.send(self._command.reply(error.code, error.remark))
