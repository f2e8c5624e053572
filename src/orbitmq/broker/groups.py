"""Subscription groups and what they may read (SubscriptionGroupManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orbitmq.broker import journal, names
from orbitmq.broker.attributes import GROUP_ATTRIBUTES, altered
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.journal import Journal
from orbitmq.broker.plain import from_plain, to_plain
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies import DataVersion, SubscriptionGroupConfig
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

OnChange = Callable[[str, SubscriptionGroupConfig | None], None]

# Bit of a forbidden value that says "must not read" (PermName.INDEX_PERM_READ).
FORBID_READ = names.PERM_READ


class SubscriptionGroups:
    """All subscription groups of this broker.

    Every change passes the journal and then ``on_change(group, config)``; ``config`` is ``None`` for a
    deleted group.
    """

    def __init__(self, clock: Clock, config: BrokerConfig, changes: Journal) -> None:
        self._clock = clock
        self._config = config
        self._journal = changes
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in names.SYSTEM_GROUPS}
        # Configs as plain values, kept until they change: a table of many groups is written often.
        self._plain: dict[str, dict[str, Any]] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        self.on_change: list[OnChange] = []

    # -- reading ---------------------------------------------------------------------------------------

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's config; an unknown group with a valid name is made when the settings allow it."""
        config = self._table.get(group)
        if config is not None:
            return config
        allowed = self._config.auto_create_subscription_group or (
            names.is_system_group(group) and self._config.enable_create_sys_group
        )
        if not allowed:
            return None
        try:
            names.check_group(group)
        except RemotingError as error:
            log.warning("group is not created: %s", error)
            return None
        config = SubscriptionGroupConfig(group_name=group)
        self._put(config)
        return config

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's config, without creating it."""
        return self._table.get(group)

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(list(self._table.values()))

    def page(self, version: DataVersion | None, first: int, count: int) -> dict[str, SubscriptionGroupConfig]:
        """``count`` groups by name from number ``first``; from the start when ``version`` is an old one."""
        if version != self.version:
            first = 0
        return {name: self._table[name] for name in sorted(self._table)[first : first + count]}

    def forbidden(self, groups: Mapping[str, object] | None = None) -> dict[str, dict[str, int]]:
        """What is forbidden by group and topic, of all groups or of those in ``groups``."""
        return {
            group: dict(topics)
            for group, topics in self._forbidden.items()
            if groups is None or group in groups
        }

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the group is not forbidden to read the topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & FORBID_READ

    # -- changing --------------------------------------------------------------------------------------

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group.

        Raises:
            RemotingError: INVALID_PARAMETER, an attribute that cannot be changed this way.
        """
        known = self._table.get(config.group_name)
        current = (known.attributes if known is not None else None) or {}
        config.attributes = altered(GROUP_ATTRIBUTES, current, config.attributes or {}, create=known is None)
        self._put(config)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""
        topics = self._forbidden.setdefault(group, {})
        value = topics.get(topic, 0)
        value = value & ~FORBID_READ if readable else value | FORBID_READ
        if value:
            topics[topic] = value
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self._changed(group, self._table.get(group))

    def delete(self, group: str) -> bool:
        """Forget a group; ``False`` when there was none."""
        self._forbidden.pop(group, None)
        if self._table.pop(group, None) is None:
            return False
        self._changed(group, None)
        return True

    def _put(self, config: SubscriptionGroupConfig) -> None:
        self._table[config.group_name] = config
        self._changed(config.group_name, config)

    def _changed(self, group: str, config: SubscriptionGroupConfig | None) -> None:
        self._plain.pop(group, None)
        self.version = self.version.next(self._clock.now_ms())
        self._journal.changed(journal.GROUPS, group, config)
        for listener in self.on_change:
            listener(group, config)

    # -- on disk ---------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The content of ``subscriptionGroup.json``."""
        return {
            "dataVersion": to_plain(self.version),
            "forbiddenTable": self.forbidden(),
            "subscriptionGroupTable": {name: self._plain_of(name) for name in self._table},
        }

    def _plain_of(self, name: str) -> dict[str, Any]:
        plain = self._plain.get(name)
        if plain is None:
            plain = self._plain[name] = to_plain(self._table[name])
        return plain

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``subscriptionGroup.json``; system groups it does not name stay."""
        for name, plain in content.get("subscriptionGroupTable", {}).items():
            self._plain.pop(name, None)
            self._table[name] = from_plain(SubscriptionGroupConfig, plain)
        for group, topics in (content.get("forbiddenTable") or {}).items():
            self._forbidden[group] = {topic: int(value) for topic, value in topics.items()}
        if content.get("dataVersion"):
            self.version = from_plain(DataVersion, content["dataVersion"])
