"""Assigns a topic's queues to a group's members, in place of the members (QueryAssignmentProcessor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.broker.change_feed import REQUEST_MODES
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.clients.routed_queues import RoutedQueues
from orbitmq.broker.component import Component, Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.message.sharing import Allocation, average, average_by_circle
from orbitmq.wire.bodies.client import MessageModel
from orbitmq.wire.bodies.pop import (
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# By the strategy names that RocketMQ's clients send.
STRATEGIES: Mapping[str, Allocation] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}
EVERY_QUEUE = -1


class Assignments(Component):
    """Decides which queues a member has, and whether it pulls or pops their messages."""

    name = "assignments"

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        clients: ClientManager,
        queues: RoutedQueues,
        modes: RequestModes,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._clients = clients
        self._queues = queues
        self._modes = modes

    def tables(self) -> Sequence[Table]:
        return (Table(REQUEST_MODES, self._modes),)

    def modes(self) -> MessageRequestModeSerializeWrapper:
        """All modes that administrators set."""
        return MessageRequestModeSerializeWrapper(
            {topic: dict(modes) for topic, modes in self._modes.table().items()}
        )

    async def set_mode(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Switch a group between pulling and popping for one topic (``mqadmin setConsumeMode``).

        Raises:
            RemotingError: NO_PERMISSION for a retry topic, TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST;
                SERVICE_NOT_AVAILABLE, the disk refused.
        """
        if mode.topic.startswith(RETRY_PREFIX):
            raise RemotingError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        self._metadata.topic(mode.topic)
        self._metadata.group(mode.consumer_group)
        self._modes.put(mode)
        self._clients.let_rebalance(mode.consumer_group)
        await self._metadata.save(REQUEST_MODES)

    async def of(self, asked: QueryAssignmentRequestBody) -> list[MessageQueueAssignment] | None:
        """The queues of one member; ``None``: they are unknown now, and the member keeps its queues."""
        queues = await self._queues.of(asked.topic)
        if queues is None:
            return None
        mode = self._mode(asked.topic, asked.consumer_group)
        if asked.message_model is not MessageModel.BROADCASTING and self._config.server_load_balancer:
            shared = self._share(asked, queues, mode)
            if shared is None:
                return None
            queues = shared
        return [MessageQueueAssignment(queue, mode.mode) for queue in queues]

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        config = self._config
        mode = self._modes.get(topic, group) or SetMessageRequestModeRequestBody(topic, group)
        if self._modes.get(topic, group) is None and not topic.startswith(RETRY_PREFIX):
            mode.mode = MessageRequestMode(config.default_message_request_mode)
            mode.pop_share_queue_num = config.default_pop_share_queue_num
        return mode

    def _share(
        self,
        asked: QueryAssignmentRequestBody,
        queues: Sequence[MessageQueue],
        mode: SetMessageRequestModeRequestBody,
    ) -> list[MessageQueue] | None:
        state = self._clients.consumers(asked.consumer_group)
        allocate = STRATEGIES.get(asked.strategy_name or "AVG")
        if state is None or allocate is None:
            return None
        members = sorted(set(state.client_ids))
        if mode.mode is MessageRequestMode.POP:
            return share_for_pop(allocate, asked.client_id, queues, members, mode.pop_share_queue_num)
        return allocate(asked.client_id, queues, members)


def share_for_pop(
    allocate: Allocation,
    client_id: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    share: int,
) -> list[MessageQueue]:
    """The queues that a member may pop: its own and those of the ``share`` members after it.

    Args:
        share: the number of those members. If it is 0 or less, or nearly all members, the result is queue -1
            of each broker, which means every queue.
    """
    if share <= 0 or share >= len(members) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker, EVERY_QUEUE) for topic, broker in brokers]
    if client_id not in members:
        return []
    index = members.index(client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    neighbours = [members[(index + i) % len(members)] for i in range(share + 1)]
    return [queue for member in neighbours for queue in allocate(member, queues, members)]
