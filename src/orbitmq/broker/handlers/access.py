"""Users and rules (AdminBrokerProcessor, 3001 to 3010)."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.auth.access_requests import AccessRequests
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.wire.command import Command


class AccessHandlers(HandlerFamily):
    """Changes and listings."""

    def __init__(self, requests: AccessRequests) -> None:
        self._requests = requests

    def routes(self) -> dict[int, Handler]:
        return {code: _handler(answer) for code, answer in self._requests.by_code.items()}


def _handler(answer: Callable[[Command], Answer]) -> Handler:
    return lambda _connection, command: answer(command)
