"""One question to several name servers, without I/O: the asyncio clients and the blocking ones share these
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from orbitmq.errors import NameServerError, OrbitError
from orbitmq.wire.bodies.route import ClusterInfo, TopicRouteData
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError
from orbitmq.wire.refusals import error_of, refuses_user

T = TypeVar("T")


class Inquiry(Generic[T]):
    """Decides which server to ask next, and derives the result from the answers.

    ::

        inquiry = route_inquiry("orders", addresses, now_ms=clock)
        for address, timeout_ms in inquiry:
            try:
                inquiry.answered(address, exchange(address, inquiry.command(), timeout_ms))
            except TransportError as error:
                inquiry.failed(address, error)
        route = inquiry.result()

    Args:
        command: creates the request, a new one for each server.
        read: decodes an answer with the code SUCCESS.
        addresses: ``host:port`` each.
        first: index of the first server to ask.
        timeout_ms: for all servers together. Each server gets an equal share of the time left.
        now_ms: any monotonic clock.
        unknown_codes: codes that mean "not known here". After such a code the next server is asked, too,
            since the first one may have just started.
    """

    def __init__(
        self,
        command: Callable[[], Command],
        read: Callable[[bytes], T],
        addresses: Sequence[str],
        *,
        now_ms: Callable[[], float],
        first: int = 0,
        timeout_ms: float = 3000,
        unknown_codes: frozenset[int] = frozenset(),
    ) -> None:
        self._make = command
        self._sent = Command(code=0)
        self._read = read
        self._addresses = addresses
        self._first = first
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._unknown_codes = unknown_codes
        self._tried: list[tuple[str, str]] = []
        self._unknown = False
        self._found: tuple[T, str] | None = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Each address with its share of the time left, until a server has answered.

        Raises:
            NameServerError: no name server is configured.
        """
        count = len(self._addresses)
        if not count:
            raise NameServerError("no name server is configured; pass name_servers='host:port'")
        deadline_ms = self._now_ms() + self._timeout_ms
        for step in range(count):
            share = (deadline_ms - self._now_ms()) / (count - step)
            yield self._addresses[(self._first + step) % count], max(1, int(share))
            if self._found is not None:
                return

    def command(self) -> Command:
        """The request, a new one for each server."""
        self._sent = self._make()
        return self._sent

    def failed(self, address: str, error: OrbitError) -> None:
        """Note that ``address`` did not answer."""
        self._tried.append((address, str(error)))

    def answered(self, address: str, answer: Command) -> None:
        """Note an answer, of any code.

        Raises:
            NotPermittedError: the server refuses this client; the other name servers would refuse it, too.
        """
        if answer.code in self._unknown_codes:
            self._unknown = True
        elif answer.code != ResponseCode.SUCCESS:
            error = error_of(self._sent, answer, address)
            if refuses_user(answer.code, answer.remark):
                raise error
            self._tried.append((address, str(error)))
        else:
            try:
                self._found = self._read(answer.body), address
            except WireError as error:
                self._tried.append((address, f"unreadable answer of {address}: {error}"))

    @property
    def answered_by(self) -> int | None:
        """Index of the server that gave the result, to be the first server next time."""
        return None if self._found is None else self._addresses.index(self._found[1])

    def result(self) -> T | None:
        """The result; None if every server that answered has none.

        Raises:
            NameServerError: no server gave a usable answer; ``tried`` holds the failure of each.
        """
        if self._found is not None:
            return self._found[0]
        if self._unknown:
            return None
        details = "; ".join(problem for _, problem in self._tried)
        raise NameServerError(f"no name server gave an answer ({details})", self._tried)


def route_inquiry(
    topic: str,
    addresses: Sequence[str],
    *,
    now_ms: Callable[[], float],
    first: int = 0,
    timeout_ms: float = 3000,
) -> Inquiry[TopicRouteData]:
    """The question for the route of a topic (GET_ROUTEINFO_BY_TOPIC)."""

    def command() -> Command:
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        return Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext)

    return Inquiry(
        command,
        TopicRouteData.decode,
        addresses,
        now_ms=now_ms,
        first=first,
        timeout_ms=timeout_ms,
        unknown_codes=frozenset({ResponseCode.TOPIC_NOT_EXIST}),
    )


def cluster_inquiry(
    addresses: Sequence[str], *, now_ms: Callable[[], float], first: int = 0, timeout_ms: float = 3000
) -> Inquiry[ClusterInfo]:
    """The question for all live brokers (GET_BROKER_CLUSTER_INFO)."""
    command = partial(Command, RequestCode.GET_BROKER_CLUSTER_INFO)
    return Inquiry(command, ClusterInfo.decode, addresses, now_ms=now_ms, first=first, timeout_ms=timeout_ms)


def topics_inquiry(
    addresses: Sequence[str], *, now_ms: Callable[[], float], timeout_ms: float = 3000
) -> Inquiry[TopicList]:
    """The question for the names of all topics (GET_ALL_TOPIC_LIST_FROM_NAMESERVER)."""

    def command() -> Command:
        return Command(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    return Inquiry(command, TopicList.decode, addresses, now_ms=now_ms, timeout_ms=timeout_ms)
