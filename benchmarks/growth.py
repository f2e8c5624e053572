"""What topics cost while their number grows: creation, first message, idle time, memory, start.

One name server and one broker on real sockets; the load is requests of 16 connections, one in flight on each.

    python -m benchmarks.growth [--topics 2000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.remoting import GET_ROUTE, PULL_MESSAGE, Client
from benchmarks.servers import Ours, Server

SEND_MESSAGE_V2 = 310
QUEUES = 8
CONNECTIONS = 16
IDLE_S = 10.0
SETTLE_S = 7.0  # table files are written 5 s after a change at the latest
START_LIMIT_S = 120.0


class Side(Protocol):
    """Starts servers: :class:`benchmarks.servers.Ours` or ``Apache``."""

    @property
    def title(self) -> str: ...

    def name_server(self, folder: Path, *, cpus: set[int] | None = None) -> Server: ...

    def broker(
        self,
        folder: Path,
        name_server: str,
        *,
        port: int = 0,
        name: str = "broker-a",
        store: Path | None = None,
        cpus: set[int] | None = None,
        **more: str,
    ) -> Server: ...


@dataclass(frozen=True)
class Work:
    """So many requests: how fast, and what each cost the broker and the name server in CPU time."""

    count: int
    seconds: float
    broker_ms: float
    name_server_ms: float
    worst_ms: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


@dataclass(frozen=True)
class Growth:
    """One run.

    Attributes:
        created: the whole creation; ``created_last`` its last tenth, which shows whether cost grows.
        first_messages: one message to each topic.
        idle_cpu_s: the broker's CPU time in 35 s without a request.
        clean_start_s, killed_start_s: from starting the process until the first pull is answered.
    """

    side: str
    topics: int
    created: Work
    created_last: Work
    first_messages: Work
    idle_cpu_s: float
    memory_mb: float
    name_server_mb: float
    clean_start_s: float
    killed_start_s: float


def topic_name(number: int) -> str:
    return f"growth-{number:06}"


class Load:
    """Runs one request for each number over all connections, and says what it cost."""

    def __init__(self, broker: Server, name_server: Server) -> None:
        self._broker = broker
        self._name_server = name_server

    def run(self, first: int, last: int, request: Callable[[Client, int], object]) -> Work:
        """Numbers from ``first`` to below ``last``.

        Raises:
            RequestError: one of them was refused.
        """
        numbers = iter(range(first, last))
        lock = threading.Lock()
        worst = 0.0
        failures: list[BaseException] = []

        def work() -> None:
            nonlocal worst
            try:
                with Client(self._broker.port, timeout_s=60) as client:
                    for number in _shared(numbers, lock):
                        begun = time.monotonic()
                        request(client, number)
                        worst = max(worst, time.monotonic() - begun)
            except BaseException as error:
                failures.append(error)

        cpu = self._broker.cpu_s(), self._name_server.cpu_s()
        begun = time.monotonic()
        threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        if failures:
            raise failures[0]
        count = last - first
        return Work(
            count,
            seconds,
            (self._broker.cpu_s() - cpu[0]) / count * 1000,
            (self._name_server.cpu_s() - cpu[1]) / count * 1000,
            worst * 1000,
        )


def _shared(numbers: Iterator[int], lock: threading.Lock) -> Iterator[int]:
    while True:
        with lock:
            number = next(numbers, None)
        if number is None:
            return
        yield number


def create(client: Client, number: int) -> None:
    client.create_topic(topic_name(number), QUEUES)


def send(client: Client, number: int) -> None:
    """One message of 100 bytes, as a producer of 5.x sends it."""
    fields = {
        "a": "growth",
        "b": topic_name(number),
        "c": "TBW102",
        "d": "4",
        "e": str(number % QUEUES),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01{number:032X}\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    client.request(SEND_MESSAGE_V2, fields, b"x" * 100)


def pull(port: int, number: int) -> None:
    """Pull the message of :func:`send`.

    Raises:
        RequestError: it was not answered with a message.
    """
    fields = {
        "consumerGroup": "TOOLS_CONSUMER",
        "topic": topic_name(number),
        "queueId": str(number % QUEUES),
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    with Client(port, timeout_s=10) as client:
        client.request(PULL_MESSAGE, fields)


def measure(side: Side, folder: Path, topics: int) -> Growth:
    """Measure one side with that many topics.

    Raises:
        ServerError: a server did not start or stop.
        RequestError: a request was refused.
    """
    name_server = side.name_server(folder)
    try:
        broker = side.broker(folder, name_server.address, autoCreateTopicEnable="false")
        try:
            load = Load(broker, name_server)
            before_last = topics * 9 // 10
            begun = time.monotonic()
            most = load.run(0, before_last, create)
            last = load.run(before_last, topics, create)
            created = Work(
                topics,
                time.monotonic() - begun,
                (most.broker_ms * most.count + last.broker_ms * last.count) / topics,
                (most.name_server_ms * most.count + last.name_server_ms * last.count) / topics,
                max(most.worst_ms, last.worst_ms),
            )
            _check_routes(name_server.port, topics)
            first_messages = load.run(0, topics, send)
            time.sleep(SETTLE_S)
            cpu = broker.cpu_s()
            time.sleep(IDLE_S)
            idle = (broker.cpu_s() - cpu) * 35 / IDLE_S
            memory, name_server_mb = broker.anonymous_mb(), name_server.anonymous_mb()
            broker.stop(START_LIMIT_S)
            broker, clean = _started(side, folder, name_server, broker.port, topics)
            time.sleep(SETTLE_S)
            broker.kill()
            broker, killed = _started(side, folder, name_server, broker.port, topics)
        finally:
            broker.stop(START_LIMIT_S)
    finally:
        name_server.stop()
    return Growth(
        side.title,
        topics,
        created,
        last,
        first_messages,
        idle,
        memory,
        name_server_mb,
        clean,
        killed,
    )


def _check_routes(port: int, topics: int) -> None:
    with Client(port) as client:
        for number in range(0, topics, max(1, topics // 100)):
            route = json.loads(client.request(GET_ROUTE, {"topic": topic_name(number)}).body)
            assert route["queueDatas"][0]["writeQueueNums"] == QUEUES, route


def _started(side: Side, folder: Path, name_server: Server, port: int, topics: int) -> tuple[Server, float]:
    begun = time.monotonic()
    broker = side.broker(folder, name_server.address, port=port, autoCreateTopicEnable="false")
    while True:
        try:
            pull(port, topics - 1)
            return broker, time.monotonic() - begun
        except OSError:
            if time.monotonic() - begun > START_LIMIT_S:
                broker.kill()
                raise
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(json.dumps(asdict(measure(Ours(), Path(folder), options.topics)), indent=2))


if __name__ == "__main__":
    main()
