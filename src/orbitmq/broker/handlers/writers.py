"""The request of writers that replace each other, which is OrbitMQ's own."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.writers.fences import Epoch, Writers
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.writer import BindWriterRequest


class WriterHandlers(HandlerFamily):
    """BIND_WRITER."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.BIND_WRITER: self.bind}

    def bind(self, connection: ServerConnection, command: Command) -> Answer:
        """Bind the connection to an attempt of a writer, or end all earlier attempts."""
        header = BindWriterRequest.from_ext(command.ext)
        epoch = Epoch(header.run, header.part, header.turn)
        if header.fence:
            return self._fence(header.writer, epoch, command)
        self._writers.bind(connection, header.writer, epoch)
        return command.reply()

    async def _fence(self, writer: str, epoch: Epoch, command: Command) -> Command:
        await self._writers.fence(writer, epoch)
        return command.reply()
