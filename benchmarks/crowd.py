"""Many connections: a thousand with one send in flight each, and ten thousand idle ones."""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import QUEUES, Generator
from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, Server, ServerError

TOPIC = "crowd"
FEW, MANY, IDLE = 64, 1_000, 10_000
DURATION_S = 3.0
TURNS = 3
SPARE_DESCRIPTORS = 200


def measure(maker: Ours | Apache, generator: Generator, folder: Path) -> dict[str, float]:
    """CPU per send with few and with many connections, in turn; then the memory of idle connections."""
    allow_descriptors(IDLE + SPARE_DESCRIPTORS)
    name_server = maker.name_server(folder)
    with contextlib.ExitStack() as running:
        running.callback(name_server.stop)
        # All connections come from one address, which OrbitMQ limits and RocketMQ does not.
        most = str(IDLE + SPARE_DESCRIPTORS)
        broker = maker.broker(folder, name_server.address, maxConnections=most, maxConnectionsPerAddress=most)
        running.callback(broker.stop)
        with Client(broker.port, timeout_s=30) as client:
            client.create_topic(TOPIC, QUEUES)
        few, many, worst = [], [], 0.0
        warmup = maker.warmup_s
        for _ in range(TURNS):
            few.append(send(generator, broker, FEW, warmup)["server_cpu_us"])
            outcome = send(generator, broker, MANY, warmup)
            many.append(outcome["server_cpu_us"])
            worst = max(worst, outcome["latency_us"]["max"] / 1000)
            warmup = 1.0
        few_us, many_us = sorted(few)[TURNS // 2], sorted(many)[TURNS // 2]
        return {
            "few_cpu_us": few_us,
            "crowd_cpu_us": many_us,
            "crowd_ratio": many_us / few_us,
            "crowd_worst_ms": worst,
            "idle_connections_mb": idle_memory_mb(broker),
        }


def send(generator: Generator, broker: Server, connections: int, warmup_s: float) -> dict[str, Any]:
    """Sends over this many connections, with one send in flight on each."""
    return generator.run(
        "send",
        port=broker.port,
        pid=broker.pid,
        topic=TOPIC,
        queues=QUEUES,
        connections=connections,
        window=1,
        warmup=warmup_s,
        duration=DURATION_S,
    )


def idle_memory_mb(broker: Server) -> float:
    """Growth of RssAnon by :data:`IDLE` open connections, each of which has made one request."""
    before = broker.anonymous_mb()
    with contextlib.ExitStack() as connections:
        for _ in range(IDLE):
            connections.enter_context(Client(broker.port, timeout_s=30)).max_offset(TOPIC, 0)
        time.sleep(1)
        return broker.anonymous_mb() - before


def allow_descriptors(count: int) -> None:
    """Let this process, and the servers that it starts, open this many files.

    Raises:
        ServerError: the system allows fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ServerError(f"{count} open files are needed, the limit is {hard} (ulimit -n)")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
