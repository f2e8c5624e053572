"""Checks the names of topics and groups in calls, finds topics, and creates them if the settings allow it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import RoleState
from orbitmq.gateway import schema
from orbitmq.gateway.schema import MessageType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.message import reserved
from orbitmq.wire.bodies.topic import TopicConfig

TYPE_ATTRIBUTE: Final = "message.type"
# The most deleted topics that are remembered; beyond this the oldest is forgotten.
MAX_DELETED: Final = 10_000
FIFO: Final = "FIFO"
MIXED: Final = "MIXED"
ALL_TYPES: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_ACCEPTED: Final[Mapping[str, tuple[MessageType, ...]]] = {
    FIFO: (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
    MIXED: ALL_TYPES,
}
# Also for a topic of an unknown type: Java's client does not start if a topic accepts no type.
_NORMAL_ONLY: Final = (MessageType.NORMAL,)


def topic_name(topic: schema.Resource) -> str:
    """The name of a topic that a client may use.

    Raises:
        RefusalError: ILLEGAL_TOPIC.
    """
    name = topic.name
    if (fault := reserved.topic_fault(name)) is not None:
        raise RefusalError(Code.ILLEGAL_TOPIC, fault)
    if reserved.is_system_topic(name):
        raise RefusalError(Code.ILLEGAL_TOPIC, f"topic {name} is RocketMQ's own: clients cannot use it")
    return name


def group_name(group: schema.Resource) -> str:
    """The name of a consumer group that a client may use.

    Raises:
        RefusalError: ILLEGAL_CONSUMER_GROUP.
    """
    name = group.name
    if (fault := reserved.group_fault(name)) is not None:
        raise RefusalError(Code.ILLEGAL_CONSUMER_GROUP, fault)
    if reserved.is_system_group(name):
        raise RefusalError(
            Code.ILLEGAL_CONSUMER_GROUP, f"group {name} is RocketMQ's own: clients cannot use it"
        )
    return name


def accepted_types(topic: TopicConfig) -> tuple[MessageType, ...]:
    """The kinds of messages that a topic takes, by its attribute message.type."""
    return _ACCEPTED.get(topic.attributes.get(TYPE_ATTRIBUTE, ""), _NORMAL_ONLY)


@lru_cache(4096)
def _is_usable(name: str) -> bool:
    return reserved.topic_fault(name) is None and not reserved.is_system_topic(name)


class GrpcTopics:
    """The topics of this broker for gRPC clients."""

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        topics: TopicConfigs,
        metadata: MetadataAccess,
        registration: Registration,
        events: Events,
    ) -> None:
        self._config = config
        self._role = role
        self._topics = topics
        self._metadata = metadata
        self._registration = registration
        self._deleted: dict[str, None] = {}
        events.subscribe(TopicChanged, self._follow)

    def _follow(self, event: TopicChanged) -> None:
        self._deleted.pop(event.topic, None)
        if event.config is None:
            self._deleted[event.topic] = None
            if len(self._deleted) > MAX_DELETED:
                del self._deleted[next(iter(self._deleted))]

    def deleted(self, name: str) -> bool:
        """Whether a topic was deleted after the first gRPC client connected, and not created again."""
        return name in self._deleted

    async def find(self, topic: schema.Resource) -> TopicConfig | None:
        """The config of a topic, once it is on disk; None if this broker lacks the topic.

        Raises:
            RefusalError: ILLEGAL_TOPIC.
            RemotingError: the disk refuses the topic.
        """
        name = topic_name(topic)
        config = self._topics.get(name)
        if config is not None and not self._metadata.saved(name):
            await self._metadata.save(TOPICS)
        return config

    def known(self, name: str) -> TopicConfig | None:
        """The config of a topic that a client may use; None if there is none, or it is not on disk yet."""
        config = self._topics.get(name)
        if config is None or not self._metadata.saved(name):
            return None
        return config if _is_usable(name) else None

    async def existing(self, topic: schema.Resource, *, makes: bool = True) -> TopicConfig:
        """The config of a topic, once it is on disk; ``autoCreateTopicEnable`` creates an unknown one.

        Such a topic takes messages of all types, so that a program runs without preparation.

        Args:
            makes: whether an unknown topic may be created.

        Raises:
            RefusalError: ILLEGAL_TOPIC, TOPIC_NOT_FOUND.
            RemotingError: the disk refuses a created topic.
        """
        config = await self.find(topic)
        if config is None:
            config = self._made(topic.name) if makes else None
            if config is None:
                raise self._not_found(topic.name)
            await self._metadata.save(TOPICS)
            await self._registration.announced([topic.name])
        return config

    def _made(self, name: str) -> TopicConfig | None:
        of_a_group = name.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
        if not self._config.auto_create_topic_enable or not self._role.takes_messages or of_a_group:
            return None
        return self._topics.create_for_send(
            name,
            reserved.AUTO_CREATE_TOPIC,
            self._config.default_topic_queue_nums,
            attributes={TYPE_ATTRIBUTE: MIXED},
        )

    def _not_found(self, name: str) -> RefusalError:
        of_a_group = name.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
        hint = "" if of_a_group else f": orbitmq topic create {name}"
        return RefusalError(
            Code.TOPIC_NOT_FOUND, f"broker {self._config.broker_name} has no topic {name}{hint}"
        )
