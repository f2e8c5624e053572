"""What several servers answer, also when one of them does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")
R = TypeVar("R")
NOT_ALL = "not all brokers did it"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A server that did not tell or do what several were asked for.

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
        """Whether it may do what it was asked for all the same.

        Only the answer is missing; or a broker made a change that its disk refused, which it tries again.
        """
        if isinstance(self.error, BrokerError):
            return self.error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        return isinstance(self.error, ConnectionLostError | RequestTimeoutError)

    def __str__(self) -> str:
        return f"{self.name} at {self.address}: {self.reason}"


class IncompleteError(OrbitError):
    """Some servers told or did what they were asked for; others refused, or could not be reached in time.

    When none did it, the error of the first one is raised instead.

    Attributes:
        found: of those that did: what the call returns when all do. ``None``: it asks for one thing, and none
            of them has it.
        left_out: the others.
    """

    def __init__(self, found: Any, left_out: Sequence[LeftOut], text: str = NOT_ALL) -> None:
        super().__init__(f"{text}: {'; '.join(map(str, left_out))}")
        self.found = found
        self.left_out = tuple(left_out)


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

    def whole(self, found: R, text: str = NOT_ALL) -> R:
        """``found``, which was made of these answers, when it is complete; ``text`` of the error when not.

        Raises:
            IncompleteError: it is not.
            BrokerError, TransportError, WireError: nobody answered; of the first broker.
        """
        if not self.left_out:
            return found
        if len(self.left_out) == self.asked:
            raise self.left_out[0].error
        raise IncompleteError(found, self.left_out, text)


def left_out(name: str, address: str, error: OrbitError, timeout_ms: int) -> LeftOut:
    """The server that failed so; ``timeout_ms`` is how long it had."""
    if isinstance(error, RequestTimeoutError):
        reason = f"no answer in {timeout_ms / 1000:g} s"
    elif isinstance(error, BrokerError):
        reason = f"it answered code {error.code}: {error.remark or 'no remark'}"
    else:
        reason = str(error)
    return LeftOut(name, address, reason, error)
