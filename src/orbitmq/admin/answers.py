"""Answers of several servers to one question, and the servers that did not answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")
R = TypeVar("R")
FoundT = TypeVar("FoundT", covariant=True)
NOT_ALL = "not all brokers answered"


def lacking(code: int, text: str, brokers: Sequence[BrokerInfo]) -> BrokerError:
    """The error for what none of ``brokers`` has: the text alone, because it is the answer of all of them."""
    error = BrokerError(code, text, brokers[0].address)
    error.args = (text,)
    return error


def placed(name: str, address: str, reason: str) -> str:
    """The server's name, followed by its address if the reason that follows does not name it."""
    return name if address in reason else f"{name} at {address}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A server that did not answer, or refused.

    Attributes:
        name: the broker's name, or "name server".
        address: ``host:port``.
        reason: the reason in words why there is no answer.
        error: the exception that was raised instead.
    """

    name: str
    address: str
    reason: str
    error: OrbitError

    @property
    def uncertain(self) -> bool:
        """Whether the server may have made the change, or may still make it, although it did not confirm it.

        Either the request was sent and its answer is missing, or the broker could not write the change to its
        disk and will try again.
        """
        if isinstance(self.error, BrokerError):
            return self.error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        return isinstance(self.error, ConnectionLostError | RequestTimeoutError)

    def __str__(self) -> str:
        return f"{placed(self.name, self.address, self.reason)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Partial(Generic[FoundT]):
    """The result of the servers that answered, and the servers that are missing from it.

    Attributes:
        found: the result of the servers that answered.
        left_out: the servers that refused or did not answer in time; empty if the result is complete.
    """

    found: FoundT
    left_out: Sequence[LeftOut] = ()
    text: str = field(default=NOT_ALL, repr=False, compare=False)

    def whole(self) -> FoundT:
        """The result, if no server is left out.

        Raises:
            IncompleteError: a server is left out.
        """
        if self.left_out:
            raise IncompleteError(self)
        return self.found


class IncompleteError(OrbitError):
    """Some servers refused or did not answer: a result is incomplete, or a change was not made everywhere.

    Attributes:
        partial: the result or the change at the other servers.
        left_out: the servers that refused or did not answer.
    """

    def __init__(self, partial: Partial[Any], text: str | None = None) -> None:
        super().__init__(f"{text or partial.text}: {'; '.join(map(str, partial.left_out))}")
        self.partial = partial
        self.left_out = partial.left_out


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers of several brokers to one question.

    Attributes:
        asked: the number of brokers that were asked.
        pairs: brokers with their answers. A broker that answered "not here" may be missing.
        left_out: the brokers that did not answer, or refused.
    """

    asked: int
    pairs: Sequence[tuple[BrokerInfo, T]]
    left_out: Sequence[LeftOut]

    @property
    def names(self) -> list[str]:
        """Names of the brokers that answered."""
        return [broker.name for broker, _ in self.pairs]

    def beside(self, left_out: Sequence[LeftOut]) -> Answers[T]:
        """These answers, with the brokers added that an earlier question left out."""
        return Answers(self.asked + len(left_out), self.pairs, [*left_out, *self.left_out])

    def partial(self, found: R, text: str = NOT_ALL) -> Partial[R]:
        """A :class:`Partial` with ``found``, the result of these answers. ``text`` is the first part of the
        error that ``whole()`` raises.

        Raises:
            BrokerError, TransportError, WireError: no broker answered; the error of the first one.
        """
        if self.left_out and len(self.left_out) == self.asked:
            raise self.left_out[0].error
        return Partial(found, tuple(self.left_out), text)


def left_out(name: str, address: str, error: OrbitError, timeout_ms: int) -> LeftOut:
    """The server with the reason of its failure in words. ``timeout_ms``: the timeout of the request."""
    if isinstance(error, RequestTimeoutError):
        reason = f"no answer in {timeout_ms / 1000:g} s"
    elif isinstance(error, BrokerError):
        reason = f"it answered code {error.code}: {error.remark or 'no remark'}"
    else:
        reason = str(error)
    return LeftOut(name, address, reason, error)
