"""Creating, changing and deleting topics and groups: on return the change is on disk and announced."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from orbitmq.broker import names
from orbitmq.broker.change_feed import GROUPS, OFFSETS, TOPICS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, log_not_acted_on
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import MAX_QUEUES, TopicConfigs
from orbitmq.broker.registration import Registration
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)


class TopicAdministration:
    """Administrators' changes of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        registration: Registration,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._offsets = offsets
        self._registration = registration

    async def update(self, configs: Sequence[TopicConfig], *, by: str) -> None:
        """Create or change topics; all of them or none.

        Args:
            by: the administrator, for the log.

        Raises:
            RemotingError: a name, a number or an attribute is not allowed; SERVICE_NOT_AVAILABLE, the disk
                refused.
        """
        for config in configs:
            self._check(config)
        for config in configs:
            log.info("topic %s is created or changed by %s", config.topic_name, by)
            self._topics.update(config)
        await self._metadata.save(TOPICS)
        await self._registration.announced(config.topic_name for config in configs)

    def _check(self, config: TopicConfig) -> None:
        names.check_topic(config.topic_name)
        self._check_not_system(config.topic_name)
        for field, queues in (
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
        ):
            if not 0 <= queues <= MAX_QUEUES:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER, f"{field} {queues}: expected 0 to {MAX_QUEUES}"
                )
        if not 0 <= config.perm <= 15:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"perm {config.perm}: expected 0 to 15")
        attributes = self._topics.attributes_after(config)
        log_not_acted_on(TOPIC_ATTRIBUTES, f"topic {config.topic_name}", attributes)

    def _check_not_system(self, topic: str) -> None:
        if self._config.validate_system_topic and self._topics.is_system(topic):
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
            )

    async def delete(self, topic: str, *, by: str) -> None:
        """Delete a topic, its queues and the groups' offsets in it; a success also if there is no such topic.

        Raises:
            RemotingError: the name is blank or reserved; SERVICE_NOT_AVAILABLE, the disk refused.
        """
        if not topic.strip():
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_not_system(topic)
        log.info("topic %s is deleted by %s", topic, by)
        # The offsets are deleted first: a slave that has only a part of the changes then keeps no offset of a
        # deleted topic. They are deleted even if the topic does not exist: an earlier deletion may have been
        # refused halfway.
        self._offsets.drop_topic(topic)
        deleted = self._topics.delete(topic)
        await self._metadata.save(TOPICS, OFFSETS)
        if deleted:
            await self._registration.announced([topic])


class GroupAdministration:
    """Administrators' changes of subscription groups."""

    def __init__(
        self, metadata: MetadataAccess, groups: SubscriptionGroups, offsets: ConsumerOffsets
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._offsets = offsets

    async def update(self, configs: Sequence[SubscriptionGroupConfig]) -> None:
        """Create or change groups; all of them or none.

        Raises:
            RemotingError: a name or an attribute is not allowed; SERVICE_NOT_AVAILABLE, the disk refused.
        """
        for config in configs:
            names.check_group(config.group_name)
            attributes = self._groups.attributes_after(config)
            log_not_acted_on(GROUP_ATTRIBUTES, f"group {config.group_name}", attributes)
        for config in configs:
            self._groups.update(config)
        await self._metadata.save(GROUPS)

    async def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
        """
        self._groups.set_readable(group, topic, readable)
        await self._metadata.save(GROUPS)

    async def delete(self, group: str, *, with_offsets: bool, by: str) -> None:
        """Delete a group, and with ``with_offsets`` its offsets.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
        """
        log.info("group %s is deleted by %s", group, by)
        if with_offsets:  # offsets before the group, as with a topic
            self._offsets.drop_group(group)
        self._groups.delete(group)
        await self._metadata.save(GROUPS, OFFSETS)
