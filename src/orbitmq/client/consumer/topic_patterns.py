"""Subscriptions by pattern: finds the topics that match, also those that are made later."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from functools import partial

from orbitmq.client.consumer.membership import Membership
from orbitmq.errors import OrbitError, ValidationError
from orbitmq.message.reserved import NAMESPACE_SEPARATOR, REPLY_TOPIC_SUFFIX, is_own_topic, topic_fault
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.client")

# As long as clients take to see a changed route (pollNameServerInterval).
LOOK_EVERY_S = 30.0


class TopicPatterns:
    """The patterns of one consumer.

    Args:
        subscribed: the full names of the topics that the consumer is subscribed to. One that is named by
            itself keeps its own subscription.
        subscribe: called with a topic that matches, the tags and the SQL92 expression.
    """

    def __init__(
        self,
        membership: Membership,
        subscribed: Collection[str],
        subscribe: Callable[[str, str, str | None], object],
    ) -> None:
        self._membership = membership
        self._subscribed = subscribed
        self._subscribe = subscribe
        self._wanted: dict[re.Pattern[str], tuple[str, str | None]] = {}
        # By pattern, the topics that it was the first to match.
        self._found: dict[re.Pattern[str], set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, pattern: re.Pattern[str], tags: str, sql: str | None) -> None:
        """Look for topics that match from the next :meth:`look` on.

        Raises:
            ValidationError: the tags or the expression cannot be right, or the pattern is one of bytes.
        """
        if not isinstance(pattern.pattern, str):
            raise ValidationError(f"topic must be a string or a pattern of one, got {pattern!r:.80}")
        self._membership.wanted(tags, sql)
        self._wanted[pattern] = tags, sql
        self._found.setdefault(pattern, set())

    def remove(self, pattern: re.Pattern[str]) -> set[str]:
        """Look for this pattern no longer; returns the topics that were subscribed to because of it."""
        self._wanted.pop(pattern, None)
        return self._found.pop(pattern, set())

    async def look(self) -> None:
        """Subscribe to the topics that match now. Name servers that do not answer are asked the next time."""
        if not self._wanted:
            return
        try:
            topics = await self._topics()
        except OrbitError as error:
            log.info("group %s cannot look for topics now: %s", self._membership.group, error)
            return
        for pattern, (tags, sql) in list(self._wanted.items()):
            for topic in topics:
                full = self._membership.full_topic(topic)
                if full not in self._subscribed and pattern.fullmatch(topic):
                    self._found[pattern].add(topic)
                    log.info(
                        "group %s subscribes to %s: it matches %r", self._membership.group, topic, pattern
                    )
                    self._subscribe(topic, tags, sql)

    async def _topics(self) -> list[str]:
        """The users' topics inside the namespace, by their short names."""
        name_servers = self._membership.client.name_servers
        command = partial(Command, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        known = await name_servers.ask(command, TopicList.decode)
        # Brokers have a topic for each cluster and one for themselves.
        cluster = await name_servers.cluster_info()
        servers = {*cluster.broker_addr_table, *cluster.cluster_addr_table}
        namespace = self._membership.namespace
        named = ((namespace.short(full), full) for full in sorted(known.topic_list))
        return [
            name
            for name, full in named
            if NAMESPACE_SEPARATOR not in name  # of another namespace, or a group's retries or dead letters
            and namespace.full(name) == full
            and topic_fault(name) is None
            and name not in servers
            and not is_own_topic(name)
            and not name.endswith(REPLY_TOPIC_SUFFIX)
        ]
