"""Ask one of several name servers, and stay with the one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.core.inquiry import Inquiry, cluster_inquiry, route_inquiry
from orbitmq.errors import ValidationError
from orbitmq.transport.errors import TransportError
from orbitmq.wire import addresses
from orbitmq.wire.bodies.route import ClusterInfo, TopicRouteData
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    import random

    from orbitmq.transport.client import RemotingClient

T = TypeVar("T")

TIMEOUT_MS = 3000


def parse_addresses(text: str) -> list[str]:
    """``host:port;host:port``, see :func:`orbitmq.wire.addresses.several`.

    Raises:
        ValidationError: a part is not ``host:port``.
    """
    try:
        return addresses.several(text)
    except addresses.AddressError as error:
        raise ValidationError(f"name server address {error}") from error


class NameServers:
    """The configured name servers.

    Args:
        client: how they are reached.
        addresses: ``host:port`` each.
        random_source: chooses the first one asked, as clients shall spread; without it, the first in the
            list.
    """

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], random_source: random.Random | None = None
    ) -> None:
        self._client = client
        self._addresses = tuple(addresses)
        self._current = 0
        if random_source is not None and self._addresses:
            self._current = random_source.randrange(len(self._addresses))

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    async def topic_route(self, topic: str, timeout_ms: float = TIMEOUT_MS) -> TopicRouteData | None:
        """The route of a topic, None when no name server that answered knows it.

        Raises:
            NameServerError: none configured, or none gave a usable answer.
        """
        return await self._ask(
            route_inquiry(topic, self._addresses, now_ms=_now_ms, first=self._current, timeout_ms=timeout_ms)
        )

    async def cluster_info(self, timeout_ms: float = TIMEOUT_MS) -> ClusterInfo:
        """Every live broker (GET_BROKER_CLUSTER_INFO).

        Raises:
            NameServerError: none configured, or none gave a usable answer.
        """
        found = await self._ask(
            cluster_inquiry(self._addresses, now_ms=_now_ms, first=self._current, timeout_ms=timeout_ms)
        )
        assert found is not None  # no code means "unknown" here
        return found

    async def ask(
        self, command: Callable[[], Command], read: Callable[[bytes], T], timeout_ms: float = TIMEOUT_MS
    ) -> T:
        """What ``read`` makes of the first answer with the code SUCCESS.

        Args:
            command: makes the request.

        Raises:
            NameServerError: none configured, or none gave a usable answer.
        """
        inquiry = Inquiry(
            command, read, self._addresses, now_ms=_now_ms, first=self._current, timeout_ms=timeout_ms
        )
        found = await self._ask(inquiry)
        assert found is not None  # no code means "unknown" here
        return found

    async def _ask(self, inquiry: Inquiry[T]) -> T | None:
        for address, timeout_ms in inquiry:
            try:
                answer = await self._client.request(address, inquiry.command(), timeout_ms)
            except TransportError as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, answer)
        answered_by = inquiry.answered_by
        if answered_by is not None:
            self._current = answered_by
        return inquiry.result()


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
