"""All readable queues of a topic on all brokers, as the name servers list them."""

from __future__ import annotations

import logging

from orbitmq.broker.clients.route_question import NoRouteError, route_of
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.own_requests import client_of
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import PERM_READ
from orbitmq.runtime.seam import Runtime

log = logging.getLogger(__name__)

FRESH_MS = 5000
MOST_KEPT = 10_000


class TopicQueues:
    """Asks the name servers, and keeps an answer for some seconds (TopicRouteInfoManager)."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, topics: TopicConfigs) -> None:
        self._clock = runtime.clock
        self._config = config
        self._topics = topics
        self._client = client_of(runtime, config)
        self._kept: dict[str, tuple[int, list[MessageQueue]]] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """The queues, sorted; those of this broker when no name server answers; ``None``: no such topic."""
        now = self._clock.now_ms()
        kept = self._kept.get(topic)
        if kept is not None and now - kept[0] < FRESH_MS:
            return kept[1]
        found = await self._asked(topic)
        if found is None:
            return self._own(topic)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[topic] = (now, found)
        return found

    async def _asked(self, topic: str) -> list[MessageQueue] | None:
        try:
            route = await route_of(self._client, self._config, topic)
        except NoRouteError as error:
            log.info("route of %s: %s", topic, error)
            return None
        return sorted(
            MessageQueue(topic, data.broker_name, number)
            for data in route.queue_datas
            if data.perm & PERM_READ
            for number in range(data.read_queue_nums)
        )

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        return [MessageQueue(topic, self._config.broker_name, n) for n in range(config.read_queue_nums)]
