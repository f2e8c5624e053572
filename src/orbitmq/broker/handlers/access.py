"""Users and rules (AdminBrokerProcessor, 3001 to 3010), and the accounts of ACL 1.0 (50 to 54)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.wire.command import Command


class AccessHandlers(HandlerFamily):
    """Changes and listings."""

    def __init__(self, by_code: Mapping[int, Callable[[Command], Answer]]) -> None:
        self._by_code = by_code

    def routes(self) -> dict[int, Handler]:
        return {code: _handler(answer) for code, answer in self._by_code.items()}


def _handler(answer: Callable[[Command], Answer]) -> Handler:
    return lambda _connection, command: answer(command)
