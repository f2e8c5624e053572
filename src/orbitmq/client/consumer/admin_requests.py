"""Requests of brokers and operators to consumers: running info, offsets, resets, direct consumption of one
message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from orbitmq.client.consumer.assigned_queues import AssignedQueues
from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.mode import ConsumeMode
from orbitmq.client.consumer.offsets import Offsets
from orbitmq.client.consumer.popped_queues import PoppedQueues
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.broker_calls import Filter
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.record import decode_record, to_received
from orbitmq.runtime.stacks import stacks
from orbitmq.wire.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from orbitmq.wire.bodies.stats import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import PROTOCOL_VERSION, Command
from orbitmq.wire.connection import not_supported
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.client import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from orbitmq.wire.headers.offset import GetConsumerStatusFromClientRequest, ResetConsumerClientOffsetRequest


class PushMember:
    """The interface of a push consumer to the shared core and to brokers.

    Args:
        membership: the consumer's membership in its group.
        mode: the consume mode, which heartbeats carry.
        filters: the filter of each topic, kept up to date with the subscriptions.
        queues: the queues that the consumer pulls.
        popped: the queues that the consumer pops; None if it never pops.
        offsets: the group's offsets.
        rebalance_soon: called when the members' shares of the queues may have changed.
        consume: gives one message to the handler at an operator's request; None if the consumer has no
            handler.

    Attributes:
        started_ms: time of the start, in milliseconds since the epoch.
    """

    def __init__(
        self,
        membership: Membership,
        mode: ConsumeMode,
        filters: Mapping[str, Filter],
        queues: AssignedQueues,
        popped: PoppedQueues | None,
        offsets: Offsets,
        *,
        rebalance_soon: Callable[[], None],
        consume: Callable[[ReceivedMessage], Awaitable[ConsumeMessageDirectlyResult | None]],
    ) -> None:
        self._membership = membership
        self._mode = mode
        self._filters = filters
        self._queues = queues
        self._popped = popped
        self._offsets = offsets
        self._rebalance_soon = rebalance_soon
        self._consume = consume
        self.started_ms = 0

    def consumer_data(self) -> ConsumerData:
        """The consumer's entry in heartbeats."""
        model = MessageModel.BROADCASTING if self._mode.broadcast else MessageModel.CLUSTERING
        kind = ConsumeType.CONSUME_ACTIVELY if self._mode.pulls else ConsumeType.CONSUME_PASSIVELY
        return self._membership.consumer_data(kind, model, self._filters)

    def route_changed(self, topic: str) -> None:
        """Rebalance at once if the topic is one of this consumer's."""
        if topic in self._filters:
            self._rebalance_soon()

    def handle_request(self, command: Command) -> Command | Awaitable[Command | None] | None:
        """Answer a request that names this consumer's group; None for a one-way request.

        Raises:
            HeaderError, BodyError: the request cannot be read.
        """
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rebalance_soon()
            return None
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            asked = GetConsumerRunningInfoRequest.from_ext(command.ext)
            info = self._running_info()
            info.jstack = stacks() if asked.jstack_enable else None
            return command.reply(body=info.encode(java_keys=True))
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            topic = GetConsumerStatusFromClientRequest.from_ext(command.ext).topic
            queues = [queue for queue in self._queues.process_queues() if queue.topic == topic]
            table = {queue: self._offsets.get(queue) for queue in queues}
            return command.reply(body=GetConsumerStatusBody(table).encode(java_keys=True))
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return self._reset(command)
        return self._consume_directly(command)

    async def _reset(self, command: Command) -> None:
        topic = ResetConsumerClientOffsetRequest.from_ext(command.ext).topic
        table = ResetOffsetBody.decode(command.body).offset_table if command.body else {}
        await self._queues.move({queue: offset for queue, offset in table.items() if queue.topic == topic})

    async def _consume_directly(self, command: Command) -> Command:
        header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
        try:
            message = to_received(decode_record(command.body), header.broker_name or "")
        except MessageFormatError as error:
            raise RemotingError(1, f"the message cannot be read: {error}") from error
        result = await self._consume(message)
        if result is None:
            raise RemotingError(1, f"the consumer of group {header.consumer_group} has no handler")
        return command.reply(body=result.encode())

    def _running_info(self) -> ConsumerRunningInfo:
        data = self.consumer_data()
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUMEORDERLY": str(self._mode.ordered).lower(),
                "PROP_CONSUME_TYPE": data.consume_type.value,
                "PROP_CLIENT_VERSION": str(PROTOCOL_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
            },
            subscription_set=data.subscription_data_set,
            mq_table={
                queue: _queue_info(self._offsets.get(queue), process_queue)
                for queue, process_queue in self._queues.process_queues().items()
            },
            mq_pop_table={
                place: PopProcessQueueInfo(wait_ack_count=unfinished)
                for place, unfinished in (self._popped.places() if self._popped is not None else {}).items()
            },
        )


def _queue_info(commit_offset: int, process_queue: ProcessQueue) -> ProcessQueueInfo:
    messages = process_queue.messages()
    return ProcessQueueInfo(
        commit_offset=commit_offset,
        cached_msg_min_offset=messages[0].queue_offset if messages else 0,
        cached_msg_max_offset=messages[-1].queue_offset if messages else 0,
        cached_msg_count=len(messages),
        cached_msg_size_in_mib=process_queue.unfinished_bytes // (1024 * 1024),
        droped=process_queue.dropped,
        last_pull_timestamp=process_queue.last_pull_ms,
    )


class PopMember:
    """The interface of a consumer that pops to the shared core and to brokers."""

    def __init__(self, membership: Membership, filters: dict[str, Filter]) -> None:
        self._membership = membership
        self._filters = filters

    def consumer_data(self) -> ConsumerData:
        """The consumer's entry in heartbeats."""
        kind, model = ConsumeType.CONSUME_POP, MessageModel.CLUSTERING
        return self._membership.consumer_data(kind, model, self._filters)

    def handle_request(self, command: Command) -> Command | None:
        """Ignore notices of other members, which pop does not need; refuse other requests."""
        return None if command.is_oneway else not_supported(command)

    def route_changed(self, topic: str) -> None:
        """Do nothing: each receive looks up the current route."""
