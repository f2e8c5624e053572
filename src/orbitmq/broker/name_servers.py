"""Routes of topics, fetched from the name servers for all parts of the broker (TopicRouteInfoManager)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.own_requests import client_of
from orbitmq.errors import OrbitError
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.route import GetRouteinfoByTopicRequest

TIMEOUT_MS = 3000
MAX_TOPICS = 100_000


class NoRouteError(OrbitError):
    """No name server gave a route."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The name servers' answer about a topic.

    Attributes:
        route: the topic's route; None: no name server gave one, and ``problem`` says why.
    """

    asked_s: float
    route: TopicRouteData | None
    problem: str = ""


class NameServers(Component):
    """Keeps routes. Calls for the same route at the same time share one request."""

    name = "routes of topics"

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._client = client_of(runtime, config)
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Task[_Known]] = {}

    async def stop(self) -> None:
        await self.end_work()
        await self._client.close()
        self._client = client_of(self._runtime, self._config)

    async def route(self, topic: str, age_s: float, *, failed_s: float = 0.0) -> TopicRouteData:
        """The topic's route, from the first name server that has it.

        Args:
            age_s: the route is fetched again if the name servers' last answer is this old.
            failed_s: the same for an answer without a route.

        Raises:
            NoRouteError: no name server gives one; the text is what the last one answered.
        """
        known = self._known.get(topic)
        if known is not None:
            limit_s = failed_s if known.route is None else age_s
            known = known if self._runtime.clock.monotonic() - known.asked_s < limit_s else None
        if known is None:
            known = await self._once(topic)
        if known.route is None:
            raise NoRouteError(known.problem)
        return known.route

    async def _once(self, topic: str) -> _Known:
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = self._spawn(self._ask(topic), topic)
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> _Known:
        route, problem = await self._from_name_servers(topic)
        if len(self._known) >= MAX_TOPICS:
            self._known.clear()
        known = self._known[topic] = _Known(self._runtime.clock.monotonic(), route, problem)
        return known

    async def _from_name_servers(self, topic: str) -> tuple[TopicRouteData | None, str]:
        problem = "no name server is configured"
        question = GetRouteinfoByTopicRequest(topic=topic, accept_standard_json_only=True).command()
        for server in self._config.name_servers:
            try:
                answer = await self._client.request(server, question, TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.decode(answer.body), ""
                problem = f"name server {server}: code {answer.code}, {answer.remark}"
            except (TransportError, WireError) as error:
                problem = f"name server {server}: {error}"
        return None, problem
