"""What RocketMQ's slaves, and its masters in pre-online, ask for besides topics, groups and offsets."""

from __future__ import annotations

from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import DelayOffsetSerializeWrapper
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class CopyHandlers(Family):
    """Tables that other brokers copy."""

    def __init__(self, delays: DelayProgress, assignments: Assignments) -> None:
        self._delays = delays
        self._assignments = assignments

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.delays,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    def delays(self, _connection: ServerConnection, command: Command) -> Answer:
        """The progress of the delay levels, as ``delayOffset.json`` holds it."""
        body = DelayOffsetSerializeWrapper(self._delays.table(), self._delays.version)
        return command.reply(body=body.encode())

    def modes(self, _connection: ServerConnection, command: Command) -> Answer:
        """How groups get messages, as ``messageRequestMode.json`` holds it."""
        return command.reply(body=self._assignments.modes().encode())
