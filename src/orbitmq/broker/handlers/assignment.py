"""Queues that the broker shares, and how groups get their messages (QueryAssignmentProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.handlers.base import Answer, Family, Handler, reply_after
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class AssignmentHandlers(Family):
    """QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    async def query(self, _connection: ServerConnection, command: Command) -> Command:
        """The queues of one member; without a list when they are not known now."""
        found = await self._assignments.of(bodies.QueryAssignmentRequestBody.decode(command.body))
        return command.reply(body=bodies.QueryAssignmentResponseBody(found).encode())

    def set_mode(self, _connection: ServerConnection, command: Command) -> Answer:
        """Switch a group between pulling and popping."""
        mode = bodies.SetMessageRequestModeRequestBody.decode(command.body)
        return reply_after(self._assignments.set_mode(mode), command)

    def modes(self, _connection: ServerConnection, command: Command) -> Answer:
        """How groups get messages, as ``messageRequestMode.json`` holds it: slaves copy it."""
        return command.reply(body=self._assignments.modes().encode())
