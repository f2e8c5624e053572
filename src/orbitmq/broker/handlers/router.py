"""Finds the handler of a request by its code."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable

from orbitmq.auth.needs import ACCESS, ACCOUNTS
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

log = logging.getLogger(__name__)


class Router:
    """Answers requests with the handlers of all families.

    Raises:
        ValueError: two families answer the same request code.
    """

    def __init__(self, families: Iterable[HandlerFamily]) -> None:
        self._routes: dict[int, Handler] = {}
        self._peers_log = LogLimiter(log)
        for family in families:
            for code, handler in family.routes().items():
                if code in self._routes:
                    raise ValueError(f"request code {code} has two handlers, the second is {handler}")
                self._routes[code] = handler

    def replace(self, families: Iterable[HandlerFamily]) -> None:
        """Add these handlers; they replace earlier ones for the same codes."""
        for family in families:
            self._routes.update(family.routes())

    def wrap(self, codes: Iterable[int], around: Callable[[int, Handler], Handler]) -> None:
        """Let ``around`` decide for each of ``codes`` whether and how its handler is called.

        Raises:
            KeyError: this broker has no handler for a code.
        """
        for code in codes:
            self._routes[code] = around(code, self._routes[code])

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that this broker answers."""
        return frozenset(self._routes)

    def handle(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer one request; a header or body that cannot be read is SYSTEM_ERROR, as in RocketMQ.

        Raises:
            RemotingError: the request is refused with this code and remark.
        """
        handler = self._routes.get(command.code)
        if handler is None:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _not_supported(command.code))
        try:
            answer = handler(connection, command)
        except WireError as error:
            return self._unreadable(connection, command, error)
        return self._read_later(connection, command, answer) if isawaitable(answer) else answer

    async def _read_later(
        self, connection: ServerConnection, command: Command, answer: Awaitable[Command | None]
    ) -> Command | None:
        """Await the answer of a handler that parses its request later."""
        try:
            return await answer
        except WireError as error:
            return self._unreadable(connection, command, error)

    def _unreadable(self, connection: ServerConnection, command: Command, error: WireError) -> Command:
        self._peers_log.write(
            logging.INFO,
            "bad request",
            "bad request %d from %s: %s",
            command.code,
            connection.remote_address,
            error,
        )
        return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


def _not_supported(code: int) -> str:
    """RocketMQ's remark; for a request code of RocketMQ with the reason why this broker does not have it."""
    if code in RequestCode.__members__.values():
        if code in ACCESS:
            return f" request type {code} not supported: authenticationEnabled is not set at this broker"
        if code in ACCOUNTS:
            return f" request type {code} not supported: aclEnable is not set at this broker"
        return f" request type {code} not supported: this broker has no {RequestCode(code).name} yet"
    return f" request type {code} not supported"
