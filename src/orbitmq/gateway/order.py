"""Warns of groups that receive from a FIFO topic and are not orderly, with one log line each."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.gateway.clients import log
from orbitmq.gateway.names import FIFO, TYPE_ATTRIBUTE
from orbitmq.wire.bodies.group import SubscriptionGroupConfig

# The most pairs of a group and a topic that get a warning.
MAX_WARNED: Final = 10_000


class OrderWarnings:
    """Warns once of each group that is not orderly and receives from a FIFO topic."""

    def __init__(self, topics: TopicConfigs) -> None:
        self._topics = topics
        self._warned: set[tuple[str, str]] = set()

    def look(self, group: SubscriptionGroupConfig, topic: str) -> None:
        """Warn, once, if this group is not orderly and this topic, from which it receives, is FIFO."""
        config = self._topics.get(topic)
        if group.consume_message_orderly or config is None or config.attributes.get(TYPE_ATTRIBUTE) != FIFO:
            return
        pair = (group.group_name, topic)
        if pair in self._warned or len(self._warned) >= MAX_WARNED:
            return
        self._warned.add(pair)
        log.warning(
            "group %s reads topic %s, whose messages are in order (FIFO), and gets them out of order: "
            "orbitmq group create %s --orderly",
            *pair, group.group_name,
        )  # fmt: skip
