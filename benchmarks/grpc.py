"""gRPC: OrbitMQ's broker beside Apache's proxy with its broker in one JVM (``-pm local``), SYNC_FLUSH.

Sends are nghttp2's ``h2load``: one request of 128 bytes again and again, plaintext. Its headers never change,
which flatters both sides. That each call stored its message is checked by the topic's offsets. Receives with
acknowledgements are :mod:`benchmarks.grpc_receives`. Both systems run in one session, in turn for every
load; which of them begins changes from run to run, and the other one is stopped meanwhile. Before a load is
measured it runs for 10 s on the JVM.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import grpc_receives
from benchmarks.grpc_wire import Run, prefixed, send_request
from benchmarks.measure import Effort, microseconds, table
from benchmarks.ports import free_ports
from benchmarks.remoting import HEART_BEAT, Client
from benchmarks.servers import (
    PEER_VERSION,
    POM,
    Apache,
    Ours,
    Server,
    ServerError,
    broker_properties,
    classpath,
    left_out,
    start,
    write_properties,
)

TOPIC = "grpc"
QUEUES = 8
BODY_BYTES = 128
HEAP_MB = 1024
PATH = "/apache.rocketmq.v2.MessagingService/SendMessage"
HEADERS = ("content-type: application/grpc", "te: trailers", "x-mq-client-id: h2load", "x-mq-language: JAVA")
FLUSH = {"flushDiskType": "SYNC_FLUSH"}
# Beside the time of a run.
LIMIT_S = 60


@dataclass(frozen=True)
class Load:
    """So many connections, with so many calls under way on each."""

    connections: int
    calls: int

    @property
    def title(self) -> str:
        return f"SendMessage {BODY_BYTES} B, {self.connections} x {self.calls}"


RECEIVES = f"receive {grpc_receives.BATCH}, acknowledge one by one; latency of one acknowledgement"
# Messages for each second that a run shall take; a run takes as long as they need.
RECEIVES_PER_SECOND = 4000
LOADS = (Load(1, 1), Load(64, 1), Load(16, 16))


@dataclass
class Place:
    """One of the two systems while it runs.

    Attributes:
        server: whose CPU is counted; its port speaks remoting.
        port: where it serves gRPC.
    """

    title: str
    server: Server
    port: int
    warmup_s: float

    def stored(self) -> int:
        with Client(self.server.port) as client:
            return sum(client.max_offset(TOPIC, queue) for queue in range(QUEUES))


@contextmanager
def ours(folder: Path) -> Iterator[Place]:
    """OrbitMQ's broker."""
    maker = Ours()
    with _running(maker, folder) as (name_server, kept):
        broker = kept(
            maker.broker(folder, name_server.address, flushDiskType="SYNC_FLUSH", grpcServerPort="0")
        )
        yield Place(maker.title, broker, broker.port, maker.warmup_s)


@contextmanager
def apache(folder: Path) -> Iterator[Place]:
    """Apache's proxy with a broker in the same JVM; raises as ``classpath`` does."""
    jars = classpath(f"proxy-{PEER_VERSION}", POM, f"-Drocketmq.version={PEER_VERSION}", "-Pproxy")
    maker = Apache(jars, heap_mb=HEAP_MB)
    with _running(maker, folder) as (name_server, kept):
        port = free_ports(7) + 2
        properties = broker_properties(
            port, folder / "store", name_server.address, flushDiskType="SYNC_FLUSH"
        )
        broker = write_properties(folder / "broker.conf", properties)
        grpc_port = port + 3
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": name_server.address,
            "grpcServerPort": grpc_port,
            "remotingListenPort": port + 4,
        }
        proxy = folder / "rmq-proxy.json"
        proxy.write_text(json.dumps(settings))
        main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local", "-n", name_server.address]
        command = [*maker.java(folder, HEAP_MB), *main, "-pc", str(proxy), "-bc", str(broker)]
        server = kept(start("apache-proxy", command, port, folder, HEART_BEAT))
        _wait_for_port(grpc_port)  # the proxy opens it after its broker's
        yield Place(f"{maker.title}, proxy -pm local", server, grpc_port, maker.warmup_s)


def _wait_for_port(port: int) -> None:
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise ServerError(f"port {port} is not open after {LIMIT_S} s: {error}") from None
            time.sleep(0.1)


@contextmanager
def _running(maker: Ours | Apache, folder: Path) -> Iterator[tuple[Server, Any]]:
    """A name server, and a function that keeps another server until the end of the block."""
    with ExitStack() as stack:

        def kept(server: Server) -> Server:
            stack.callback(server.kill)
            return server

        yield kept(maker.name_server(folder)), kept


