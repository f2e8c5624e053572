"""The clients: producer, consumer, assigned-queue consumer.

``core`` is what they share (routes, name servers, calls to brokers), ``producer`` and ``consumer`` hold one
idea a file, ``observe`` the hooks for traces. Deciders (``core.inquiry``, ``core.routing``, ``core.routes``,
``producer.queue_choice``, ``producer.faults``, ``producer.budget``, ``consumer.allocation``,
``consumer.process_queue``, ``life``, ``validation``, ``namespaces``) do no I/O; the others move bytes and
timers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.client.consumer.assigned import AssignedConsumer as AssignedConsumer
    from orbitmq.client.consumer.consumer import Consumer as Consumer
    from orbitmq.client.consumer.simple import SimpleConsumer as SimpleConsumer
    from orbitmq.client.hooks import SendContext as SendContext
    from orbitmq.client.hooks import SendHook as SendHook
    from orbitmq.client.model import ConsumeFrom as ConsumeFrom
    from orbitmq.client.model import SendResult as SendResult
    from orbitmq.client.model import SendStatus as SendStatus
    from orbitmq.client.producer.batching import AutoBatch as AutoBatch
    from orbitmq.client.producer.faults import FaultItem as FaultItem
    from orbitmq.client.producer.producer import Producer as Producer
    from orbitmq.client.producer.queue_choice import by_hash as by_hash
    from orbitmq.client.producer.queue_choice import by_random as by_random
    from orbitmq.client.producer.transactional import LocalTransactionState as LocalTransactionState
    from orbitmq.client.producer.transactional import TransactionProducer as TransactionProducer

_HOMES = {
    "AutoBatch": "producer.batching",
    "AssignedConsumer": "consumer.assigned",
    "ConsumeFrom": "model",
    "Consumer": "consumer.consumer",
    "FaultItem": "producer.faults",
    "LocalTransactionState": "producer.transactional",
    "Producer": "producer.producer",
    "SendContext": "hooks",
    "SendHook": "hooks",
    "SendResult": "model",
    "SendStatus": "model",
    "SimpleConsumer": "consumer.simple",
    "TransactionProducer": "producer.transactional",
    "by_hash": "producer.queue_choice",
    "by_random": "producer.queue_choice",
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
    "SimpleConsumer",
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
