"""Which masters have a topic, as the name servers say (TopicRouteInfoManager, behaviour ES-07)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orbitmq.broker.clients.route_question import NoRouteError, route_of
from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.escape.forms import Target, targets
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient

GOOD_FOR_S = 30.0
# A route that did not help is asked for again, however many messages wait for it, once in this time.
ASK_AGAIN_S = 1.0
MAX_TOPICS = 100_000


@dataclass(frozen=True, slots=True)
class _Known:
    asked_at: float
    targets: tuple[Target, ...]
    problem: str


class Routes:
    """Routes of topics, asked for when a message of theirs escapes."""

    def __init__(self, clock: Clock, config: BrokerConfig, client: RemotingClient) -> None:
        self._clock = clock
        self._config = config
        self._client = client
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Task[_Known]] = {}

    async def targets(self, topic: str, *, helped: bool) -> tuple[tuple[Target, ...], str]:
        """The masters of other groups that take the topic's messages; when there are none, why.

        Args:
            helped: the known route worked and may be used again; otherwise the name servers are asked anew.
        """
        known = self._known.get(topic)
        limit_s = GOOD_FOR_S if helped and known is not None and known.targets else ASK_AGAIN_S
        if known is None or self._clock.monotonic() - known.asked_at >= limit_s:
            known = await self._once(topic)
        return known.targets, known.problem

    async def _once(self, topic: str) -> _Known:
        """Ask once for all callers that want the same route now."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._ask(topic), name=f"route of {topic}")
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> _Known:
        found, problem = await self._from_name_servers(topic)
        if len(self._known) >= MAX_TOPICS:
            self._known.clear()
        known = self._known[topic] = _Known(self._clock.monotonic(), found, problem)
        return known

    async def _from_name_servers(self, topic: str) -> tuple[tuple[Target, ...], str]:
        try:
            route = await route_of(self._client, self._config, topic)
        except NoRouteError as error:
            return (), str(error)
        found = targets(route, self._config.broker_name)
        return tuple(found), "" if found else f"no other master takes messages of topic {topic}"

    async def close(self) -> None:
        """Cancel the questions under way."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
