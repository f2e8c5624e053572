"""Moving a group to other offsets (AdminBrokerProcessor.resetOffset, Broker2Client.resetOffset).

The offset table alone is not enough: the target comes from the store, and old consumers have to be notified.
"""

from __future__ import annotations

from orbitmq.broker.change_feed import OFFSETS
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.stats import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Language
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.offset import ResetConsumerClientOffsetRequest

ALL_QUEUES = -1
NEWEST = -1


class GroupReset:
    """Moves groups to other offsets, and copies the offsets of one group to another."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store

    async def move(
        self,
        group: str,
        topic: str,
        *,
        queue_id: int = ALL_QUEUES,
        offset: int | None = None,
        timestamp_ms: int = NEWEST,
        force: bool = True,
    ) -> dict[MessageQueue, int]:
        """Move a group. Its consumers get the new offset with their next pull, or with
        ``useServerSideResetOffset=false`` by a request from the broker.

        Args:
            queue_id: only this queue; :data:`ALL_QUEUES`: every queue.
            offset: the target in a single queue; ``None`` or -1: ``timestamp_ms`` gives the target.
            timestamp_ms: the target is the first message at or after this time; :data:`NEWEST`: the offset
                behind the newest message.
            force: whether consumers that are moved by a request may also be moved forward.

        Returns:
            The new offset of each queue.

        Raises:
            RemotingError: the group, the topic or the queue is not there, or the queue has no such offset;
                SERVICE_NOT_AVAILABLE, the disk refused.
        """
        config = self._metadata.topic(topic)
        if not self._config.server_side_reset_offset:
            return self._move_in_clients(group, topic, config.write_queue_nums, timestamp_ms, force)
        if group not in self._groups:
            raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id >= 0:
            self._metadata.queue(topic, queue_id)
            targets = {queue_id: self._target(topic, queue_id, offset, timestamp_ms)}
        else:
            targets = {
                each: self._target(topic, each, None, timestamp_ms) for each in range(config.read_queue_nums)
            }
        for each, target in targets.items():
            self._offsets.reset(group, topic, each, target)
        await self._metadata.save(OFFSETS)
        return self._named(topic, targets)

    def _named(self, topic: str, targets: dict[int, int]) -> dict[MessageQueue, int]:
        broker = self._config.broker_name
        return {MessageQueue(topic, broker, queue_id): offset for queue_id, offset in targets.items()}

    def _target(self, topic: str, queue_id: int, offset: int | None, timestamp_ms: int) -> int:
        store = self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if offset is not None and offset != -1:
            if not low <= offset <= high:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{low}-{high}]",
                )
            return offset
        if timestamp_ms < 0:
            return high
        return store.offset_by_time(topic, queue_id, timestamp_ms)

    def _move_in_clients(
        self, group: str, topic: str, queues: int, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        """Send the group's consumers their new offsets (Broker2Client.resetOffset); without ``force`` only
        lower ones."""
        store = self._store
        targets: dict[int, int] = {}
        for queue_id in range(queues):
            consumed = self._offsets.query(group, topic, queue_id)
            if consumed is None:
                raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{group}> not exist")
            if timestamp_ms == NEWEST:
                target = store.max_offset(topic, queue_id)
            else:
                target = store.offset_by_time(topic, queue_id, timestamp_ms)
            targets[queue_id] = target if force else min(target, consumed)
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} "
                f"Topic: {topic} Timestamp: {timestamp_ms}",
            )
        table = self._named(topic, targets)
        request = ResetConsumerClientOffsetRequest(
            group=group, topic=topic, timestamp=timestamp_ms, is_force=force
        )
        for client in state.members.values():
            client.peer.oneway(request.command(_reset_body(table, client.language)))
        return table

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = False
    ) -> None:
        """Move ``target`` to the offsets of ``source``, in one topic or in all topics except retry topics.

        Args:
            offline: also copy offsets of topics that the source group, which is online, no longer reads.

        Raises:
            RemotingError: SERVICE_NOT_AVAILABLE, the disk refused.
        """
        offsets = self._offsets
        every = sorted(name for name in offsets.topics_of(source) if not name.startswith(RETRY_PREFIX))
        online = self._clients.consumers(source)
        for name in [topic] if topic else every:
            left = not offline and online is not None and name not in online.subscriptions
            if name in self._topics and not left:
                for queue_id, offset in offsets.kept(source, name).items():
                    self._give(target, name, queue_id, offset)
        await self._metadata.save(OFFSETS)

    def _give(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self._config.server_side_reset_offset:
            self._offsets.reset(group, topic, queue_id, offset)  # members that are online continue there too
        else:
            self._offsets.commit(group, topic, queue_id, offset)


def _reset_body(table: dict[MessageQueue, int], language: int) -> bytes:
    """The body with the new offsets; for C++ clients a list, because their JSON has no objects as keys."""
    if language != Language.CPP:
        return ResetOffsetBody(offset_table=table).encode()
    listed = [
        MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, to) for queue, to in table.items()
    ]
    return ResetOffsetBodyForC(offset_table=listed).encode()
