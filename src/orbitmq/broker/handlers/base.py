"""The base of the handler families. A family is a door: it decodes, calls a service and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeAlias, TypeVar

from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import named_user

Answer: TypeAlias = Command | Awaitable[Command | None] | None
Handler: TypeAlias = Callable[[ServerConnection, Command], Answer]
T = TypeVar("T")


class HandlerFamily(ABC):
    """Handlers of related request codes. The constructor takes only the services that they call."""

    @abstractmethod
    def routes(self) -> dict[int, Handler]:
        """The method that answers each request code."""


def answer_with(outcome: T | Awaitable[T], reply: Callable[[T], Command]) -> Answer:
    """The answer that ``reply`` makes from a result, at once or when the result is ready."""
    if isawaitable(outcome):
        return _answer_later(outcome, reply)
    return reply(outcome)


async def _answer_later(outcome: Awaitable[T], reply: Callable[[T], Command]) -> Command:
    return reply(await outcome)


async def reply_after(done: Awaitable[None], command: Command) -> Command:
    """An empty response with SUCCESS, after ``done``."""
    await done
    return command.reply()


class WaitingClient:
    """The client behind a request that may be answered later, when messages arrive."""

    __slots__ = ("_command", "_connection")

    def __init__(self, connection: ServerConnection, command: Command) -> None:
        self._connection = connection
        self._command = command

    @property
    def gone(self) -> bool:
        return self._connection.closed

    def is_of(self, user: str) -> bool:
        return user in (named_user(self._command), self._command.certified)

    def recheck(self) -> bool:
        """Whether the user still has the right to the request; without it the request is refused."""
        try:
            self._connection.recheck(self._command)
        except RemotingError as error:
            self.refuse(error)
            return False
        return True

    def refuse(self, error: RemotingError) -> None:
        self._connection.send(self._command.reply(error.code, error.remark))
