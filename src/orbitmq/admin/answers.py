"""The answers of several servers, also when one of them does not answer."""

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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A server that did not answer, or refused.

    Attributes:
        name: the broker's name, or "name server".
        address: ``host:port``.
        reason: what happened instead, in words.
        error: the same for programs.
    """

    name: str
    address: str
    reason: str
    error: OrbitError

    @property
    def uncertain(self) -> bool:
        """Whether a change may be made there all the same.

        Only the answer is missing; or a broker made a change that its disk refused, which it tries again.
        """
        if isinstance(self.error, BrokerError):
            return self.error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        return isinstance(self.error, ConnectionLostError | RequestTimeoutError)

    def __str__(self) -> str:
        return f"{self.name} at {self.address}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Partial(Generic[FoundT]):
    """What the servers that answered have, and which servers are left out.

    Attributes:
        found: the result, of the servers that answered.
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
        asked: how many.
        told: who answered what. Those that answered that they have nothing of it may be missing.
        left_out: who did not answer, or refused.
    """

    asked: int
    told: Sequence[tuple[BrokerInfo, T]]
    left_out: Sequence[LeftOut]

    @property
    def names(self) -> list[str]:
        """Names of the brokers that answered."""
        return [broker.name for broker, _ in self.told]

    def beside(self, left_out: Sequence[LeftOut]) -> Answers[T]:
        """The same, where others were left out before."""
        return Answers(self.asked + len(left_out), self.told, [*left_out, *self.left_out])

    def partial(self, found: R, text: str = NOT_ALL) -> Partial[R]:
        """``found``, which was made of these answers; ``text`` begins the error of :meth:`Partial.whole`.

        Raises:
            BrokerError, TransportError, WireError: nobody answered; of the first broker.
        """
        if self.left_out and len(self.left_out) == self.asked:
            raise self.left_out[0].error
        return Partial(found, tuple(self.left_out), text)


def left_out(name: str, address: str, error: OrbitError, timeout_ms: int) -> LeftOut:
    """The server that failed so; ``timeout_ms`` is how long it had."""
    if isinstance(error, RequestTimeoutError):
        reason = f"no answer in {timeout_ms / 1000:g} s"
    elif isinstance(error, BrokerError):
        reason = f"it answered code {error.code}: {error.remark or 'no remark'}"
    else:
        reason = str(error)
    return LeftOut(name, address, reason, error)
