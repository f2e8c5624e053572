"""The blocking Admin at a broker on real sockets."""

from __future__ import annotations

import pytest

from orbitmq import Message
from orbitmq.admin import Partial
from orbitmq.errors import ClientStateError, TopicNotFoundError, UnknownOptionError
from orbitmq.sync import Admin, Producer
from orbitmq.testing import RunningCluster


def test_operations_wait_and_give_what_the_async_ones_do(orbitmq_cluster: RunningCluster) -> None:
    with Admin(orbitmq_cluster.name_server, timeout=10) as admin:
        (broker,) = admin.brokers.list()
        assert admin.topics.create("orders", queues=2) == [broker.name]
        with Producer("shop", name_servers=orbitmq_cluster.name_server) as producer:
            result = producer.send(Message("orders", b"1", keys=["k"]))
        status = admin.topics.status("orders")
        assert isinstance(status, Partial)
        assert sorted(queue.count for queue in status.whole()) == [0, 1]
        assert admin.messages.get(result.offset_message_id).body == b"1"
        with pytest.raises(TopicNotFoundError, match="nonesuch"):
            admin.topics.status("nonesuch")
        with pytest.raises(UnknownOptionError, match="did you mean 'queues'"):
            admin.topics.create("orders", queue=3)  # type: ignore[call-arg]
        topics = admin.topics
    for each in (topics.list, admin.timers.list):
        with pytest.raises(ClientStateError, match="client 'admin' is not running; use 'with' or start"):
            each()
    admin.close()


def test_an_admin_that_is_not_started_says_so() -> None:
    with pytest.raises(ClientStateError, match="is not running; use 'with' or start"):
        Admin("127.0.0.1:1").topics.list()
