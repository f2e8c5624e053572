"""Blocking push consumers that pop, at a broker on real sockets."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from orbitmq import ConsumeFrom, Message, ReceivedMessage
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.message import property_names
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster

MESSAGES = 300


@pytest.mark.orbitmq(settings={"defaultMessageRequestMode": "POP"})
@pytest.mark.behaviour("SH-03")
def test_two_members_pop_what_was_sent(orbitmq_cluster: RunningCluster) -> None:
    got: Counter[bytes] = Counter()
    lock, complete = threading.Lock(), threading.Event()

    def keep(message: ReceivedMessage) -> None:
        assert property_names.POP_CK in message.properties
        message.ack()
        with lock:
            got[message.body] += 1
            if len(got) == MESSAGES:
                complete.set()

    def member() -> Consumer:
        consumer = Consumer(
            "billing",
            name_servers=orbitmq_cluster.name_server,
            allocate=ByBroker(),
            consume_from=ConsumeFrom.FIRST,
            pop_invisible_for=10,
        )
        consumer.subscribe("orders")
        return consumer

    with Producer("shop", name_servers=orbitmq_cluster.name_server) as producer:
        producer.send_batch([Message("orders", b"%d" % number) for number in range(MESSAGES)])
    with ThreadPoolExecutor(2) as threads, member() as one, member() as other:
        running = [threads.submit(consumer.run, keep) for consumer in (one, other)]
        assert complete.wait(60)
        one.close()
        other.close()
        for work in running:
            work.result(60)
    with member() as late, ThreadPoolExecutor(1) as threads:
        work = threads.submit(late.run, keep)
        # Longer than the invisible time: what was not acknowledged would come again.
        assert not threading.Event().wait(12)
        late.close()
        work.result(60)
    assert got == Counter({b"%d" % number: 1 for number in range(MESSAGES)})
