"""The broker's topics: system topics, automatic creation, attributes (TopicConfigManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from orbitmq.broker.change_feed import TOPICS, ChangeFeed
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.metadata.attributes import TOPIC_ATTRIBUTES, altered, check_obeyed, log_not_acted_on
from orbitmq.broker.metadata.config_table import ConfigTable
from orbitmq.broker.metadata.pretty import body_text, file_text
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.topic import MadeAt, TopicConfig

log = logging.getLogger(__name__)

_READ_WRITE = reserved.PERM_READ | reserved.PERM_WRITE
MAX_QUEUES = 65_536


class TopicConfigs(ConfigTable[TopicConfig]):
    """All topics of this broker.

    Args:
        made_now: returns the place in the log where the messages of a topic made now begin.
    """

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        feed: ChangeFeed,
        events: Events,
        made_now: Callable[[str], MadeAt | None] = lambda _topic: None,
    ) -> None:
        super().__init__(clock, feed, TOPICS, TopicConfig)
        self._made_now = made_now
        self._events = events
        self._config = config
        self._limiter = LogLimiter(log)
        self._own_system_topics: set[str] = set()
        for topic in self._system_topics():
            self._table[topic.topic_name] = topic
            self._own_system_topics.add(topic.topic_name)

    def _publish_change(self, name: str, config: TopicConfig | None) -> None:
        self._events.publish(TopicChanged(name, config))

    def _system_topics(self) -> Iterator[TopicConfig]:
        config = self._config
        inherit_only = reserved.PERM_INHERIT
        yield _topic(reserved.SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            yield _topic(
                reserved.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, _READ_WRITE | inherit_only
            )
        yield _topic(reserved.BENCHMARK_TOPIC, 1024)
        cluster_perm = inherit_only | (_READ_WRITE if config.cluster_topic_enable else 0)
        yield _topic(config.broker_cluster_name, 16, cluster_perm)
        broker_perm = inherit_only | (_READ_WRITE if config.broker_topic_enable else 0)
        yield _topic(config.broker_name, 1, broker_perm)
        yield _topic(reserved.OFFSET_MOVED_TOPIC, 1)
        yield _topic(reserved.SCHEDULE_TOPIC, reserved.SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            yield _topic(config.msg_trace_topic_name, 1)
        yield _topic(config.broker_cluster_name + reserved.REPLY_TOPIC_SUFFIX, 1)
        yield _topic(reserved.REVIVE_TOPIC_PREFIX + config.broker_cluster_name, config.revive_queue_num)
        yield _topic(reserved.SYNC_MEMBER_TOPIC_PREFIX + config.broker_name, 1, inherit_only)
        yield _topic(reserved.TRANS_HALF_TOPIC, 1)
        yield _topic(reserved.TRANS_OP_TOPIC, 1)
        if config.timer_wheel_enable:
            yield _topic(reserved.TIMER_TOPIC, 1)

    # -- reading ---------------------------------------------------------------------------------------

    def is_order(self, topic: str) -> bool:
        """Whether the topic promises global order (``order`` of its config)."""
        config = self._table.get(topic)
        return config is not None and config.order

    def is_system(self, topic: str) -> bool:
        """Whether the name is reserved: in every cluster, or as this broker's or its cluster's name."""
        return topic in self._own_system_topics or reserved.is_system_topic(topic)

    def system_topics(self) -> list[str]:
        """All reserved names, sorted."""
        return sorted(self._own_system_topics | reserved.SYSTEM_TOPICS)

    # -- changing --------------------------------------------------------------------------------------

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        client_queues: int,
        sys_flag: int = 0,
        *,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicConfig | None:
        """Make an unknown topic from a template topic, as for a send (behaviours RT-07, RT-09).

        Args:
            attributes: the new topic's attributes, without the + of a change.

        Returns:
            The topic's config, or ``None`` when the template does not allow it.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        perm = template.perm if template is not None else 0
        if default_topic == reserved.AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            perm = _READ_WRITE
        if template is None or not perm & reserved.PERM_INHERIT:
            text = "topic %s is not created: template %s has permission %d"
            self._limiter.write(logging.WARNING, "topic not created", text, topic, default_topic, perm)
            return None
        queues = max(0, min(client_queues, template.write_queue_nums))
        created = _topic(topic, queues, perm & ~reserved.PERM_INHERIT)
        created.topic_sys_flag = sys_flag
        created.topic_filter_type = template.topic_filter_type
        created.attributes = dict(attributes or {})
        created.made_at = self._made_now(topic)
        self._put(created.topic_name, created)
        return created

    def create_if_absent(
        self, topic: str, queues: int, *, perm: int = _READ_WRITE, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """The config of an inner topic (retry, dead letter and others); a missing topic is made first."""
        known = self._table.get(topic)
        if known is None:
            known = _topic(topic, queues, perm)
            known.order = order
            known.topic_sys_flag = sys_flag
            known.made_at = self._made_now(topic)
            self._put(known.topic_name, known)
        elif known.order != order:
            known = replace(known, order=order)
            self._put(known.topic_name, known)
        return known

    def attributes_after(self, config: TopicConfig) -> dict[str, str]:
        """The attributes that the topic would have after :meth:`update` with this change.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        known = self._table.get(config.topic_name)
        current = known.attributes if known is not None else {}
        return altered(TOPIC_ATTRIBUTES, current, config.attributes or {}, create=known is None)

    def update(self, config: TopicConfig) -> None:
        """Create or replace a topic; ``config.attributes`` holds changes such as ``+message.type``.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        config.attributes = self.attributes_after(config)
        known = self._table.get(config.topic_name)
        # ``made_at`` of the received config is not used: it may be another broker's.
        config.made_at = known.made_at if known is not None else self._made_now(config.topic_name)
        if known != config:
            self._put(config.topic_name, config)

    def delete(self, name: str) -> bool:
        """Forget a topic; ``False`` when there was no such topic.

        A topic that is not in the table may still have queues, popped messages and the like: the log restores
        them if the topic's deletion was not completely on the disk. So the event is published in any case.
        """
        known = super().delete(name)
        if not known:
            self._publish_change(name, None)
        return known

    def add_system_topics(self) -> None:
        """Make the topics that the settings require now but did not at the start."""
        for topic in self._system_topics():
            self._own_system_topics.add(topic.topic_name)
            if topic.topic_name not in self._table:
                self._put(topic.topic_name, topic)

    def mark_order_topics(self, topics: Iterable[str]) -> None:
        """Set ``order`` on the topics that the name server lists as ordered."""
        for topic in topics:
            config = self._table.get(topic)
            if config is not None and not config.order:
                self._put(config.topic_name, replace(config, order=True))

    def _apply(self, name: str, plain: dict[str, Any] | None) -> None:
        if plain is not None:
            _check(name, plain)
        super()._apply(name, plain)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``topics.json``, piece by piece."""
        version = body_text(self.version, "\n\t")
        return file_text([("dataVersion", version), ("topicConfigTable", self._entries())])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``topics.json``; system topics missing there stay as they are.

        Raises:
            ValueError: a topic has an attribute that this broker would not obey.
        """
        for name, plain in (content.get("topicConfigTable") or {}).items():
            _check(name, plain)
        self._restore(content.get("topicConfigTable"), content.get("dataVersion"))


def _check(topic: str, plain: Mapping[str, Any]) -> None:
    """Check a topic's attributes with ``check_obeyed``; those that have no effect here are only logged."""
    attributes = plain.get("attributes") or {}
    check_obeyed(TOPIC_ATTRIBUTES, f"topic {topic}", attributes)
    log_not_acted_on(TOPIC_ATTRIBUTES, f"topic {topic}", attributes)


def _topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
