"""Answers that show secrets only on connections that no third party can read: TLS, or this machine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

from orbitmq.auth.rules import address_of
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command

A = TypeVar("A")
Answers: TypeAlias = Mapping[int, Callable[[Command], A]]


class PrivateAnswers(Generic[A]):
    """The handlers of some request codes, some of them with a second handler that shows secrets.

    Args:
        by_code: the handlers that show no secrets.
        revealing: the handlers that show secrets and replace those of ``by_code`` on private connections.
        behind_proxies: whether clients connect through proxies: an address of this machine proves nothing
            then.
    """

    def __init__(self, by_code: Answers[A], revealing: Answers[A], *, behind_proxies: bool) -> None:
        self._by_code = by_code
        self._revealing = revealing
        self._behind_proxies = behind_proxies

    @property
    def codes(self) -> list[int]:
        """The codes of the requests that have a handler."""
        return list(self._by_code)

    def answer(self, connection: ServerConnection, command: Command) -> A:
        """The answer to a request with one of these codes."""
        revealing = self._revealing.get(command.code)
        if revealing is not None and self._is_private(connection):
            return revealing(command)
        return self._by_code[command.code](command)

    def _is_private(self, connection: ServerConnection) -> bool:
        address = address_of(connection.remote[0])
        near = address is not None and address.is_loopback
        return connection.secured or (near and not self._behind_proxies)
