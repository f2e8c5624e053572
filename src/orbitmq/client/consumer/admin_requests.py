"""What operators ask a consumer through a broker: running info, progress, a reset, one message right now."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.record import decode_record, to_received
from orbitmq.wire.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import PROTOCOL_VERSION, Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerStatusFromClientRequest,
    ResetConsumerClientOffsetRequest,
)

# Codes that name a consumer group, and the field in which they do.
GROUP_FIELDS: Mapping[int, str] = {
    int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): "consumerGroup",
    int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): "group",
    int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): "group",
    int(RequestCode.GET_CONSUMER_RUNNING_INFO): "consumerGroup",
    int(RequestCode.CONSUME_MESSAGE_DIRECTLY): "consumerGroup",
}


class Observed(Protocol):
    """What is asked about."""

    started_ms: int

    @property
    def ordered(self) -> bool: ...

    def consumer_data(self) -> ConsumerData: ...

    def members_changed(self) -> None: ...

    def process_queues(self) -> Mapping[MessageQueue, ProcessQueue]: ...

    def progress(self, queue: MessageQueue) -> int: ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None: ...

    async def consume_now(self, message: ReceivedMessage) -> bool | None: ...


def answer(consumer: Observed, command: Command) -> Command | Awaitable[Command | None] | None:
    """Answer one request of :data:`GROUP_FIELDS`; one-way ones are answered by None.

    Raises:
        HeaderError, BodyError: the request cannot be read.
    """
    if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        consumer.members_changed()
        return None
    if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        return command.reply(body=_running_info(consumer).encode(java_keys=True))
    if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        topic = GetConsumerStatusFromClientRequest.from_ext(command.ext).topic
        table = {
            queue: consumer.progress(queue) for queue in consumer.process_queues() if queue.topic == topic
        }
        return command.reply(body=GetConsumerStatusBody(table).encode(java_keys=True))
    if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
        return _reset(consumer, command)
    return _consume_directly(consumer, command)


async def _reset(consumer: Observed, command: Command) -> None:
    topic = ResetConsumerClientOffsetRequest.from_ext(command.ext).topic
    table = ResetOffsetBody.decode(command.body).offset_table if command.body else {}
    await consumer.reset_offsets({queue: offset for queue, offset in table.items() if queue.topic == topic})


async def _consume_directly(consumer: Observed, command: Command) -> Command:
    header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
    try:
        message = to_received(decode_record(command.body), header.broker_name or "")
    except MessageFormatError as error:
        raise RemotingError(1, f"the message cannot be read: {error}") from error
    done = await consumer.consume_now(message)
    if done is None:
        raise RemotingError(1, f"the consumer of group {header.consumer_group} has no listener")
    result = ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS if done else CMResult.CR_LATER)
    return command.reply(body=result.encode())


def _running_info(consumer: Observed) -> ConsumerRunningInfo:
    data = consumer.consumer_data()
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUMEORDERLY": str(consumer.ordered).lower(),
            "PROP_CONSUME_TYPE": data.consume_type.value,
            "PROP_CLIENT_VERSION": str(PROTOCOL_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        },
        subscription_set=data.subscription_data_set,
        mq_table={
            queue: _queue_info(consumer, queue, process_queue)
            for queue, process_queue in consumer.process_queues().items()
        },
    )


def _queue_info(consumer: Observed, queue: MessageQueue, process_queue: ProcessQueue) -> ProcessQueueInfo:
    messages = process_queue.messages()
    return ProcessQueueInfo(
        commit_offset=consumer.progress(queue),
        cached_msg_min_offset=messages[0].queue_offset if messages else 0,
        cached_msg_max_offset=messages[-1].queue_offset if messages else 0,
        cached_msg_count=len(messages),
        cached_msg_size_in_mib=process_queue.unfinished_bytes // (1024 * 1024),
        droped=process_queue.dropped,
        last_pull_timestamp=process_queue.last_pull_ms,
    )
