"""OrbitMQ: Apache RocketMQ's messaging system in Python.

The names below are loaded on first use, so that ``import orbitmq`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orbitmq import _speed as _speed  # before any other module: how compiled modules are imported

if TYPE_CHECKING:
    from orbitmq.client.consumer.assigned import AssignedConsumer as AssignedConsumer
    from orbitmq.client.consumer.consumer import Consumer as Consumer
    from orbitmq.client.model import ConsumeFrom as ConsumeFrom
    from orbitmq.client.model import SendResult as SendResult
    from orbitmq.client.model import SendStatus as SendStatus
    from orbitmq.client.producer.batching import AutoBatch as AutoBatch
    from orbitmq.client.producer.producer import Producer as Producer
    from orbitmq.client.producer.transactional import LocalTransactionState as LocalTransactionState
    from orbitmq.client.producer.transactional import TransactionProducer as TransactionProducer
    from orbitmq.errors import OrbitError as OrbitError
    from orbitmq.errors import SendError as SendError
    from orbitmq.errors import ValidationError as ValidationError
    from orbitmq.message.model import Message as Message
    from orbitmq.message.model import MessageQueue as MessageQueue
    from orbitmq.message.model import ReceivedMessage as ReceivedMessage
    from orbitmq.message.model import UnreadableMessage as UnreadableMessage

_HOMES = {
    "AutoBatch": "orbitmq.client.producer.batching",
    "AssignedConsumer": "orbitmq.client.consumer.assigned",
    "ConsumeFrom": "orbitmq.client.model",
    "Consumer": "orbitmq.client.consumer.consumer",
    "LocalTransactionState": "orbitmq.client.producer.transactional",
    "Message": "orbitmq.message.model",
    "MessageQueue": "orbitmq.message.model",
    "OrbitError": "orbitmq.errors",
    "Producer": "orbitmq.client.producer.producer",
    "ReceivedMessage": "orbitmq.message.model",
    "SendError": "orbitmq.errors",
    "SendResult": "orbitmq.client.model",
    "SendStatus": "orbitmq.client.model",
    "TransactionProducer": "orbitmq.client.producer.transactional",
    "UnreadableMessage": "orbitmq.message.model",
    "ValidationError": "orbitmq.errors",
}

__version__ = "0.1.0"
__all__ = [
    "AssignedConsumer",
    "AutoBatch",
    "ConsumeFrom",
    "Consumer",
    "LocalTransactionState",
    "Message",
    "MessageQueue",
    "OrbitError",
    "Producer",
    "ReceivedMessage",
    "SendError",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "UnreadableMessage",
    "ValidationError",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'orbitmq' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
