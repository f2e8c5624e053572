"""The parts of a consumer that depend on how it consumes: in any order or in order, shared or broadcast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.consumer.delivery import SUSPEND_MS, ConcurrentDelivery, OrderedDelivery
from orbitmq.client.consumer.offsets import LocalOffsets, OffsetStore, offsets_path
from orbitmq.client.consumer.queue_locks import MemberLocks
from orbitmq.client.consumer.redelivery import (
    DEFAULT_MAX_RECONSUME_TIMES,
    ORDERED_MAX_RECONSUME_TIMES,
    Discard,
    Redelivery,
)
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.namespaces import Namespace
from orbitmq.message.model import Message, MessageQueue


@dataclass(frozen=True, slots=True)
class ConsumeMode:
    """How is consumed; the fields are those of :class:`~orbitmq.client.consumer.consumer.Consumer`."""

    ordered: bool = False
    broadcast: bool = False
    max_reconsume_times: int = -1
    suspend_ms: int = SUSPEND_MS
    offsets_folder: str | None = None


@dataclass(frozen=True, slots=True)
class ModeParts:
    """What :func:`assemble` makes."""

    offsets: OffsetStore | LocalOffsets
    redelivery: Redelivery | Discard
    delivery: ConcurrentDelivery
    locks: MemberLocks | None


def assemble(
    mode: ConsumeMode,
    client: ClientInstance,
    calls: BrokerCalls,
    group: str,
    namespace: Namespace,
    send: Callable[[Message], Awaitable[object]],
    lock_lost: Callable[[MessageQueue], Awaitable[None]],
) -> ModeParts:
    """The parts for this consume mode (CR-05, CR-14, CR-18, LK-03).

    Args:
        send: for messages that no broker takes back.
        lock_lost: called with a queue whose lock another member has got.
    """
    most = mode.max_reconsume_times
    if most < 0:
        most = ORDERED_MAX_RECONSUME_TIMES if mode.ordered else DEFAULT_MAX_RECONSUME_TIMES
    offsets: OffsetStore | LocalOffsets
    redelivery: Redelivery | Discard
    if mode.broadcast:
        offsets = LocalOffsets(client.runtime, offsets_path(client.runtime.host, group, mode.offsets_folder))
        redelivery = Discard()
    else:
        offsets = OffsetStore(calls, group)
        redelivery = Redelivery(calls, send, group, most, namespace)
    if not mode.ordered:
        return ModeParts(offsets, redelivery, ConcurrentDelivery(group, namespace, offsets, redelivery), None)
    locks = None if mode.broadcast else MemberLocks(client, calls, group, lock_lost)
    delivery = OrderedDelivery(
        group,
        namespace,
        offsets,
        redelivery,
        max_reconsume_times=most,
        suspend_ms=mode.suspend_ms,
        locks=locks,
    )
    return ModeParts(offsets, redelivery, delivery, locks)
