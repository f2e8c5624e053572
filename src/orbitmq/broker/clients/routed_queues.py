"""All readable queues of a topic on all brokers, as the name servers list them."""

from __future__ import annotations

import logging

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.name_servers import NameServers, NoRouteError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import PERM_READ

log = logging.getLogger(__name__)

FRESH_S = 5.0


class RoutedQueues:
    """Finds the queues of topics in routes that are some seconds old at most."""

    def __init__(self, config: BrokerConfig, topics: TopicConfigs, name_servers: NameServers) -> None:
        self._config = config
        self._topics = topics
        self._name_servers = name_servers

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """The queues, sorted; those of this broker when no name server answers; ``None``: no such topic."""
        try:
            route = await self._name_servers.route(topic, FRESH_S)
        except NoRouteError as error:
            log.info("route of %s: %s", topic, error)
            return self._own(topic)
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
