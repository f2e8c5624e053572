"""A broker killed at full rate: the time from its next start to its answer to a pull."""

from __future__ import annotations

import contextlib
from pathlib import Path

from benchmarks.many_topics import PULL_LIMIT_S, first_pull_s
from benchmarks.measure import QUEUES, Generator
from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours

TOPIC = "recovery"
LOAD_S = 8.0
SHORTEST_S = 0.01
"""Two starts differ by this much in any case."""


def measure(maker: Ours | Apache, generator: Generator, folder: Path) -> dict[str, float]:
    """Fill one topic at full rate for :data:`LOAD_S`, kill the broker, start it, pull.

    Records are counted after the restart: records that were not on the disk yet were in the page cache, which
    survives a killed process. The rate leaves out the time of a start without records.
    """
    name_server = maker.name_server(folder)
    with contextlib.ExitStack() as running:
        running.callback(name_server.stop)
        broker = maker.broker(folder, name_server.address)
        running.callback(lambda: broker.kill())
        empty_s = broker.ready_s
        with Client(broker.port, timeout_s=30) as client:
            client.create_topic(TOPIC, QUEUES)
        generator.run(
            "send",
            port=broker.port,
            topic=TOPIC,
            queues=QUEUES,
            connections=16,
            window=16,
            warmup=0,
            duration=LOAD_S,
        )
        broker.kill()
        broker = maker.broker(folder, name_server.address)
        took = first_pull_s(broker, TOPIC)
        with Client(broker.port, timeout_s=PULL_LIMIT_S) as client:
            records = sum(client.max_offset(TOPIC, queue) for queue in range(QUEUES))
        return {
            "records": records,
            "recovery_s": took,
            "recovery_rate": records / max(SHORTEST_S, took - empty_s),
            "unserved_s": took - broker.accepted_s,
        }
