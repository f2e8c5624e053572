"""Many topics at one broker: creation, a write to each, idle time, stop and start."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import QUEUES, Generator
from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, Server, ServerError, wait_for_route

AT_A_TIME = 16
CREATE_LIMIT_S = 600.0
PULL_LIMIT_S = 300.0
SETTLE_S = 12.0
"""From the last change to an idle broker: checkpoints run every 5 s, statistics every 10 s."""
SETTLE_LIMIT_S = 60.0
QUIET_CPU_S = 0.02
"""A broker is idle if it used less CPU than this in a second; work after the last requests counts as
theirs.
"""
IDLE_S = 35.0


def name(number: int) -> str:
    """The name of a topic by its number, below 100,000."""
    return f"growth_{number:05d}"


def measure(maker: Ours | Apache, generator: Generator, folder: Path, topics: int) -> dict[str, float]:
    """All figures of one broker with this many topics."""
    found: dict[str, float] = {}
    name_server = maker.name_server(folder)
    with contextlib.ExitStack() as running:
        running.callback(name_server.stop)
        broker = maker.broker(folder, name_server.address)
        # At the end the process need not stop cleanly.
        running.callback(lambda: broker.kill())
        found |= create(broker, name_server, topics)
        found |= first_messages(generator, broker, topics)
        found["first_settle_ms"] = settle(broker) / topics * 1000
        found |= idle(broker)
        found["name_server_mb"] = name_server.anonymous_mb()
        broker.stop(PULL_LIMIT_S)
        found["stop_s"] = broker.stopped_s
        broker = maker.broker(folder, name_server.address)
        found["clean_start_s"] = first_pull_s(broker, name(0))
        broker.kill()
        broker = maker.broker(folder, name_server.address)
        found["kill_start_s"] = first_pull_s(broker, name(0))
        broker.kill()
        broker = maker.broker(folder, name_server.address, wait=False)
        found["term_s"] = stop_at(broker, found["kill_start_s"] / 2)
    return found


def create(broker: Server, name_server: Server, topics: int) -> dict[str, float]:
    """Create the topics; the last tenth beside the whole shows whether a creation costs more with more
    topics.

    Raises:
        ServerError: a request failed, the topics were not created in time, or the name server lacks one of
            them.
    """
    before_last = topics - max(1, topics // 10)
    begin, cpu, name_server_cpu = time.monotonic(), broker.cpu_s(), name_server.cpu_s()
    worst_ms = create_some(broker, 0, before_last)
    last = time.monotonic()
    worst_ms = max(worst_ms, create_some(broker, before_last, topics))
    end = time.monotonic()
    found = {
        "create_rate": topics / (end - begin),
        "create_last_rate": (topics - before_last) / (end - last),
        "create_cpu_ms": (broker.cpu_s() - cpu) / topics * 1000,
        "create_name_server_ms": (name_server.cpu_s() - name_server_cpu) / topics * 1000,
        "create_worst_ms": worst_ms,
    }
    check_routes(name_server, topics)
    return found


def create_some(broker: Server, first: int, last: int) -> float:
    """Create topics `first` to `last - 1`, :data:`AT_A_TIME`; returns the longest duration of one, in
    milliseconds.
    """
    numbers = itertools.count(first)
    failures: list[str] = []
    worst = [0.0] * AT_A_TIME
    limit = time.monotonic() + CREATE_LIMIT_S

    def work(worker: int) -> None:
        try:
            with Client(broker.port, timeout_s=60) as client:
                while (number := next(numbers)) < last and not failures:
                    begin = time.monotonic()
                    client.create_topic(name(number), QUEUES)
                    worst[worker] = max(worst[worker], time.monotonic() - begin)
                    if time.monotonic() > limit:
                        failures.append(f"{number} of {last} topics were made in {CREATE_LIMIT_S:.0f} s")
        except Exception as error:
            failures.append(f"a topic was not made: {error!r}")

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(AT_A_TIME)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    if failures:
        raise ServerError(f"{broker.name}: {failures[0]}")
    return max(worst) * 1000


def check_routes(name_server: Server, topics: int) -> None:
    """Check that some hundred topics over the whole range have a route; a broker may report changes a little
    later.
    """
    for number in range(0, topics, max(1, topics // 100)):
        wait_for_route(name_server, name(number))


def first_messages(generator: Generator, broker: Server, topics: int) -> dict[str, float]:
    """One message to each topic, into its first queue."""
    outcome = generator.run(
        "send",
        port=broker.port,
        pid=broker.pid,
        topic=name(0),
        topics=topics,
        queues=1,
        connections=AT_A_TIME,
        window=1,
        warmup=0,
        ops=topics,
        duration=CREATE_LIMIT_S,
    )
    if outcome["messages"] < topics:
        raise ServerError(f"{broker.name} took {outcome['messages']} of {topics}: {outcome['errors']}")
    return {"first_rate": outcome["ops_per_second"], "first_cpu_ms": outcome["server_cpu_us"] / 1000}


def settle(broker: Server) -> float:
    """Wait until the broker's background work for the last requests is done; returns its CPU time in seconds.

    A file for each topic's first message is such work: Apache's broker creates it at once, OrbitMQ's
    afterwards.
    """
    begin = cpu = broker.cpu_s()
    limit = time.monotonic() + SETTLE_LIMIT_S
    time.sleep(SETTLE_S)
    while time.monotonic() < limit:
        cpu = broker.cpu_s()
        time.sleep(1)
        if broker.cpu_s() - cpu < QUIET_CPU_S:
            break
    return cpu - begin


def idle(broker: Server) -> dict[str, float]:
    """CPU time during :data:`IDLE_S` without a client, and the memory at the end."""
    cpu = broker.cpu_s()
    time.sleep(IDLE_S)
    return {"idle_cpu_s": broker.cpu_s() - cpu, "memory_mb": broker.anonymous_mb()}


def first_pull_s(broker: Server, topic: str, queue: int = 0) -> float:
    """Seconds from the start of the process until a pull of this queue returns messages.

    Raises:
        ServerError: no pull did within :data:`PULL_LIMIT_S`.
    """
    for _ in _tries(broker):
        with contextlib.suppress(OSError), Client(broker.port, timeout_s=5) as client:
            if client.pull(topic, queue, 0).code == 0:
                return time.monotonic() - broker.started_at
    raise ServerError(f"{broker.name}: no pull of {topic} is answered in {PULL_LIMIT_S:.0f} s")


def _tries(broker: Server) -> Iterator[None]:
    while time.monotonic() - broker.started_at < PULL_LIMIT_S:
        yield
        time.sleep(0.005)


def stop_at(broker: Server, after_s: float) -> float:
    """Send SIGTERM this long after the start of the process; returns how long it still ran, in seconds."""
    time.sleep(max(0.0, broker.started_at + after_s - time.monotonic()))
    broker.stop(PULL_LIMIT_S)
    return broker.stopped_s
