"""The brokers of a topic, from the name servers, without those that gRPC clients cannot use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.own_requests import client_of
from orbitmq.gateway.clients import log
from orbitmq.gateway.probe import ServerKind, probe
from orbitmq.gateway.remembered import Answer, Remembered
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background
from orbitmq.transport.address import parse_address
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.addresses import joined
from orbitmq.wire.bodies.route import QueueData, TopicRouteData
from orbitmq.wire.bodies.topic import TopicConfig, TopicConfigAndQueueMapping
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

# Time limits for one server, and for all name servers together: clients of RocketMQ 5 wait 3 s for a route.
ANSWER_MS: Final = 1000
NAME_SERVERS_SECONDS: Final = 1.5
# How long a route is reused: each push consumer queries its route every 5 s, and many share one request.
ROUTE_SECONDS: Final = 2.0
# How long the result of a probe is reused, and how long name servers rest after none of them answered.
FOUND_SECONDS: Final = 5.0
# How long a server without gRPC is not probed again: servers seldom gain it.
OTHER_SECONDS: Final = 60.0
# The most routes that are remembered; the limit for topic types and for addresses is the same.
MAX_KEPT: Final = 10_000
MAX_TASKS: Final = 400_000


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """A broker that has a topic: a master, or a slave that serves in its master's place.

    Attributes:
        queues: the topic's queues and their permissions, from the name server.
    """

    name: str
    host: str
    port: int
    queues: QueueData

    @property
    def address(self) -> str:
        return joined(self.host, self.port)


@dataclass(frozen=True, slots=True)
class _Route:
    """A topic's brokers.

    Attributes:
        data: None if no broker has the topic, or no name server has answered.
        known: whether ``data`` is a name server's answer, be it an old one.
    """

    data: TopicRouteData | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Others:
    """The other brokers that have a topic.

    Attributes:
        members: those that gRPC clients can use, by name.
        missing: a text for each broker that they cannot use: its name, and the reason.
        known: False if no name server answers, and no earlier answer for the topic is kept.
    """

    members: Sequence[TopicBroker] = ()
    missing: Sequence[str] = ()
    known: bool = True


class OtherBrokers:
    """Looks up the brokers of topics.

    Args:
        address: this broker's, which is left out of the results.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, address: str) -> None:
        self._runtime = runtime
        self._config = config
        self._address = address
        self._background = Background("routes for gRPC clients", max_tasks=MAX_TASKS)
        self._client: RemotingClient | None = None
        self._log = LogLimiter(log)
        # When each name server last failed; those that did not fail get the requests first.
        self._failed: dict[str, float] = {}
        self._silent_until = 0.0
        clock = runtime.clock
        self._routes: Remembered[_Route] = Remembered(clock, self._background, MAX_KEPT)
        self._found: Remembered[ServerKind] = Remembered(clock, self._background, MAX_KEPT)
        self._types: Remembered[TopicConfig | None] = Remembered(clock, self._background, MAX_KEPT)

    async def of(self, topic: str) -> Others:
        """The other brokers that have the topic.

        Brokers without a master, or a slave in its place, are left out.
        """
        if not self._config.name_servers:
            return Others()
        route = await self._routes.get(topic, partial(self._route, topic))
        members = self._members(route.data) if route.data is not None else []
        return _others(members, await asyncio.gather(*(self._look(each) for each in members)), route.known)

    def known(self, topic: str) -> Others | None:
        """As :meth:`of`, from kept answers only; None if one of them is missing."""
        if not self._config.name_servers:
            return Others()
        route = self._routes.at_hand(topic, partial(self._route, topic))
        if route is None:
            return None
        members = self._members(route.data) if route.data is not None else []
        looked = [self._found.at_hand(each.address, partial(self._probed, each)) for each in members]
        found = [what for what in looked if what is not None]
        return _others(members, found, route.known) if len(found) == len(members) else None

    async def topic_of(self, topic: str, member: TopicBroker) -> TopicConfig | None:
        """The topic's config at that broker, as a route lacks the topic's type; None without an answer."""
        return await self._types.get(topic, partial(self._topic_config, topic, member))

    async def ask(self, address: str, command: Command, timeout_ms: int = ANSWER_MS) -> Command:
        """Send a command to another server, and return the response.

        Raises:
            TransportError: no response comes in time.
        """
        if self._client is None:
            self._client = client_of(self._runtime, self._config, for_clients=True)
        return await self._client.request(address, command, timeout_ms)

    async def stop(self) -> None:
        """Cancel all requests, and close the connections."""
        await self._background.stop()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # -- routes ------------------------------------------------------------------------------------------

    def _members(self, route: TopicRouteData) -> list[TopicBroker]:
        queues = {each.broker_name: each for each in route.queue_datas}
        members = []
        for broker in sorted(route.broker_datas, key=lambda each: each.broker_name):
            address = broker.broker_addrs.get(reserved.MASTER_ID)
            if not address or address == self._address or broker.broker_name not in queues:
                continue
            try:
                host, port = parse_address(address)
            except TransportError:
                continue
            members.append(TopicBroker(broker.broker_name, host, port, queues[broker.broker_name]))
        return members

    async def _route(self, topic: str) -> Answer[_Route]:
        """The route from the first name server that answers; without one the last kept route."""
        clock, problem = self._runtime.clock, ""
        end = clock.monotonic() + NAME_SERVERS_SECONDS
        servers = self._config.name_servers
        self._failed = {server: when for server, when in self._failed.items() if server in servers}
        if clock.monotonic() < self._silent_until:
            servers = []
        for server in sorted(servers, key=lambda server: self._failed.get(server, -1.0)):
            if clock.monotonic() >= end:
                break
            try:
                data = await self._route_at(server, topic)
            except (TransportError, WireError) as error:
                problem = f"{server}: {error}"
                self._failed[server] = clock.monotonic()
                continue
            self._failed.pop(server, None)
            # The answer that no broker has the topic is not kept: the topic may be created a moment later.
            return Answer(_Route(data), ROUTE_SECONDS if data is not None else 0.0)
        if servers:
            self._silent_until = clock.monotonic() + FOUND_SECONDS
            text = "no name server answers for the routes of gRPC clients: %s"
            self._log.write(logging.WARNING, "no name server", text, problem)
        last = self._routes.last(topic)
        if last is None:
            return Answer(_Route(None, known=False), 0.0)
        return Answer(last, max(0.0, self._silent_until - clock.monotonic()))

    async def _route_at(self, server: str, topic: str) -> TopicRouteData | None:
        """The route from one name server; None if the server knows no broker with the topic."""
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        response = await self.ask(server, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext))
        if response.code == ResponseCode.SUCCESS:
            return TopicRouteData.decode(response.body)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise WireError(f"response code {response.code}: {response.remark}")

    async def _topic_config(self, topic: str, member: TopicBroker) -> Answer[TopicConfig | None]:
        config = None
        try:
            response = await self.ask(
                member.address, Command(RequestCode.GET_TOPIC_CONFIG, ext={"topic": topic})
            )
            if response.code == ResponseCode.SUCCESS:
                config = TopicConfigAndQueueMapping.decode(response.body)
        except (TransportError, WireError) as error:
            self._log.write(logging.INFO, "topic of another broker", "broker %s: %s", member.name, error)
        return Answer(config, FOUND_SECONDS)

    # -- addresses ---------------------------------------------------------------------------------------

    async def _look(self, member: TopicBroker) -> ServerKind:
        """The kind of server at a broker's address."""
        return await self._found.get(member.address, partial(self._probed, member))

    async def _probed(self, member: TopicBroker) -> Answer[ServerKind]:
        tls = self._config.tls.client()
        found = await probe(self._runtime.network, member.host, member.port, tls)
        if found is ServerKind.OTHER and self._found.last(member.address) is not found:
            log.warning("%s: gRPC clients of this broker are not led to it", _missing(member, found))
        return Answer(found, OTHER_SECONDS if found is ServerKind.OTHER else FOUND_SECONDS)


def _others(members: Sequence[TopicBroker], found: Sequence[ServerKind], known: bool) -> Others:
    pairs = list(zip(members, found, strict=True))
    return Others(
        [member for member, what in pairs if what is ServerKind.HTTP2],
        [_missing(member, what) for member, what in pairs if what is not ServerKind.HTTP2],
        known,
    )


def _missing(member: TopicBroker, found: ServerKind) -> str:
    where = f"broker {member.name} at {member.address}"
    if found is ServerKind.OTHER:
        return f"{where} does not speak gRPC (Apache's need their proxy)"
    return f"{where} does not answer"
