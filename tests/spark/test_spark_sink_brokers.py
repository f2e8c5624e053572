"""The sink without Spark against real brokers: delays, keys, rows that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from tests.spark.sink_query import QUERY, Query

from orbitmq import Message
from orbitmq.errors import BrokerError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import SchemaError
from orbitmq.spark.options import WriteOptions
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), brokers=2) as running:
        yield running


def options(cluster: Any, topic: str, location: Path | str, **values: Any) -> WriteOptions:
    with Producer("maker", name_servers=cluster.name_server) as producer:
        producer.send(Message(topic, b"-1"))
    return WriteOptions(
        topic=topic,
        name_servers=(cluster.name_server,),
        state_location=str(location),
        retry_timeout_ms=5000,
        **values,
    )


def test_delayed_messages_are_sent_once(cluster: Any, tmp_path: Path) -> None:
    query = Query(options(cluster, "sink-levels", tmp_path), ("body", "delay_level"))
    levels = {"body": [str(n) for n in range(40)], "delay_level": pa.array([18, 0] * 20, pa.int32())}
    query.run(3, [levels], commit=False)
    assert query.bodies(3) == list(range(1, 40, 2))
    (again,) = query.run(3, [levels])
    assert (again.rows, again.metrics.rows, len(again.matched) // 8) == (40, 0, 40)
    timed = Query(options(cluster, "sink-times", tmp_path), ("body", "deliver_at"))
    now = this_worker().clock.now_ms()
    times = {
        "body": [str(n) for n in range(40)],
        "deliver_at": pa.array([now + 3_600_000, None, now + 500, 0] * 10, pa.int64()),
    }
    timed.run(4, [times], commit=False)
    while len(timed.bodies(4)) < 30:
        assert this_worker().clock.now_ms() < now + 60_000, "what is due is not delivered"
        this_worker().pause(0.05)
    (again,) = timed.run(4, [times])
    assert (again.rows, again.metrics.rows, len(again.matched) // 8) == (40, 0, 40)


def test_a_row_that_a_broker_does_not_take_is_named(cluster: Any, tmp_path: Path) -> None:
    query = Query(options(cluster, "sink-large", tmp_path))
    rows = {"body": ["1", "2", "x" * (5 << 20), "4"]}
    with pytest.raises(
        BrokerError, match=rf"row 2 of {QUERY}/6/0, a body of 5242880 bytes: .*maxMessageSize"
    ):
        query.run(6, [rows])
    with pytest.raises(SchemaError, match=rf"row 1 of {QUERY}/7/0 has no body"):
        query.run(7, [{"body": ["1", None]}])
    keyed = Query(options(cluster, "sink-large", tmp_path), ("body", "properties"))
    maps = pa.array([[("a", "x" * (33 << 10))]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(SchemaError, match=rf"row 0 of {QUERY}/8/0 has properties of more than 32767 bytes"):
        keyed.run(8, [{"body": ["1"], "properties": maps}])


def test_a_key_keeps_its_queue(cluster: Any, tmp_path: Path) -> None:
    query = Query(options(cluster, "sink-keys", tmp_path), ("body", "sharding_key"))
    rows = {"body": [str(n) for n in range(200)], "sharding_key": [f"k{n % 7}" for n in range(200)]}
    query.run(5, [rows])
    found = query.stored(5)
    queues = Counter((int(one.body) % 7, one.queue) for one in found)
    assert len(queues) == 7, "one queue for each key"
    for key in range(7):
        numbers = [int(one.body) for one in found if int(one.body) % 7 == key]
        assert numbers == sorted(numbers)
