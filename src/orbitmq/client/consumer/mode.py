"""The parts of a consumer that depend on its mode: concurrent or ordered, shared or broadcast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.client.consumer.delivery import (
    FAILURE_PAUSE_S,
    ConcurrentDelivery,
    Delivery,
    OrderedDelivery,
    Spawn,
)
from orbitmq.client.consumer.offsets import LocalOffsets, OffsetsByHand, OffsetStore, offsets_path
from orbitmq.client.consumer.queue_locks import MemberLocks
from orbitmq.client.consumer.redelivery import ORDERED_MAX_RECONSUME_TIMES, Discard, Redelivery
from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.hooks import ConsumeHooks
from orbitmq.client.namespaces import Namespace
from orbitmq.message.model import Message, MessageQueue


@dataclass(frozen=True, slots=True)
class ConsumeMode:
    """The consume mode; most fields are options of :class:`~orbitmq.client.consumer.consumer.Consumer`.

    Attributes:
        pulls: the user's code polls for messages instead of being called (PullConsumer).
        auto_commit: offsets are committed without a call of the user.
    """

    ordered: bool = False
    broadcast: bool = False
    max_reconsume_times: int = -1
    failure_pause_s: float = FAILURE_PAUSE_S
    offsets_folder: str | None = None
    consume_timeout_s: float = 900.0
    pulls: bool = False
    auto_commit: bool = True

    @property
    def commits_with_pulls(self) -> bool:
        """Whether pulls may commit the group's offset (MO-16)."""
        return self.auto_commit and not self.broadcast


@dataclass(frozen=True, slots=True)
class ModeParts:
    """The parts that :func:`assemble` creates."""

    offsets: OffsetStore | LocalOffsets
    delivery: Delivery
    locks: MemberLocks | None


def assemble(
    mode: ConsumeMode,
    client: ClientInstance,
    calls: BrokerCalls,
    group: str,
    namespace: Namespace,
    send: Callable[[Message], Awaitable[object]],
    lock_lost: Callable[[MessageQueue], Awaitable[None]],
    spawn: Spawn,
    hooks: ConsumeHooks | None,
) -> ModeParts:
    """The parts for this consume mode (CR-05, CR-14, CR-18, LK-03).

    Args:
        send: sends messages that no broker accepted as sent back to the retry topic.
        lock_lost: called with a queue whose lock another member has got.
        spawn: starts background work.
    """
    most = mode.max_reconsume_times if mode.max_reconsume_times >= 0 else None
    offsets: OffsetStore | LocalOffsets
    redelivery: Redelivery | Discard
    if mode.broadcast:
        offsets = LocalOffsets(client.runtime, offsets_path(client.runtime.host, group, mode.offsets_folder))
        redelivery = Discard()
    else:
        offsets = OffsetStore(calls, group) if mode.auto_commit else OffsetsByHand(calls, group)
        redelivery = Redelivery(calls, send, group, most, namespace)
    delivery: Delivery
    if not mode.ordered:
        delivery = ConcurrentDelivery(group, namespace, redelivery, spawn, hooks, mode.consume_timeout_s)
        return ModeParts(offsets, delivery, None)
    locks = None if mode.broadcast else MemberLocks(client, calls, group, lock_lost)
    delivery = OrderedDelivery(
        group,
        namespace,
        redelivery,
        spawn,
        hooks,
        mode.consume_timeout_s,
        max_reconsume_times=ORDERED_MAX_RECONSUME_TIMES if most is None else most,
        failure_pause_s=mode.failure_pause_s,
        locks=locks,
    )
    return ModeParts(offsets, delivery, locks)
