"""SQL92 subscriptions of the blocking consumer, on real sockets."""

from __future__ import annotations

import pytest

from orbitmq import BrokerError, ConsumeFrom, Message
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster


def test_the_blocking_consumer_filters_and_hears_a_refusal_at_subscribe(
    orbitmq_cluster: RunningCluster,
) -> None:
    servers = orbitmq_cluster.name_server
    with Producer("pg", name_servers=servers) as producer:
        for number in range(6):
            producer.send(Message("t", b"%d" % number, properties={"a": str(number), "b": "x"}))
    with Consumer("cg", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        with pytest.raises(BrokerError, match=r"column 7 .near 'AN b"):
            consumer.subscribe("t", sql="a > 1 AN b = 2")
        consumer.subscribe("t", sql="a > 3 AND b = 'x'")
        messages = consumer.messages()
        assert sorted(next(messages).body for _ in range(2)) == [b"4", b"5"]
        messages.close()
    unstarted = Consumer("other", name_servers=servers)
    unstarted.subscribe("t", sql="a >")
    with pytest.raises(BrokerError, match="column 4"):
        unstarted.start()
