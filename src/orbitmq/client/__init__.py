"""The clients: producer, consumer, assigned-queue consumer, and their state machines without I/O.

``routing``, ``chooser``, ``faults``, ``budget``, ``validation``, ``allocation``, ``process_queue``,
``namespaces`` and ``route_cache`` decide; ``instance``, ``producer``, ``consumer`` and ``assigned`` move
bytes and timers. ``consuming`` puts a consumer together from ``dispatch`` (which message when),
``owned_queues``, ``queue_locks`` and where progress is kept (``offset_store``, ``local_offsets``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.client.accumulator import AutoBatch as AutoBatch
    from orbitmq.client.assigned import AssignedConsumer as AssignedConsumer
    from orbitmq.client.chooser import by_hash as by_hash
    from orbitmq.client.chooser import by_random as by_random
    from orbitmq.client.consumer import Consumer as Consumer
    from orbitmq.client.faults import FaultItem as FaultItem
    from orbitmq.client.hooks import SendContext as SendContext
    from orbitmq.client.hooks import SendHook as SendHook
    from orbitmq.client.model import ConsumeFrom as ConsumeFrom
    from orbitmq.client.model import SendResult as SendResult
    from orbitmq.client.model import SendStatus as SendStatus
    from orbitmq.client.producer import Producer as Producer
    from orbitmq.client.transactional import LocalTransactionState as LocalTransactionState
    from orbitmq.client.transactional import TransactionProducer as TransactionProducer

_HOMES = {
    "AutoBatch": "accumulator",
    "AssignedConsumer": "assigned",
    "ConsumeFrom": "model",
    "Consumer": "consumer",
    "FaultItem": "faults",
    "LocalTransactionState": "transactional",
    "Producer": "producer",
    "SendContext": "hooks",
    "SendHook": "hooks",
    "SendResult": "model",
    "SendStatus": "model",
    "TransactionProducer": "transactional",
    "by_hash": "chooser",
    "by_random": "chooser",
}
__all__ = [
    "AssignedConsumer",
    "AutoBatch",
    "ConsumeFrom",
    "Consumer",
    "FaultItem",
    "LocalTransactionState",
    "Producer",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "by_hash",
    "by_random",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'orbitmq.client' has no attribute {name!r}")
    value = getattr(import_module(f"orbitmq.client.{home}"), name)
    globals()[name] = value
    return value
