"""A name server with many topics on many brokers: the costs of a registration, a query and a scan, and the
waits of other clients.

The brokers register one after the other, each with a table of all topics, like a Java broker at its start.
Queries on a separate connection show how long other clients wait meanwhile: for one slice of work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import table
from benchmarks.remoting import GET_ROUTE, Client
from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server, apache_classpath

REGISTER_BROKER = 103
BROKER_HEARTBEAT = 904
HEARTBEAT_S = 20.0
"""The name server forgets a broker that sends nothing for 120 s."""
QUERIES = 500
PROBE_EVERY_S = 0.003
SCANS_S = 12.0
"""Two scans for dead brokers, which run at least every 5 s, fall into this time."""


def name(number: int) -> str:
    """The name of a topic by its number, below 100,000."""
    return f"routes_{number:05d}"


def registration(topics: int, counter: int) -> bytes:
    """The body of a registration in a Java broker's form: the whole table, with its version."""
    config = {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    configs = {name(each): {**config, "topicName": name(each)} for each in range(topics)}
    version = {"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    tables = {"dataVersion": version, "topicConfigTable": configs, "topicQueueMappingInfoMap": {}}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": tables}).encode()


class Broker:
    """A broker that only registers. Its connection stays open: otherwise the name server would forget the
    broker.
    """

    def __init__(self, port: int, number: int) -> None:
        self._client = Client(port, timeout_s=120)
        self._heard = time.monotonic()
        self._fields = {
            "brokerName": f"broker-{number:03d}",
            "brokerAddr": f"127.0.0.1:{20_000 + number}",
            "clusterName": "DefaultCluster",
            "haServerAddr": "",
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": "0",
        }

    def register(self, body: bytes) -> None:
        self._client.request(REGISTER_BROKER, self._fields, body)
        self._heard = time.monotonic()

    def keep_alive(self) -> None:
        """Send a heartbeat, if the last message was sent some time ago."""
        if time.monotonic() - self._heard > HEARTBEAT_S:
            self._client.request(BROKER_HEARTBEAT, self._fields)
            self._heard = time.monotonic()

    def close(self) -> None:
        self._client.__exit__()


class Probe:
    """Requests a route again and again, and keeps the duration of each answer in milliseconds."""

    def __init__(self, port: int, topic: str) -> None:
        self._client = Client(port, timeout_s=60)
        self._topic = topic
        self._over = threading.Event()
        self.waits_ms: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(PROBE_EVERY_S):
            begin = time.perf_counter()
            self._client.ask(GET_ROUTE, {"topic": self._topic})
            self.waits_ms.append((time.perf_counter() - begin) * 1000)

    @contextlib.contextmanager
    def asking(self) -> Iterator[list[float]]:
        """The durations of the requests made inside the block."""
        self._thread.start()
        try:
            yield self.waits_ms
        finally:
            self._over.set()
            self._thread.join()
            self._client.__exit__()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def queries(server: Server, topic: str) -> dict[str, float]:
    """Queries of the route of a topic that all brokers have, one at a time."""
    times = []
    with Client(server.port, timeout_s=60) as client:
        before = server.cpu_s()
        for _ in range(QUERIES):
            begin = time.perf_counter()
            client.request(GET_ROUTE, {"topic": topic})
            times.append((time.perf_counter() - begin) * 1000)
        cpu_ms = (server.cpu_s() - before) / QUERIES * 1000
    return {"query_cpu_ms": cpu_ms, "query_p50_ms": statistics.median(times), "query_max_ms": max(times)}


def measure(maker: Ours | Apache, folder: Path, topics: int, brokers: int) -> dict[str, float]:
    """All figures of one name server, by key."""
    server = maker.name_server(folder)
    body, again = registration(topics, 1), registration(topics, 1)
    with contextlib.ExitStack() as open_things:
        open_things.callback(server.stop)
        made = []
        for number in range(brokers):
            broker = Broker(server.port, number)
            open_things.callback(broker.close)
            made.append(broker)
        made[0].register(body)
        with Probe(server.port, name(0)).asking() as waits:
            before, begin = server.cpu_s(), time.monotonic()
            for broker in made[1:]:
                broker.register(body)
                for each in made:
                    each.keep_alive()
            others = (brokers - 1) * topics
            found = {
                "register_s": (time.monotonic() - begin) / (brokers - 1),
                "register_topic_us": (server.cpu_s() - before) / others * 1e6,
            }
        found |= {
            "register_wait_p50_ms": statistics.median(waits),
            "register_wait_p99_ms": percentile(waits, 0.99),
            "register_wait_max_ms": max(waits),
        }
        found |= queries(server, name(topics // 2))
        before = server.cpu_s()
        for broker in made:
            broker.register(again)
            for each in made:
                each.keep_alive()
        found["again_cpu_ms"] = (server.cpu_s() - before) / brokers * 1000
        before = server.cpu_s()
        with Probe(server.port, "no_such_topic").asking() as waits:
            time.sleep(SCANS_S)
        found["scan_wait_max_ms"] = max(waits)
        found["memory_mb"] = server.anonymous_mb()
    return found


SHAPES = {
    "register_s": ("a broker's whole table: until it is answered", "{:,.2f} s"),
    "register_topic_us": ("CPU of each topic in it", "{:,.1f} us"),
    "register_wait_p50_ms": ("a route asked for meanwhile, p50", "{:,.2f} ms"),
    "register_wait_p99_ms": ("p99", "{:,.2f} ms"),
    "register_wait_max_ms": ("worst", "{:,.1f} ms"),
    "query_cpu_ms": ("route of a topic that all brokers have: CPU", "{:,.2f} ms"),
    "query_p50_ms": ("p50", "{:,.2f} ms"),
    "query_max_ms": ("worst", "{:,.2f} ms"),
    "again_cpu_ms": ("the same table once more: CPU", "{:,.1f} ms"),
    "scan_wait_max_ms": ("a route asked for during scans, worst", "{:,.2f} ms"),
    "memory_mb": ("RssAnon", "{:,.0f} MB"),
}


def report(columns: dict[str, dict[str, float]], topics: int, brokers: int) -> str:
    """One line per figure, with one column for each name server."""
    rows = [
        [title, *(shape.format(found[key]) for found in columns.values())]
        for key, (title, shape) in SHAPES.items()
    ]
    return table([f"name server, {topics:,} topics on {brokers} brokers", *columns], rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.name_server", description=__doc__)
    parser.add_argument("--topics", type=int, default=50_000, help="on each broker (50,000)")
    parser.add_argument("--brokers", type=int, default=100, help="how many, 2 or more (100)")
    parser.add_argument("--peer", action="store_true", help="beside Apache's name server")
    options = parser.parse_args()
    makers: list[Ours | Apache] = [Ours()]
    if options.peer:
        try:
            makers.append(Apache(apache_classpath(), heap_mb=16_384))
        except PeerUnavailableError as error:
            print(f"without Apache's name server: {error}")
    columns = {}
    for maker in makers:
        with tempfile.TemporaryDirectory(prefix="orbitmq-name-server-") as folder:
            columns[maker.title] = measure(maker, Path(folder), options.topics, options.brokers)
    print(report(columns, options.topics, options.brokers))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
