"""The progress of the delay levels, which slaves copy (ScheduleMessageService.encode)."""

from __future__ import annotations

from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.stats import DelayOffsetSerializeWrapper
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class DelayHandlers(HandlerFamily):
    """GET_ALL_DELAY_OFFSET."""

    def __init__(self, delays: DelayProgress) -> None:
        self._delays = delays

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.table}

    def table(self, _connection: ServerConnection, command: Command) -> Answer:
        """The table as ``delayOffset.json`` holds it."""
        body = DelayOffsetSerializeWrapper(self._delays.table(), self._delays.version)
        return command.reply(body=body.encode())
