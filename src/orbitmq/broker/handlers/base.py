"""What the families of handlers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from orbitmq.broker.assembly import Services
from orbitmq.broker.change_feed import TOPICS
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

Answer: TypeAlias = Command | Awaitable[Command | None] | None
Handler: TypeAlias = Callable[[ServerConnection, Command], Answer]


class Family(ABC):
    """Handlers of related request codes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @abstractmethod
    def routes(self) -> dict[int, Handler]:
        """Which method answers which request code."""

    async def save(self, table: str) -> None:
        """Return when the table's changes are on disk.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused; it is tried again in the background.
        """
        try:
            await self._services.persistence.flush(table)
        except OSError as error:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"{table}.json cannot be written: {error}"
            ) from error

    def topic(self, name: str) -> TopicConfig:
        """The config of a topic.

        Raises:
            RemotingError: TOPIC_NOT_EXIST.
        """
        config = self._services.topics.get(name)
        if config is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! (broker {self._services.config.broker_name})",
            )
        return config

    async def inner_topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """A retry or dead letter topic, made when it is missing, and on disk before this returns.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
        """
        config = self._services.topics.get(name)
        if config is None:
            config = self._services.topics.create_if_absent(name, queues, sys_flag=sys_flag)
        # A message must not outlive its topic's config in a crash.
        await self.save(TOPICS)
        return config

    def group(self, name: str) -> SubscriptionGroupConfig:
        """The config of a subscription group, made when the settings allow it.

        Raises:
            RemotingError: SUBSCRIPTION_GROUP_NOT_EXIST.
        """
        group = self._services.groups.find(name)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        return group

    def queue(self, name: str, queue_id: int) -> TopicConfig:
        """The config of a topic that has this queue, for reading or for writing.

        Raises:
            RemotingError: TOPIC_NOT_EXIST, or INVALID_PARAMETER for a queue id that the topic does not have.
        """
        config = self.topic(name)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id} is illegal: topic {name} has queues 0 to {queues - 1}",
            )
        return config