def run_load(place: Place, load: Load, folder: Path, seconds: float) -> Run:
    """One run.

    Raises:
        ServerError: h2load fails, or not every call stored its message.
    """
    data, log = folder / "request", folder / "calls.tsv"
    data.write_bytes(prefixed(send_request(TOPIC, BODY_BYTES)))
    log.unlink(missing_ok=True)
    command = ["h2load", "-c", str(load.connections), "-m", str(load.calls), "-D", f"{seconds * 1000:.0f}ms"]
    command += ["-d", str(data), f"--log-file={log}", *(f"-H{header}" for header in HEADERS)]
    place.server.resume()
    before, cpu_s = place.stored(), place.server.cpu_s()
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{place.port}{PATH}"],
        capture_output=True,
        text=True,
        timeout=seconds + LIMIT_S,
        check=False,
    )
    cpu_s = place.server.cpu_s() - cpu_s
    stored = place.stored() - before
    place.server.pause()
    lines = log.read_text().splitlines() if log.exists() else []
    took_us = sorted(int(line.split("\t")[2]) for line in lines)
    # Calls under way at the end may be stored and not counted.
    under_way = load.connections * load.calls
    if done.returncode != 0 or not took_us or abs(stored - len(took_us)) > under_way:
        said = f"{len(took_us)} calls, {stored} messages stored: {done.stdout[-500:]}{done.stderr[-200:]}"
        raise ServerError(f"{place.title}, {load.title}: {said}")
    return Run(
        rate=len(took_us) / seconds,
        cpu_us=cpu_s / len(took_us) * 1e6,
        p50_us=took_us[len(took_us) // 2],
        p99_us=took_us[len(took_us) * 99 // 100],
    )


def compare(folder: Path, effort: Effort) -> tuple[str, dict[str, Any]]:
    """Both in turn; the table, and what is kept.

    Without ``h2load`` there is nothing to measure: one line says so.
    """
    if shutil.which("h2load") is None:
        left_out("gRPC is left out: h2load is not installed (apt install nghttp2-client)")
        return "left out: h2load is not installed", {}
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, dict[str, list[Run]]] = {}
    with ours(folder / "ours") as first, apache(folder / "apache") as second:
        places = [first, second]
        for place in places:
            with Client(place.server.port) as client:
                client.create_topic(TOPIC, QUEUES)
                client.create_group(grpc_receives.GROUP)
            place.server.pause()
        for number, load in enumerate(LOADS):
            print(f"measuring {load.title} over gRPC", flush=True)
            for place in places:
                run_load(place, load, folder, place.warmup_s)
            runs: list[list[Run]] = [[], []]
            for turn in range(effort.repeats):
                for side in (0, 1) if (number + turn) % 2 == 0 else (1, 0):
                    runs[side].append(run_load(places[side], load, folder, effort.duration_s))
            content[load.title] = {"ours": runs[0], "apache": runs[1]}
        print(f"measuring {RECEIVES} over gRPC", flush=True)
        content[RECEIVES] = _receives(places, effort)
    rows = [_row(load, _median(runs["ours"]), _median(runs["apache"])) for load, runs in content.items()]
    headings = ["load", "a second: ours", "Apache", "ratio", "CPU us ours", "Apache", "ratio"]
    headings += ["p50 ours", "Apache", "p99 ours", "Apache"]
    return table(headings, rows), content


def _receives(places: list[Place], effort: Effort) -> dict[str, list[Run]]:
    """Receives with acknowledgements of both, in turn."""
    for place in places:
        until = time.monotonic() + place.warmup_s
        while time.monotonic() < until:
            _receive(place, place.warmup_s / 2)
    runs: list[list[Run]] = [[], []]
    for turn in range(effort.repeats):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            runs[side].append(_receive(places[side], effort.duration_s))
    return {"ours": runs[0], "apache": runs[1]}


def _receive(place: Place, seconds: float) -> Run:
    count = int(RECEIVES_PER_SECOND * seconds)
    place.server.resume()
    with ExitStack() as stack:
        consumers = grpc_receives.Consumers(place.port, TOPIC, stack)
        grpc_receives.fill(place.port, TOPIC, count)
        found = consumers.run(place.server, count)
    place.server.pause()
    return found


def _median(runs: list[Run]) -> Run:
    return Run(*(statistics.median(getattr(run, name) for run in runs) for name in Run.__dataclass_fields__))


def _row(load: str, mine: Run, theirs: Run) -> list[str]:
    return [
        load,
        f"{mine.rate:,.0f}",
        f"{theirs.rate:,.0f}",
        f"{mine.rate / theirs.rate:.2f}",
        f"{mine.cpu_us:.0f}",
        f"{theirs.cpu_us:.0f}",
        f"{mine.cpu_us / theirs.cpu_us:.2f}",
        *map(microseconds, (mine.p50_us, theirs.p50_us, mine.p99_us, theirs.p99_us)),
    ]
