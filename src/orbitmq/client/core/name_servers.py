"""Requests to name servers. A client stays with the name server that answered last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.core.inquiry import Inquiry, cluster_inquiry, route_inquiry
from orbitmq.errors import NameServerError, ValidationError
from orbitmq.transport.errors import TransportError
from orbitmq.transport.name_server_list import NameServerList
from orbitmq.wire import addresses
from orbitmq.wire.addresses import Source
from orbitmq.wire.bodies.route import ClusterInfo, TopicRouteData
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from orbitmq.runtime.seam import HostFacts
    from orbitmq.transport.client import RemotingClient

T = TypeVar("T")
# Called with the addresses, the index of the first one to ask, and the time limit for all of them in
# milliseconds.
MakeInquiry = Callable[[Sequence[str], int, float], Inquiry[T]]

TIMEOUT_MS = 3000
VARIABLE = "NAMESRV_ADDR"
DEFAULT = "127.0.0.1:9876"
# The interval at which MQClientInstance fetches the list.
REFRESH_S = 120.0
RETRY_S = 10.0
RETRY_FETCH_MS = 1000


def name_servers_of(given: str | None, host: HostFacts) -> Source:
    """The user's addresses, else those of ``NAMESRV_ADDR``, else the name server of this machine.

    A variable without an address in it counts as not set.

    Raises:
        ValidationError: the text is neither a list of ``host:port`` nor a URL; see
            :func:`orbitmq.wire.addresses.source`.
    """
    if given is not None:
        return parse_source(given)
    return parse_source(host.variable(VARIABLE), f"{VARIABLE}: ") or (DEFAULT,)


def parse_source(text: str, where: str = "") -> Source:
    """Parse the user's text for name servers, see :func:`orbitmq.wire.addresses.source`.

    Raises:
        ValidationError: the text is invalid; the error begins with ``where``.
    """
    try:
        return addresses.source(text)
    except addresses.AddressError as error:
        raise ValidationError(f"{where}name server address {error}") from error


class NameServers:
    """The name servers of a list, of an address server, or of DNS.

    The list of an address server or of DNS is fetched on first use, again every two minutes, and at once when
    none of its name servers answers.

    Args:
        client: sends the requests.
        source: the list, or the address server or DNS name that serves it.
        spread: begin with a random name server, so that clients spread over all of them; otherwise begin with
            the first in the list.
    """

    def __init__(self, client: RemotingClient, source: Source, *, spread: bool = False) -> None:
        self._client = client
        self._runtime = client.runtime
        self._list = NameServerList(client.runtime, source)
        self._spread = spread
        self._fetching: asyncio.Task[bool] | None = None
        self._choose()

    def _choose(self) -> None:
        self._current = 0
        if self._spread and self._list.addresses:
            self._current = self._runtime.random.randrange(len(self._list.addresses))

    @property
    def source(self) -> Source:
        """The source, as given to the constructor."""
        return self._list.source

    @property
    def addresses(self) -> list[str]:
        """The known addresses."""
        return list(self._list.addresses)

    async def close(self) -> None:
        """End the background work."""
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    async def known(self, timeout_ms: float = TIMEOUT_MS) -> list[str]:
        """The addresses, fetched if none are known yet.

        Raises:
            NameServerError: the source has no address.
        """
        if isinstance(self.source, tuple):
            return self.addresses
        age_s = self._runtime.clock.monotonic() - self._list.fetched_s
        if not self._list.addresses:
            await self._fetch(timeout_ms)
            if not self._list.addresses:
                text = f"{addresses.shown(self.source)} tells no name servers: {self._list.problem}"
                raise NameServerError(text)
        elif age_s > (RETRY_S if self._list.problem else REFRESH_S):
            self._begin_fetch()
        return self.addresses

    def _begin_fetch(self) -> asyncio.Task[bool]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._list.fetch())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: asyncio.Task[bool]) -> None:
        if not task.cancelled() and task.result():
            self._choose()

    async def _fetch(self, timeout_ms: float) -> bool:
        """Fetch the addresses again; returns whether they changed in time. Callers share one fetch."""
        task = self._begin_fetch()
        done, _ = await asyncio.wait({task}, timeout=timeout_ms / 1000)
        return bool(done) and not task.cancelled() and task.result()

    async def topic_route(self, topic: str, timeout_ms: float = TIMEOUT_MS) -> TopicRouteData | None:
        """The route of a topic, None if every name server that answered has none.

        Raises:
            NameServerError: no name server is configured, or none gave a usable answer.
        """
        return await self._ask(
            lambda known, first, left_ms: route_inquiry(
                topic, known, now_ms=_now_ms, first=first, timeout_ms=left_ms
            ),
            timeout_ms,
        )

    async def cluster_info(self, timeout_ms: float = TIMEOUT_MS) -> ClusterInfo:
        """Every live broker (GET_BROKER_CLUSTER_INFO).

        Raises:
            NameServerError: no name server is configured, or none gave a usable answer.
        """
        found = await self._ask(
            lambda known, first, left_ms: cluster_inquiry(
                known, now_ms=_now_ms, first=first, timeout_ms=left_ms
            ),
            timeout_ms,
        )
        assert found is not None  # None is impossible without unknown_codes
        return found

    async def ask(
        self, command: Callable[[], Command], read: Callable[[bytes], T], timeout_ms: float = TIMEOUT_MS
    ) -> T:
        """The first answer with the code SUCCESS, decoded by ``read``.

        Args:
            command: creates the request, a new one for each name server.

        Raises:
            NameServerError: no name server is configured, or none gave a usable answer.
        """
        found = await self._ask(
            lambda known, first, left_ms: Inquiry(
                command, read, known, now_ms=_now_ms, first=first, timeout_ms=left_ms
            ),
            timeout_ms,
        )
        assert found is not None  # None is impossible without unknown_codes
        return found

    async def _ask(self, inquiry_of: MakeInquiry[T], timeout_ms: float) -> T | None:
        deadline_ms = _now_ms() + timeout_ms
        known = await self.known(timeout_ms)
        try:
            return await self._answer(known, inquiry_of, max(1, deadline_ms - _now_ms()))
        except NameServerError:
            age_s = self._runtime.clock.monotonic() - self._list.fetched_s
            if isinstance(self.source, tuple) or age_s < RETRY_S or not await self._fetch(RETRY_FETCH_MS):
                raise
        # No known name server answered, and the fetched list has changed: try the new addresses.
        return await self._answer(self.addresses, inquiry_of, timeout_ms)

    async def _answer(self, known: list[str], inquiry_of: MakeInquiry[T], timeout_ms: float) -> T | None:
        inquiry = inquiry_of(known, self._current, timeout_ms)
        for address, timeout_ms in inquiry:
            try:
                answer = await self._client.request(address, inquiry.command(), timeout_ms)
            except TransportError as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, answer)
        answered_by = inquiry.answered_by
        if answered_by is not None and known == self.addresses:
            self._current = answered_by
        return inquiry.result()


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
