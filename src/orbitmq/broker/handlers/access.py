"""Users and rules (AdminBrokerProcessor, 3001 to 3010), and the accounts of ACL 1.0 (50 to 54)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from orbitmq.auth.rules import address_of
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command

Answers: TypeAlias = Mapping[int, Callable[[Command], Answer]]


class AccessHandlers(HandlerFamily):
    """Changes and listings.

    Args:
        revealing: handlers that show secrets, in place of ``by_code`` on connections that nobody else can
            read: over TLS, or from this machine.
        behind_proxies: whether clients connect by proxies: then an address of this machine proves nothing.
    """

    def __init__(self, by_code: Answers, revealing: Answers, *, behind_proxies: bool) -> None:
        self._by_code = by_code
        self._revealing = revealing
        self._behind_proxies = behind_proxies

    def routes(self) -> dict[int, Handler]:
        return dict.fromkeys(self._by_code, self._answer)

    def _answer(self, connection: ServerConnection, command: Command) -> Answer:
        revealing = self._revealing.get(command.code)
        if revealing is not None and self._is_private(connection):
            return revealing(command)
        return self._by_code[command.code](command)

    def _is_private(self, connection: ServerConnection) -> bool:
        address = address_of(connection.remote[0])
        near = address is not None and address.is_loopback
        return connection.secured or (near and not self._behind_proxies)
