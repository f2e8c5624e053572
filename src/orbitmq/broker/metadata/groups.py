"""Subscription groups and the topics forbidden to them (SubscriptionGroupManager)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker import names
from orbitmq.broker.change_feed import FORBIDDEN, GROUPS, ChangeFeed, FedTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, GroupChanged
from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES, altered
from orbitmq.broker.metadata.config_table import ConfigTable
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value, quoted
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

# The bit of a group's forbidden value for a topic that forbids reading (PermName.INDEX_PERM_READ).
FORBID_READ = reserved.PERM_READ
_SEPARATOR = "@"


class SubscriptionGroups(ConfigTable[SubscriptionGroupConfig]):
    """All subscription groups of this broker."""

    def __init__(self, clock: Clock, config: BrokerConfig, feed: ChangeFeed, events: Events) -> None:
        super().__init__(clock, feed, GROUPS, SubscriptionGroupConfig)
        feed.register(FORBIDDEN, FedTable(int, self._apply_forbidden, self, self._forbidden_items))
        self._events = events
        self._config = config
        self._limiter = LogLimiter(log)
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in reserved.SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}

    def _publish_change(self, name: str, config: SubscriptionGroupConfig | None) -> None:
        self._events.publish(GroupChanged(name, config))

    # -- reading ---------------------------------------------------------------------------------------

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's config; an unknown group with a valid name is made when the settings allow that."""
        config = self._table.get(group)
        if config is not None:
            return config
        allowed = self._config.auto_create_subscription_group or (
            reserved.is_system_group(group) and self._config.enable_create_sys_group
        )
        if not allowed:
            return None
        try:
            names.check_group(group)
        except RemotingError as error:
            self._limiter.write(logging.WARNING, "group not created", "group is not created: %s", error)
            return None
        config = SubscriptionGroupConfig(group_name=group)
        self._put(group, config)
        return config

    def any_known(self) -> bool:
        """Whether there is a group that is not built in."""
        return any(not reserved.is_built_in_group(name) for name in self._table)

    def forbidden(self, groups: Mapping[str, object] | None = None) -> dict[str, dict[str, int]]:
        """Forbidden reads by group and topic, for all groups or for those in ``groups``."""
        return {
            group: dict(topics)
            for group, topics in self._forbidden.items()
            if groups is None or group in groups
        }

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic: no administrator has forbidden it."""
        return not self._forbidden.get(group, {}).get(topic, 0) & FORBID_READ

    # -- changing --------------------------------------------------------------------------------------

    def attributes_after(self, config: SubscriptionGroupConfig) -> dict[str, str]:
        """The attributes that the group would have after :meth:`update` with this change.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        known = self._table.get(config.group_name)
        current = (known.attributes if known is not None else None) or {}
        return altered(GROUP_ATTRIBUTES, current, config.attributes or {}, create=known is None)

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        config.attributes = self.attributes_after(config)
        self._put(config.group_name, config)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""
        value = self._forbidden.get(group, {}).get(topic, 0)
        self._forbid(group, topic, value & ~FORBID_READ if readable else value | FORBID_READ)

    def _forbid(self, group: str, topic: str, value: int) -> None:
        topics = self._forbidden.setdefault(group, {})
        if value:
            topics[topic] = value
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self.touch()
        self._feed.changed(FORBIDDEN, f"{group}{_SEPARATOR}{topic}", value or None)
        self._publish_change(group, self._table.get(group))

    def _forbidden_items(self) -> list[tuple[str, int]]:
        return [
            (f"{group}{_SEPARATOR}{topic}", value)
            for group, topics in self._forbidden.items()
            for topic, value in topics.items()
        ]

    def _apply_forbidden(self, key: str, value: int | None) -> None:
        group, _, topic = key.rpartition(_SEPARATOR)
        self._forbid(group, topic, int(value or 0))

    def delete(self, group: str) -> bool:
        """Forget a group and its forbidden topics; ``False`` when there was no such group."""
        for topic in list(self._forbidden.get(group, ())):
            self._forbid(group, topic, 0)
        return super().delete(group)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``subscriptionGroup.json``, piece by piece."""
        return file_text(
            [
                ("dataVersion", body_text(self.version, "\n\t")),
                ("forbiddenTable", self._forbidden_entries()),
                ("subscriptionGroupTable", self._entries()),
            ]
        )

    def _forbidden_entries(self) -> Iterator[tuple[str, str]]:
        for group in sorted(self._forbidden):
            if topics := self._forbidden.get(group):
                yield quoted(group), pretty_value(topics, "\n\t\t")

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``subscriptionGroup.json``; system groups that it lacks stay."""
        self._restore(content.get("subscriptionGroupTable"), content.get("dataVersion"))
        for group, topics in (content.get("forbiddenTable") or {}).items():
            self._forbidden[group] = {topic: int(value) for topic, value in topics.items()}
