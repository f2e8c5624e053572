"""The clients and the operations library for programs without asyncio, each on an event loop of its own.

::

    from orbitmq import Message
    from orbitmq.sync import Consumer, Producer

    with Producer("shop", name_servers="127.0.0.1:9876") as producer:
        producer.send(Message("orders", b"body"))

Every client starts one background thread. All methods may be called from any thread except from a callback
that runs on that thread. A plain handler runs in another one, and may close it.
"""

from orbitmq.sync.admin import (
    AccessAdmin,
    Admin,
    BrokerAdmin,
    ClientAdmin,
    DeadLetterAdmin,
    DefinitionAdmin,
    GroupAdmin,
    MessageAdmin,
    QuotaAdmin,
    TimerAdmin,
    TopicAdmin,
)
from orbitmq.sync.consumers import Consumer, PullConsumer, Reader, SimpleConsumer
from orbitmq.sync.producer import Producer, TransactionProducer

__all__ = [
    "AccessAdmin",
    "Admin",
    "BrokerAdmin",
    "ClientAdmin",
    "Consumer",
    "DeadLetterAdmin",
    "DefinitionAdmin",
    "GroupAdmin",
    "MessageAdmin",
    "Producer",
    "PullConsumer",
    "QuotaAdmin",
    "Reader",
    "SimpleConsumer",
    "TimerAdmin",
    "TopicAdmin",
    "TransactionProducer",
]
