"""The request of a pop, its answer, and the topics that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.wire import pop_info
from orbitmq.wire.bodies.topic import TopicConfig

MAX_MESSAGES = 32


@dataclass(frozen=True, slots=True)
class PopRequest:
    """A pop of a topic by one group. Times are milliseconds.

    Attributes:
        queue_id: below 0: any queue.
        invisible_ms: for how long no other member gets the messages.
        from_newest: whether a new group begins at the newest message of a queue; else at the oldest.
        ordered: deal no further messages out of a queue until those already dealt out are done.
        attempt_id: names an ordered pop, so that the same pop repeated gets the same messages.
    """

    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int
    from_newest: bool = False
    expression: str | None = None
    expression_type: str | None = None
    ordered: bool = False
    attempt_id: str | None = None


@dataclass(slots=True)
class Popped:
    """The answer to a pop, in the forms of the response's header.

    Attributes:
        body: stored records one after the other, ``count`` of them.
        rest: how many more messages wait in the queues.
        starts, offsets, order_counts: see :mod:`orbitmq.wire.pop_info`.
        revive_queue: the revive queue id in the receipts.
        free_at_ms: when the first blocked queue becomes free.
        full: whether a queue has as many messages in flight as the settings allow.
    """

    pop_time_ms: int
    revive_queue: int
    body: list[bytes] = field(default_factory=list)
    count: int = 0
    rest: int = 0
    starts: dict[pop_info.QueueKey, int] = field(default_factory=dict)
    offsets: dict[pop_info.QueueKey, Sequence[int]] = field(default_factory=dict)
    order_counts: dict[pop_info.QueueKey, int] = field(default_factory=dict)
    free_at_ms: int | None = None
    full: bool = False


class Sources:
    """The topics that a pop reads: the topic itself, and the group's retry topics for it."""

    def __init__(self, config: BrokerConfig, topics: TopicConfigs) -> None:
        self._config = config
        self._topics = topics

    def retry_topic(self, topic: str, group: str) -> str:
        """The retry topic for a message that was not handled in time."""
        kind = pop_info.RETRY_V2 if self._config.enable_retry_topic_v2 else pop_info.RETRY_V1
        return pop_info.retry_topic(topic, group, kind)

    def retry_names(self, topic: str, group: str) -> list[str]:
        """All retry topics that a pop reads; first the one that redeliveries are written to."""
        kinds = [pop_info.RETRY_V1]
        if self._config.enable_retry_topic_v2:
            kinds = [pop_info.RETRY_V2, *kinds] if self._config.pop_retry_topic_v1 else [pop_info.RETRY_V2]
        return [pop_info.retry_topic(topic, group, kind) for kind in kinds]

    def retry_topics(self, topic: str, group: str) -> Iterator[TopicConfig]:
        """The retry topics that exist."""
        for name in self.retry_names(topic, group):
            found = self._topics.get(name)
            if found is not None:
                yield found
