"""Dead letters that are sent again: requests of OrbitMQ's own."""

from __future__ import annotations

from orbitmq.broker.dead_letters.redrives import Redrives
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class DeadLetterHandlers(HandlerFamily):
    """START_REDRIVE, LIST_REDRIVES, CHANGE_REDRIVE."""

    def __init__(self, redrives: Redrives) -> None:
        self._redrives = redrives

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.START_REDRIVE: self.start,
            RequestCode.LIST_REDRIVES: self.list,
            RequestCode.CHANGE_REDRIVE: self.change,
        }

    async def start(self, _connection: ServerConnection, command: Command) -> Command:
        """Start a redrive, or only count its messages."""
        facts = await self._redrives.begin(bodies.RedriveRequest.decode(command.body))
        return command.reply(body=facts.encode())

    def list(self, _connection: ServerConnection, command: Command) -> Answer:
        """The last redrive of each group."""
        return command.reply(body=bodies.encode_list(self._redrives.all()))

    async def change(self, _connection: ServerConnection, command: Command) -> Command:
        """Pause, resume or stop a redrive."""
        header = headers.ChangeRedriveRequest.from_ext(command.ext)
        try:
            action = bodies.RedriveAction(header.action)
        except ValueError as error:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"action {error}, expected PAUSE, RESUME or STOP"
            ) from error
        facts = await self._redrives.change(header.group, action)
        return command.reply(body=facts.encode())
