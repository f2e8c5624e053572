"""Handles a name server's notice that the members of a group changed."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class MemberHandlers(HandlerFamily):
    """Handles the notice that the lowest broker id changed. It names no broker (MB-04), so the members are
    requested."""

    def __init__(self, look_now: Callable[[], object]) -> None:
        self._look_now = look_now

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.changed}

    def changed(self, _connection: ServerConnection, command: Command) -> Answer:
        """Request the members at once; the content of the notice is not used."""
        self._look_now()
        return command.reply()
