"""The broker's topics: system topics, automatic creation, attributes (TopicConfigManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orbitmq.broker import journal, names
from orbitmq.broker.attributes import TOPIC_ATTRIBUTES, altered
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.journal import Journal
from orbitmq.broker.plain import from_plain, to_plain
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies import DataVersion, TopicConfig

log = logging.getLogger(__name__)

OnChange = Callable[[str, TopicConfig | None], None]

_READ_WRITE = names.PERM_READ | names.PERM_WRITE
MAX_QUEUES = 65_536


class TopicConfigs:
    """All topics of this broker.

    Every change passes the journal and then ``on_change(topic, config)``; ``config`` is ``None`` for a
    deleted topic. Configs handed out are the live ones: read them, change them only through this class.
    """

    def __init__(self, clock: Clock, config: BrokerConfig, changes: Journal) -> None:
        self._clock = clock
        self._config = config
        self._journal = changes
        self._table: dict[str, TopicConfig] = {}
        # Configs as plain values, kept until they change: a table of many topics is written often.
        self._plain: dict[str, dict[str, Any]] = {}
        self._own_system_topics: set[str] = set()
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        self.on_change: list[OnChange] = []
        for topic in self._system_topics():
            self._table[topic.topic_name] = topic
            self._own_system_topics.add(topic.topic_name)

    def _system_topics(self) -> Iterator[TopicConfig]:
        config = self._config
        inherit_only = names.PERM_INHERIT
        yield _topic(names.SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            yield _topic(names.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, _READ_WRITE | inherit_only)
        yield _topic(names.BENCHMARK_TOPIC, 1024)
        cluster_perm = inherit_only | (_READ_WRITE if config.cluster_topic_enable else 0)
        yield _topic(config.broker_cluster_name, 16, cluster_perm)
        broker_perm = inherit_only | (_READ_WRITE if config.broker_topic_enable else 0)
        yield _topic(config.broker_name, 1, broker_perm)
        yield _topic(names.OFFSET_MOVED_TOPIC, 1)
        yield _topic(names.SCHEDULE_TOPIC, names.SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            yield _topic(config.msg_trace_topic_name, 1)
        yield _topic(config.broker_cluster_name + names.REPLY_TOPIC_SUFFIX, 1)
        yield _topic(names.REVIVE_TOPIC_PREFIX + config.broker_cluster_name, config.revive_queue_num)
        yield _topic(names.SYNC_MEMBER_TOPIC_PREFIX + config.broker_name, 1, inherit_only)
        yield _topic(names.TRANS_HALF_TOPIC, 1)
        yield _topic(names.TRANS_OP_TOPIC, 1)
        if config.timer_wheel_enable:
            yield _topic(names.TIMER_TOPIC, 1)

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(self._table.values()))

    def is_order(self, topic: str) -> bool:
        """Whether the topic promises global order (``order`` of its config)."""
        config = self._table.get(topic)
        return config is not None and config.order

    def is_system(self, topic: str) -> bool:
        """Whether the name is reserved, in every cluster or by this broker's names."""
        return topic in self._own_system_topics or names.is_system_topic(topic)

    def system_topics(self) -> list[str]:
        """All reserved names, sorted."""
        return sorted(self._own_system_topics | names.SYSTEM_TOPICS)

    def page(self, version: DataVersion | None, first: int, count: int) -> dict[str, TopicConfig]:
        """``count`` topics by name from number ``first``; from the start when ``version`` is an old one."""
        if version != self.version:
            first = 0
        return {name: self._table[name] for name in sorted(self._table)[first : first + count]}

    # -- changing --------------------------------------------------------------------------------------

    def create_for_send(
        self, topic: str, default_topic: str, client_queues: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Make an unknown topic from a template topic, as a send to it does (behaviours RT-07, RT-09).

        Returns:
            The topic's config, or ``None`` when the template does not allow it.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        perm = template.perm if template is not None else 0
        if default_topic == names.AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            perm = _READ_WRITE
        if template is None or not perm & names.PERM_INHERIT:
            log.warning("topic %s is not created: template %s has permission %d", topic, default_topic, perm)
            return None
        queues = max(0, min(client_queues, template.write_queue_nums))
        created = _topic(topic, queues, perm & ~names.PERM_INHERIT)
        created.topic_sys_flag = sys_flag
        created.topic_filter_type = template.topic_filter_type
        self._put(created)
        return created

    def create_if_absent(
        self, topic: str, queues: int, *, perm: int = _READ_WRITE, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic as it is, made first when it is missing: retry, dead letter and other inner topics."""
        known = self._table.get(topic)
        if known is None:
            known = _topic(topic, queues, perm)
            known.order = order
            known.topic_sys_flag = sys_flag
            self._put(known)
        elif known.order != order:
            known.order = order
            self._put(known)
        return known

    def update(self, config: TopicConfig) -> None:
        """Create or replace a topic; ``config.attributes`` holds changes such as ``+message.type``.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        known = self._table.get(config.topic_name)
        current = known.attributes if known is not None else {}
        config.attributes = altered(TOPIC_ATTRIBUTES, current, config.attributes or {}, create=known is None)
        if known is None or to_plain(known) != to_plain(config):
            self._put(config)

    def mark_order_topics(self, topics: Iterable[str]) -> None:
        """Set ``order`` on the topics that the name server lists as ordered."""
        for topic in topics:
            config = self._table.get(topic)
            if config is not None and not config.order:
                config.order = True
                self._put(config)

    def delete(self, topic: str) -> bool:
        """Forget a topic; ``False`` when there was none."""
        if self._table.pop(topic, None) is None:
            return False
        self._changed(topic, None)
        return True

    def touch(self) -> None:
        """Give the table a new version without a change of a topic, as a changed broker permission does."""
        self.version = self.version.next(self._clock.now_ms())

    def _put(self, config: TopicConfig) -> None:
        self._table[config.topic_name] = config
        self._changed(config.topic_name, config)

    def _changed(self, topic: str, config: TopicConfig | None) -> None:
        self._plain.pop(topic, None)
        self.version = self.version.next(self._clock.now_ms())
        self._journal.changed(journal.TOPICS, topic, config)
        for listener in self.on_change:
            listener(topic, config)

    # -- on disk ---------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The content of ``topics.json``."""
        return {
            "dataVersion": to_plain(self.version),
            "topicConfigTable": {name: self._plain_of(name) for name in self._table},
        }

    def _plain_of(self, name: str) -> dict[str, Any]:
        plain = self._plain.get(name)
        if plain is None:
            plain = self._plain[name] = to_plain(self._table[name])
        return plain

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``topics.json``; system topics it does not name stay as they are."""
        for name, plain in content.get("topicConfigTable", {}).items():
            self._plain.pop(name, None)
            self._table[name] = from_plain(TopicConfig, plain)
        if content.get("dataVersion"):
            self.version = from_plain(DataVersion, content["dataVersion"])


def _topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
