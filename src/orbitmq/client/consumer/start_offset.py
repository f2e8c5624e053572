"""Where a group begins on a queue."""

from __future__ import annotations

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.validation import RETRY_PREFIX
from orbitmq.message.model import MessageQueue


async def start_offset(
    calls: BrokerCalls,
    group: str,
    queue: MessageQueue,
    consume_from: ConsumeFrom,
    timestamp_ms: int | None = None,
) -> int:
    """The committed offset; without one, what ``consume_from`` says (RebalancePushImpl).

    A retry queue without an offset begins at its first message whatever the user chose: its messages are
    the group's own.

    Raises:
        OrbitError, TransportError: a broker did not say. The caller tries again, it must not guess.
    """
    committed = await calls.committed(group, queue)
    return committed if committed >= 0 else await first_offset(calls, queue, consume_from, timestamp_ms)


async def first_offset(
    calls: BrokerCalls, queue: MessageQueue, consume_from: ConsumeFrom, timestamp_ms: int | None = None
) -> int:
    """What ``consume_from`` says about a queue without progress; errors as :func:`start_offset`."""
    if consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
        return await calls.min_offset(queue)
    if consume_from is ConsumeFrom.TIMESTAMP and timestamp_ms is not None:
        return await calls.offset_by_time(queue, timestamp_ms)
    return await calls.max_offset(queue)
