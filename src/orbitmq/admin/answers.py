"""Answers of several servers to one question, with the servers that did not answer."""

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
    """The error for what none of ``brokers`` has: the text alone, as it is the answer of all of them."""
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
        reason: why there is no answer, in words.
        error: the exception that was raised instead.
    """

    name: str
    address: str
    reason: str
    error: OrbitError

    @property
    def uncertain(self) -> bool:
        """Whether the server may have made a change, or will make it, although it did not confirm it.

        The request was sent and the answer is missing; or the broker could not write the change to its disk,
        and tries that again.
        """
        if isinstance(self.error, BrokerError):
            return self.error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        return isinstance(self.error, ConnectionLostError | RequestTimeoutError)

    def __str__(self) -> str:
        return f"{placed(self.name, self.address, self.reason)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Partial(Generic[FoundT]):
    """The result of the servers that answered, and the servers that are missing in it.

    Attributes:
        found: the result of the servers that answered.
        left_out: the servers that refused or did not answer in time; empty: the result is whole.
    """

    found: FoundT
    left_out: Sequence[LeftOut] = ()
    text: str = field(default=NOT_ALL, repr=False, compare=False)

    def whole(self) -> FoundT:
        """The result, when no server is left out.

        Raises:
            IncompleteError: a server is left out.
        """
        if self.left_out:
            raise IncompleteError(self)
        return self.found


class IncompleteError(OrbitError):
    """Some servers refused or did not answer: a result is not whole, or a change was not made everywhere.

    Attributes:
        partial: what was found or done at the other servers.
        left_out: the servers that refused or did not answer.
    """

    def __init__(self, partial: Partial[Any], text: str | None = None) -> None:
        super().__init__(f"{text or partial.text}: {'; '.join(map(str, partial.left_out))}")
        self.partial = partial
        self.left_out = partial.left_out


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers to one question that several brokers were asked.

    Attributes:
        asked: the number of brokers that were asked.
        pairs: brokers with their answers. One whose answer is that it has nothing of it may be missing.
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
        """These answers, with further brokers that were left out by an earlier question."""
        return Answers(self.asked + len(left_out), self.pairs, [*left_out, *self.left_out])

    def partial(self, found: R, text: str = NOT_ALL) -> Partial[R]:
        """A :class:`Partial` with ``found``, the result of these answers. ``text`` begins the error of
        ``whole()``.

        Raises:
            BrokerError, TransportError, WireError: no broker answered; the error of the first one.
        """
        if self.left_out and len(self.left_out) == self.asked:
            raise self.left_out[0].error
        return Partial(found, tuple(self.left_out), text)


def left_out(name: str, address: str, error: OrbitError, timeout_ms: int) -> LeftOut:
    """The server with its failure, in words. ``timeout_ms``: the time-out of the request."""
    if isinstance(error, RequestTimeoutError):
        reason = f"no answer in {timeout_ms / 1000:g} s"
    elif isinstance(error, BrokerError):
        reason = f"it answered code {error.code}: {error.remark or 'no remark'}"
    else:
        reason = str(error)
    return LeftOut(name, address, reason, error)
