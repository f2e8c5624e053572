"""OrbitMQ: Apache RocketMQ's messaging system in Python.

This package has all names for sending and receiving messages. The other public modules are
``orbitmq.errors``, ``orbitmq.sync`` (without asyncio), ``orbitmq.admin``, ``orbitmq.testing`` and
``orbitmq.spark``; all further modules are internal.

The names below are loaded on first use, so that ``import orbitmq`` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import _speed as _speed  # first, because it decides how all other modules are imported
from orbitmq._lazy import lazy as _lazy

if TYPE_CHECKING:
    from orbitmq.client.consumer.allocation import Allocation as Allocation
    from orbitmq.client.consumer.allocation import ByBroker as ByBroker
    from orbitmq.client.consumer.allocation import average as average
    from orbitmq.client.consumer.allocation import average_by_circle as average_by_circle
    from orbitmq.client.consumer.allocation import by_config as by_config
    from orbitmq.client.consumer.allocation import by_machine_room as by_machine_room
    from orbitmq.client.consumer.allocation import consistent_hash as consistent_hash
    from orbitmq.client.consumer.allocation import nearest_room as nearest_room
    from orbitmq.client.consumer.assignment_watch import QueuesChanged as QueuesChanged
    from orbitmq.client.consumer.consumer import Consumer as Consumer
    from orbitmq.client.consumer.handling import Handler as Handler
    from orbitmq.client.consumer.options import BrokerChanged as BrokerChanged
    from orbitmq.client.consumer.options import ReaderStart as ReaderStart
    from orbitmq.client.consumer.pull import PullConsumer as PullConsumer
    from orbitmq.client.consumer.puller import FlowLimits as FlowLimits
    from orbitmq.client.consumer.reader import Reader as Reader
    from orbitmq.client.consumer.reader import ReadStep as ReadStep
    from orbitmq.client.consumer.simple import SimpleConsumer as SimpleConsumer
    from orbitmq.client.core.instance import ClientInstance as ClientInstance
    from orbitmq.client.hooks import ConsumeContext as ConsumeContext
    from orbitmq.client.hooks import ConsumeHook as ConsumeHook
    from orbitmq.client.hooks import ConsumeMiddleware as ConsumeMiddleware
    from orbitmq.client.hooks import ConsumeReturnType as ConsumeReturnType
    from orbitmq.client.hooks import EndTransactionContext as EndTransactionContext
    from orbitmq.client.hooks import SendContext as SendContext
    from orbitmq.client.hooks import SendHook as SendHook
    from orbitmq.client.hooks import SendMiddleware as SendMiddleware
    from orbitmq.client.model import ConsumeFrom as ConsumeFrom
    from orbitmq.client.model import SendResult as SendResult
    from orbitmq.client.model import SendStatus as SendStatus
    from orbitmq.client.observe.telemetry import Telemetry as Telemetry
    from orbitmq.client.producer.batching import AutoBatch as AutoBatch
    from orbitmq.client.producer.callbacks import SendDone as SendDone
    from orbitmq.client.producer.faults import FaultItem as FaultItem
    from orbitmq.client.producer.producer import Producer as Producer
    from orbitmq.client.producer.queue_choice import Selector as Selector
    from orbitmq.client.producer.queue_choice import by_hash as by_hash
    from orbitmq.client.producer.queue_choice import by_random as by_random
    from orbitmq.client.producer.transactional import LocalTransaction as LocalTransaction
    from orbitmq.client.producer.transactional import Transaction as Transaction
    from orbitmq.client.producer.transactional import TransactionCheck as TransactionCheck
    from orbitmq.client.producer.transactional import TransactionProducer as TransactionProducer
    from orbitmq.client.producer.transactional import TransactionResult as TransactionResult
    from orbitmq.client.producer.transactional import TransactionState as TransactionState
    from orbitmq.durations import Duration as Duration
    from orbitmq.errors import BrokerError as BrokerError
    from orbitmq.errors import ClientStateError as ClientStateError
    from orbitmq.errors import NotPermittedError as NotPermittedError
    from orbitmq.errors import OrbitError as OrbitError
    from orbitmq.errors import ReplyTimeoutError as ReplyTimeoutError
    from orbitmq.errors import SendError as SendError
    from orbitmq.errors import TopicNotFoundError as TopicNotFoundError
    from orbitmq.errors import ValidationError as ValidationError
    from orbitmq.message.model import Message as Message
    from orbitmq.message.model import MessageQueue as MessageQueue
    from orbitmq.message.model import ReceivedMessage as ReceivedMessage
    from orbitmq.message.model import UnreadableMessage as UnreadableMessage
    from orbitmq.message.settling import Settled as Settled
    from orbitmq.message.sysflag import CompressionType as CompressionType
    from orbitmq.runtime.client_tls import Tls as Tls
    from orbitmq.runtime.seam import Runtime as Runtime
    from orbitmq.transport.errors import TransportError as TransportError
    from orbitmq.wire.signing import Credentials as Credentials
    from orbitmq.wire.signing import CredentialsSource as CredentialsSource
    from orbitmq.wire.signing import Secret as Secret

_HOMES = {
    "Allocation": "orbitmq.client.consumer.allocation",
    "AutoBatch": "orbitmq.client.producer.batching",
    "BrokerChanged": "orbitmq.client.consumer.options",
    "BrokerError": "orbitmq.errors",
    "ByBroker": "orbitmq.client.consumer.allocation",
    "ClientInstance": "orbitmq.client.core.instance",
    "ClientStateError": "orbitmq.errors",
    "CompressionType": "orbitmq.message.sysflag",
    "ConsumeContext": "orbitmq.client.hooks",
    "ConsumeFrom": "orbitmq.client.model",
    "ConsumeHook": "orbitmq.client.hooks",
    "ConsumeMiddleware": "orbitmq.client.hooks",
    "ConsumeReturnType": "orbitmq.client.hooks",
    "Consumer": "orbitmq.client.consumer.consumer",
    "Credentials": "orbitmq.wire.signing",
    "CredentialsSource": "orbitmq.wire.signing",
    "Duration": "orbitmq.durations",
    "EndTransactionContext": "orbitmq.client.hooks",
    "FaultItem": "orbitmq.client.producer.faults",
    "FlowLimits": "orbitmq.client.consumer.puller",
    "Handler": "orbitmq.client.consumer.handling",
    "LocalTransaction": "orbitmq.client.producer.transactional",
    "Message": "orbitmq.message.model",
    "MessageQueue": "orbitmq.message.model",
    "NotPermittedError": "orbitmq.errors",
    "OrbitError": "orbitmq.errors",
    "Producer": "orbitmq.client.producer.producer",
    "PullConsumer": "orbitmq.client.consumer.pull",
    "QueuesChanged": "orbitmq.client.consumer.assignment_watch",
    "ReadStep": "orbitmq.client.consumer.reader",
    "Reader": "orbitmq.client.consumer.reader",
    "ReaderStart": "orbitmq.client.consumer.options",
    "ReceivedMessage": "orbitmq.message.model",
    "ReplyTimeoutError": "orbitmq.errors",
    "Runtime": "orbitmq.runtime.seam",
    "Secret": "orbitmq.wire.signing",
    "Selector": "orbitmq.client.producer.queue_choice",
    "SendContext": "orbitmq.client.hooks",
    "SendDone": "orbitmq.client.producer.callbacks",
    "SendError": "orbitmq.errors",
    "SendHook": "orbitmq.client.hooks",
    "SendMiddleware": "orbitmq.client.hooks",
    "SendResult": "orbitmq.client.model",
    "SendStatus": "orbitmq.client.model",
    "Settled": "orbitmq.message.settling",
    "SimpleConsumer": "orbitmq.client.consumer.simple",
    "Telemetry": "orbitmq.client.observe.telemetry",
    "Tls": "orbitmq.runtime.client_tls",
    "TopicNotFoundError": "orbitmq.errors",
    "Transaction": "orbitmq.client.producer.transactional",
    "TransactionCheck": "orbitmq.client.producer.transactional",
    "TransactionProducer": "orbitmq.client.producer.transactional",
    "TransactionResult": "orbitmq.client.producer.transactional",
    "TransactionState": "orbitmq.client.producer.transactional",
    "TransportError": "orbitmq.transport.errors",
    "UnreadableMessage": "orbitmq.message.model",
    "ValidationError": "orbitmq.errors",
    "average": "orbitmq.client.consumer.allocation",
    "average_by_circle": "orbitmq.client.consumer.allocation",
    "by_config": "orbitmq.client.consumer.allocation",
    "by_hash": "orbitmq.client.producer.queue_choice",
    "by_machine_room": "orbitmq.client.consumer.allocation",
    "by_random": "orbitmq.client.producer.queue_choice",
    "consistent_hash": "orbitmq.client.consumer.allocation",
    "nearest_room": "orbitmq.client.consumer.allocation",
}

__version__ = "0.1.0"
__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # type checkers would accept every name of a module with __getattr__
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
