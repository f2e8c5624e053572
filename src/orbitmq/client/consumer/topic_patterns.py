"""Subscriptions by pattern: finds the topics that match, topics created later included."""

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

# The time that clients take to see a changed route (pollNameServerInterval).
LOOK_EVERY_S = 30.0


class TopicPatterns:
    """The patterns of one consumer.

    Args:
        subscribed: the full names of the topics that the consumer is subscribed to. A topic with a
            subscription by name keeps that one.
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
        # For each pattern, the topics that it was the first to match.
        self._found: dict[re.Pattern[str], set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, pattern: re.Pattern[str], tags: str, sql: str | None) -> None:
        """Look for topics that match from the next :meth:`look` on.

        Raises:
            ValidationError: the tags or the expression is invalid, or the pattern is a bytes pattern.
        """
        if not isinstance(pattern.pattern, str):
            raise ValidationError(f"topic must be a string or a pattern of one, got {pattern!r:.80}")
        self._membership.wanted(tags, sql)
        self._wanted[pattern] = tags, sql
        self._found.setdefault(pattern, set())

    def remove(self, pattern: re.Pattern[str]) -> set[str]:
        """Remove this pattern; returns the topics whose subscription it made."""
        self._wanted.pop(pattern, None)
        return self._found.pop(pattern, set())

    async def look(self) -> None:
        """Subscribe to the topics that match now. If no name server answers, the next look tries again."""
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
        """The topics of users inside the namespace, by their names without it."""
        name_servers = self._membership.client.name_servers
        command = partial(Command, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        known = await name_servers.ask(command, TopicList.decode)
        # Brokers have one topic named after each cluster and one named after themselves.
        cluster = await name_servers.cluster_info()
        servers = {*cluster.broker_addr_table, *cluster.cluster_addr_table}
        namespace = self._membership.namespace
        named = ((namespace.short(full), full) for full in sorted(known.topic_list))
        return [
            name
            for name, full in named
            # topics of another namespace, and retry and dead letter topics of groups
            if NAMESPACE_SEPARATOR not in name
            and namespace.full(name) == full
            and topic_fault(name) is None
            and name not in servers
            and not is_own_topic(name)
            and not name.endswith(REPLY_TOPIC_SUFFIX)
        ]
