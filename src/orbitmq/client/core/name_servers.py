"""Ask one of several name servers, and stay with the one that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.errors import BrokerError, NameServerError, ValidationError
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

if TYPE_CHECKING:
    import random

    from orbitmq.transport.client import RemotingClient

TIMEOUT_MS = 3000


def parse_addresses(text: str) -> list[str]:
    """``host:port;host:port`` (commas are taken too), without repetitions.

    Raises:
        ValidationError: a part is not ``host:port``.
    """
    found: list[str] = []
    for part in text.replace(",", ";").split(";"):
        address = part.strip()
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValidationError(f"name server address {address!r} is not host:port")
        if address not in found:
            found.append(address)
    return found


class NameServers:
    """The configured name servers.

    Args:
        client: how they are reached.
        addresses: ``host:port`` each; the first asked is random, as clients shall spread.
    """

    def __init__(self, client: RemotingClient, addresses: list[str], random_source: random.Random) -> None:
        self._client = client
        self._addresses = addresses
        self._current = random_source.randrange(len(addresses)) if addresses else 0

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    async def topic_route(self, topic: str, timeout_ms: float = TIMEOUT_MS) -> TopicRouteData | None:
        """The route of a topic, None when no name server that answered knows it.

        All are asked before the topic counts as unknown: one of them may have started a moment ago.

        Raises:
            NameServerError: none configured, or none gave a usable answer.
        """
        if not self._addresses:
            raise NameServerError("no name server is configured; pass name_servers='host:port'")
        tried: list[tuple[str, str]] = []
        unknown = False
        for step in range(len(self._addresses)):
            index = (self._current + step) % len(self._addresses)
            address = self._addresses[index]
            share = timeout_ms / (len(self._addresses) - step)
            command = Command(
                code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
                ext={"topic": topic, "acceptStandardJsonOnly": "true"},
            )
            try:
                answer = await self._client.request(address, command, max(1, int(share)))
            except TransportError as error:
                tried.append((address, str(error)))
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                unknown = True
                continue
            if answer.code != ResponseCode.SUCCESS:
                tried.append((address, str(BrokerError(answer.code, answer.remark, address))))
                continue
            try:
                route = TopicRouteData.decode(answer.body)
            except WireError as error:
                tried.append((address, f"unreadable route: {error}"))
                continue
            self._current = index
            return route
        if unknown:
            return None
        details = "; ".join(f"{address}: {problem}" for address, problem in tried)
        raise NameServerError(f"no name server gave an answer ({details})", tried)
