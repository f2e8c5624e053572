"""Offsets for clients: where a group continues, and the bounds of queues."""

from __future__ import annotations

from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import MAX_QUEUES, TopicConfigs
from orbitmq.message.record import decode_record
from orbitmq.store import GetStatus, MessageStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# If a queue's first message is this near to the log's end, the queue is young, and a new group reads it all.
# RocketMQ checks whether the message is in memory (accessMessageInMemoryMaxRatio, 40 % of the machine's).
YOUNG_BYTES = 3 << 30


def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether a group that begins at the end of queues reads this queue from its first message on."""
    if store.min_offset(topic, queue_id) > 0:
        return False
    first = store.get(topic, queue_id, 0, 1)
    if first.status is not GetStatus.FOUND:
        return False
    return store.max_commit_log_offset - decode_record(first.body).physical_offset <= YOUNG_BYTES


class QueueOffsets:
    """Committed offsets of groups, and the bounds of queues (ConsumerManageProcessor)."""

    def __init__(
        self,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        store: MessageStore,
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store

    def start(self, group: str, topic: str, queue_id: int, *, zero_if_young: bool = True) -> int:
        """The offset at which a group continues; a new group of a young queue begins at 0.

        Raises:
            RemotingError: QUERY_NOT_FOUND, the group has no offset here, and its client has to choose one.
        """
        offset = self._offsets.query(group, topic, queue_id)
        if offset is not None and offset >= 0:
            return offset
        if not zero_if_young:
            raise RemotingError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        if not self._is_young(topic, queue_id):
            raise RemotingError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
            )
        return 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return False
        return is_young(self._store, topic, queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit a group's offset; ``False`` when a reset waits for the group: the reset wins.

        Raises:
            RemotingError: the group or the topic is not there, or a number is out of range.
        """
        if group not in self._groups:
            raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if topic not in self._topics:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= queue_id < MAX_QUEUES or offset < 0:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id}, commitOffset {offset}: expected 0 to {MAX_QUEUES - 1}, and not below 0",
            )
        if self._offsets.has_reset(group, topic, queue_id):
            return False
        self._offsets.commit(group, topic, queue_id, offset)
        return True

    def made_at(self, topic: str) -> str | None:
        """When a topic was made, if an earlier topic of its name was deleted; else ``None``."""
        config = self._topics.get(topic)
        return None if config is None or config.made_at is None else str(config.made_at)

    def at_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time; with ``upper`` the last one at or before it.

        Raises:
            RemotingError: there is no such queue.
        """
        self._metadata.queue(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    def maximum(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets.

        Raises:
            RemotingError: there is no such queue.
        """
        self._metadata.queue(topic, queue_id)
        return self._store.max_offset(topic, queue_id)

    def minimum(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that is still stored.

        Raises:
            RemotingError: there is no such queue.
        """
        self._metadata.queue(topic, queue_id)
        return self._store.min_offset(topic, queue_id)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the first message of a queue was stored, ms; -1 when there is none.

        Raises:
            RemotingError: there is no such queue.
        """
        first = self.minimum(topic, queue_id)
        return self._store.store_time(topic, queue_id, first)
