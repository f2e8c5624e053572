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
    from orbitmq.client.consumer.pull import PullConsumer as PullConsumer
    from orbitmq.client.consumer.simple import SimpleConsumer as SimpleConsumer
    from orbitmq.client.model import ConsumeFrom as ConsumeFrom
    from orbitmq.client.model import SendResult as SendResult
    from orbitmq.client.model import SendStatus as SendStatus
    from orbitmq.client.producer.batching import AutoBatch as AutoBatch
    from orbitmq.client.producer.producer import Producer as Producer
    from orbitmq.client.producer.transactional import LocalTransactionState as LocalTransactionState
    from orbitmq.client.producer.transactional import TransactionProducer as TransactionProducer
    from orbitmq.errors import BrokerError as BrokerError
    from orbitmq.errors import ClientStateError as ClientStateError
    from orbitmq.errors import NameServerError as NameServerError
    from orbitmq.errors import NotStoredSafelyError as NotStoredSafelyError
    from orbitmq.errors import OrbitError as OrbitError
    from orbitmq.errors import ReplyTimeoutError as ReplyTimeoutError
    from orbitmq.errors import SendError as SendError
    from orbitmq.errors import StartError as StartError
    from orbitmq.errors import TopicNotFoundError as TopicNotFoundError
    from orbitmq.errors import ValidationError as ValidationError
    from orbitmq.message.errors import MessageFormatError as MessageFormatError
    from orbitmq.message.model import Message as Message
    from orbitmq.message.model import MessageQueue as MessageQueue
    from orbitmq.message.model import ReceivedMessage as ReceivedMessage
    from orbitmq.message.model import UnreadableMessage as UnreadableMessage
    from orbitmq.message.settling import Settled as Settled
    from orbitmq.transport.errors import ConnectError as ConnectError
    from orbitmq.transport.errors import ConnectionLostError as ConnectionLostError
    from orbitmq.transport.errors import RequestTimeoutError as RequestTimeoutError
    from orbitmq.transport.errors import TooManyRequestsError as TooManyRequestsError
    from orbitmq.transport.errors import TransportError as TransportError
    from orbitmq.wire.errors import WireError as WireError

_HOMES = {
    "AssignedConsumer": "orbitmq.client.consumer.assigned",
    "AutoBatch": "orbitmq.client.producer.batching",
    "BrokerError": "orbitmq.errors",
    "ClientStateError": "orbitmq.errors",
    "ConnectError": "orbitmq.transport.errors",
    "ConnectionLostError": "orbitmq.transport.errors",
    "ConsumeFrom": "orbitmq.client.model",
    "Consumer": "orbitmq.client.consumer.consumer",
    "LocalTransactionState": "orbitmq.client.producer.transactional",
    "Message": "orbitmq.message.model",
    "MessageFormatError": "orbitmq.message.errors",
    "MessageQueue": "orbitmq.message.model",
    "NameServerError": "orbitmq.errors",
    "NotStoredSafelyError": "orbitmq.errors",
    "OrbitError": "orbitmq.errors",
    "Producer": "orbitmq.client.producer.producer",
    "PullConsumer": "orbitmq.client.consumer.pull",
    "ReceivedMessage": "orbitmq.message.model",
    "ReplyTimeoutError": "orbitmq.errors",
    "RequestTimeoutError": "orbitmq.transport.errors",
    "SendError": "orbitmq.errors",
    "SendResult": "orbitmq.client.model",
    "SendStatus": "orbitmq.client.model",
    "SimpleConsumer": "orbitmq.client.consumer.simple",
    "Settled": "orbitmq.message.settling",
    "StartError": "orbitmq.errors",
    "TooManyRequestsError": "orbitmq.transport.errors",
    "TopicNotFoundError": "orbitmq.errors",
    "TransactionProducer": "orbitmq.client.producer.transactional",
    "TransportError": "orbitmq.transport.errors",
    "UnreadableMessage": "orbitmq.message.model",
    "ValidationError": "orbitmq.errors",
    "WireError": "orbitmq.wire.errors",
}

__version__ = "0.1.0"
__all__ = [
    "AssignedConsumer",
    "AutoBatch",
    "BrokerError",
    "ClientStateError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumeFrom",
    "Consumer",
    "LocalTransactionState",
    "Message",
    "MessageFormatError",
    "MessageQueue",
    "NameServerError",
    "NotStoredSafelyError",
    "OrbitError",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "SendError",
    "SendResult",
    "SendStatus",
    "Settled",
    "SimpleConsumer",
    "StartError",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "TransactionProducer",
    "TransportError",
    "UnreadableMessage",
    "ValidationError",
    "WireError",
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
