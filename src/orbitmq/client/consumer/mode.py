"""The parts of a consumer that depend on how it consumes: in any order or in order, shared or broadcast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.consumer.delivery import SUSPEND_MS, Dispatch, OrderedDispatch
from orbitmq.client.consumer.offsets import LocalOffsets, OffsetStore, offsets_path
from orbitmq.client.consumer.queue_locks import QueueLocks
from orbitmq.client.consumer.redelivery import (
    DEFAULT_MAX_RECONSUME_TIMES,
    ORDERED_MAX_RECONSUME_TIMES,
    Discard,
    Redelivery,
)
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.namespaces import Namespace
from orbitmq.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Way:
    """How is consumed; the fields are those of :class:`~orbitmq.client.consumer.consumer.Consumer`."""

    ordered: bool = False
    broadcast: bool = False
    max_reconsume_times: int = -1
    suspend_ms: int = SUSPEND_MS
    offsets_folder: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What :func:`assemble` makes."""

    offsets: OffsetStore | LocalOffsets
    returns: Redelivery | Discard
    dispatch: Dispatch
    locks: QueueLocks | None


def assemble(
    way: Way,
    client: ClientInstance,
    calls: BrokerCalls,
    group: str,
    namespace: Namespace,
    lock_lost: Callable[[MessageQueue], Awaitable[None]],
) -> Parts:
    """The parts for this way of consuming (CR-05, CR-14, CR-18, LK-03)."""
    most = way.max_reconsume_times
    if most < 0:
        most = ORDERED_MAX_RECONSUME_TIMES if way.ordered else DEFAULT_MAX_RECONSUME_TIMES
    offsets: OffsetStore | LocalOffsets
    returns: Redelivery | Discard
    if way.broadcast:
        offsets = LocalOffsets(client.runtime, offsets_path(group, way.offsets_folder))
        returns = Discard()
    else:
        offsets, returns = OffsetStore(calls, group), Redelivery(client, calls, group, most, namespace)
    if not way.ordered:
        return Parts(offsets, returns, Dispatch(group, namespace, offsets, returns), None)
    locks = None if way.broadcast else QueueLocks(client, calls, group, lock_lost)
    dispatch = OrderedDispatch(
        group,
        namespace,
        offsets,
        returns,
        max_reconsume_times=most,
        suspend_ms=way.suspend_ms,
        locks=locks,
    )
    return Parts(offsets, returns, dispatch, locks)
