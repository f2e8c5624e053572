"""Looks up topics and groups for requests, refuses with RocketMQ's codes, and waits for the disk."""

from __future__ import annotations

from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message import reserved
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


class MetadataAccess:
    """Checked access to the tables of topics and groups."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        persistence: Persistence,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._persistence = persistence

    def topic(self, name: str) -> TopicConfig:
        """The config of a topic.

        Raises:
            RemotingError: TOPIC_NOT_EXIST.
        """
        config = self._topics.get(name)
        if config is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! (broker {self._config.broker_name})",
            )
        return config

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

    def group(self, name: str) -> SubscriptionGroupConfig:
        """The config of a subscription group; a missing group is made when the settings allow that.

        Raises:
            RemotingError: SUBSCRIPTION_GROUP_NOT_EXIST.
        """
        group = self._groups.find(name)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        return group

    def check_readable(self, what: str) -> None:
        """Refuse readers while the settings forbid reading from this broker.

        Args:
            what: the refused action, as RocketMQ calls it: "pulling message".

        Raises:
            RemotingError: NO_PERMISSION.
        """
        if not self._config.readable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._config.broker_ip1}] {what} is forbidden"
            )

    def readable_topic(self, name: str, queue_id: int | None, what: str) -> TopicConfig:
        """The config of a topic that may be read, and has this queue; ``None``: any queue.

        Raises:
            RemotingError: the topic may not be read, or does not exist.
        """
        topic = self.topic(name)
        if not topic.perm & reserved.PERM_READ:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"the topic[{name}] {what} is forbidden")
        if queue_id is not None and not 0 <= queue_id < topic.read_queue_nums:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return topic

    def reading_group(self, name: str) -> SubscriptionGroupConfig:
        """The config of a group that may consume; a missing group is made when the settings allow that.

        Raises:
            RemotingError: SUBSCRIPTION_GROUP_NOT_EXIST, or NO_PERMISSION for a group that may not consume.
        """
        group = self._groups.find(name)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"
            )
        if not group.consume_enable:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return group

    def check_may_read(self, group: str, topic: str) -> None:
        """Refuse a group for which an administrator has forbidden the topic.

        Raises:
            RemotingError: NO_PERMISSION.
        """
        if not self._groups.may_read(group, topic):
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group}] is forbidden for topic[{topic}]"
            )

    async def inner_topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """A retry or dead letter topic; a missing one is made, and on disk before this returns.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
        """
        config = self._topics.get(name)
        if config is None:
            config = self._topics.create_if_absent(name, queues, sys_flag=sys_flag)
        # A message must not outlive its topic's config in a crash.
        await self.save(TOPICS)
        return config

    def saved(self, topic: str) -> bool:
        """Whether the last change of the topic's config is on disk."""
        return self._persistence.saved(TOPICS, topic)

    async def save(self, *tables: str) -> None:
        """Return when the changes of these tables are on disk; a kill leaves all of them or none.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused; the write is tried again later.
        """
        try:
            await self._persistence.flush(*tables)
        except OSError as error:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"a change of {' and '.join(tables)} cannot be written: {error}",
            ) from error
