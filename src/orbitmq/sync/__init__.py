"""The blocking clients and operations library for programs without asyncio; each object has an event loop of
its own.

::

    from orbitmq import Message
    from orbitmq.sync import Consumer, Producer

    with Producer("shop", name_servers="127.0.0.1:9876") as producer:
        producer.send(Message("orders", b"body"))

Every client starts one background thread. All methods may be called from any thread, but not from a callback
that runs on this background thread. A plain handler runs in another thread, and may close its consumer.
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
