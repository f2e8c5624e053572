"""The requests for quotas, which are OrbitMQ's own."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.quotas.table import QuotaTable
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.base import encode_list
from orbitmq.wire.bodies.quota import Quota
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class QuotaHandlers(HandlerFamily):
    """SET_QUOTA and LIST_QUOTAS."""

    def __init__(self, table: QuotaTable) -> None:
        self._table = table

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.SET_QUOTA: self.set, RequestCode.LIST_QUOTAS: self.list}

    def set(self, _connection: ServerConnection, command: Command) -> Answer:
        """Set or remove a quota; answered when the change is on the device."""
        return self._set(Quota.decode(command.body or b""), command)

    async def _set(self, quota: Quota, command: Command) -> Command:
        await self._table.set(quota)
        return command.reply()

    def list(self, _connection: ServerConnection, command: Command) -> Answer:
        """All quotas."""
        return command.reply(body=encode_list(self._table.all()))
