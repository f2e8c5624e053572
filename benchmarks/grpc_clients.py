"""The official clients of RocketMQ 5 in Java and Python with default settings: producer, push consumer,
arrival.

Client and server share the cores, and mostly the client limits the rate; therefore the server's CPU per
message is measured, too. A producer sends 128 bytes; a push consumer reads stored messages. For arrivals a
process sends 1,000 messages a second, each with the time in its body, to a topic that one Java push consumer
reads. Each run has its own topic and group.
"""

from __future__ import annotations

import itertools
import json
import select
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.grpc_judging import cell, line
from benchmarks.grpc_places import Place
from benchmarks.grpc_receives import Consumers
from benchmarks.grpc_sends import BODY_BYTES, fill
from benchmarks.grpc_wire import Wire, send_request
from benchmarks.pages.records import number
from benchmarks.servers import ROOT, ServerError, child_settings, classpath

from orbitmq.gateway import schema
from orbitmq.gateway.messages import parse
from orbitmq.gateway.status import Code

JAVA_CLIENT = "5.2.0"
A_SECOND = 1_000
TIME_BYTES = 8
# The most sends in flight; a slower server gets fewer than A_SECOND messages.
UNDER_WAY = 500
END_WITHIN_S = 120.0
_FRESH = itertools.count(1)


@dataclass(frozen=True)
class Times:
    """Seconds before and during the measurement of a client, and the number of runs on each side."""

    warm_s: float
    seconds: float
    arrival_s: float
    turns: int


FULL, SHORT = Times(2.0, 3.0, 6.0, 3), Times(1.0, 1.5, 2.0, 1)


@dataclass(frozen=True)
class Official:
    """A client in one role.

    Attributes:
        most: messages a second that a consumer may reach on each side; that many are stored for it.
    """

    title: str
    program: str
    role: str
    most: Mapping[str, int]


OFFICIAL = (
    Official("Java producer, 64 under way", "java", "send", {}),
    Official("Java push consumer", "java", "consume", {"ours": 30_000, "apache": 12_000}),
    Official("Python producer, 16 threads", "python", "send", {}),
    Official("Python push consumer", "python", "consume", {"ours": 8_000, "apache": 8_000}),
)


def _programs(folder: Path) -> dict[str, list[str]]:
    """The commands of the clients.

    Raises:
        PeerUnavailableError: Maven Central or the package index cannot be reached.
        ServerError: the Java program does not compile.
    """
    from tests.interop.grpc_clients import HERE, python_client
    from tests.interop.world import compile_java

    jars = classpath(
        f"grpc-client-{JAVA_CLIENT}", HERE / "pom.xml", f"-Drocketmq.client.version={JAVA_CLIENT}"
    )
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    compile_java(classes, jars, [ROOT / "benchmarks" / "java" / "GrpcClient.java"])
    java = ["java", "-Xmx512m", f"-Duser.home={folder}", "-cp", f"{classes}:{jars}", "GrpcClient"]
    # -P keeps benchmarks/grpc.py from hiding the package of that name.
    return {
        "java": java,
        "python": [python_client().command[0], "-P", str(ROOT / "benchmarks" / "grpc_python.py")],
    }


def _run(place: Place, command: Sequence[str], log: Path) -> dict[str, float]:
    """Run a client; returns its rate, its latencies, and the server's CPU per message.

    Raises:
        ServerError: the client ends without a result.
    """
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=log.parent,
            preexec_fn=child_settings,
        ) as process,
    ):
        timer = threading.Timer(END_WITHIN_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            cpu_s, result = 0.0, None
            for said in process.stdout:
                if said == "begin\n":
                    cpu_s = place.server.cpu_s()
                elif said.startswith("{"):
                    cpu_s = place.server.cpu_s() - cpu_s
                    result = json.loads(said)
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if code or not result or not result["count"]:
        raise ServerError(f"{place.title}, {' '.join(command[-6:])}: {result}\n{log.read_text()[-2000:]}")
    return {
        "rate": result["count"] / result["seconds"],
        "cpu_us": cpu_s / result["count"] * 1e6,
        "p50_us": result["p50_us"],
        "p99_us": result["p99_us"],
        "all": result["all"],
    }


class _Runs:
    """Runs of the clients at both systems, in turn."""

    def __init__(self, places: Sequence[Place], folder: Path, times: Times) -> None:
        self._places = dict(zip(("ours", "apache"), places, strict=True))
        self._folder = folder
        self._times = times
        self._programs = _programs(folder)

    def official(self, client: Official) -> dict[str, Any]:
        """The runs of an official producer or consumer."""
        return self._compared(self._times.seconds, lambda *run: self._one(client, *run))

    def arrivals(self) -> dict[str, Any]:
        """The runs of a push consumer that waits for messages."""
        return self._compared(self._times.arrival_s, self._arrival)

    def _compared(self, seconds: float, one: Any) -> dict[str, Any]:
        for side, place in self._places.items():
            one(side, place, 0.0, place.warmup_s)
        found: dict[str, list[dict[str, float]]] = {side: [] for side in self._places}
        for turn in range(self._times.turns):
            for side, place in list(self._places.items())[:: 1 if turn % 2 == 0 else -1]:
                found[side].append(one(side, place, self._times.warm_s, seconds))
        return found

    def _one(
        self, client: Official, side: str, place: Place, warm_s: float, seconds: float
    ) -> dict[str, float]:
        topic = self._fresh(place)
        count = int(client.most.get(side, 0) * (warm_s + seconds + 1))
        if count:
            with ExitStack() as stack:
                # From here on, the group begins at the end of each queue.
                Consumers(place.port, topic, stack, group=topic)
            fill(place, topic, count, self._folder)
        found = self._client(client.program, client.role, place, topic, warm_s, seconds)
        if count and found["all"] >= count:
            raise ServerError(
                f"{place.title}, {client.title}: all {count} messages were taken, more are needed"
            )
        place.server.pause()
        return found

    def _arrival(self, side: str, place: Place, warm_s: float, seconds: float) -> dict[str, float]:
        topic = self._fresh(place)
        with Sender(place.port, topic):
            found = self._client("java", "consume", place, topic, warm_s, seconds)
        place.server.pause()
        return found

    def _fresh(self, place: Place) -> str:
        place.server.resume()
        name = f"grpc-{next(_FRESH)}"
        place.prepare(name, name)
        return name

    def _client(
        self, program: str, role: str, place: Place, topic: str, warm_s: float, seconds: float
    ) -> dict[str, float]:
        words = [role, place.endpoint, topic, topic, f"{warm_s:g}", f"{seconds:g}"]
        return _run(place, [*self._programs[program], *words], self._folder / f"{program}.log")


class Sender(threading.Thread):
    """A thread that sends :data:`A_SECOND` messages a second, with the time in their bodies, while its block
    runs.
    """

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(daemon=True)
        self._port = port
        whole = send_request(topic, BODY_BYTES)
        assert whole.endswith(b"x" * BODY_BYTES)
        self._head, self._rest = whole[:-BODY_BYTES], whole[TIME_BYTES - BODY_BYTES :]
        self._over = threading.Event()
        self._error: Exception | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self.join()
        if self._error is not None and kind is None:
            raise self._error

    def run(self) -> None:
        try:
            with Wire(self._port, "sender") as wire:
                self._send(wire)
        except Exception as error:  # it is raised at the end of the block
            self._error = error

    def _send(self, wire: Wire) -> None:
        due, under_way = time.monotonic(), 0
        while not self._over.is_set():
            if under_way < UNDER_WAY:
                now = time.monotonic_ns().to_bytes(TIME_BYTES, "big")
                wire.begin("SendMessage", self._head + now + self._rest)
                wire.flush()
                under_way += 1
            due += 1 / A_SECOND
            while select.select([wire], [], [], max(0.0, due - time.monotonic()))[0]:
                wire.receive()
                for _, found in wire.done():
                    under_way -= 1
                    answer = parse(schema.SendMessageResponse, found[0] if found else b"")
                    if answer.status.code != Code.OK:
                        raise ServerError(f"a message is refused: {answer.status}")


def compare(places: Sequence[Place], folder: Path, *, short: bool) -> dict[str, Any]:
    """Producers and push consumers at both systems."""
    runs = _Runs(places, folder, SHORT if short else FULL)
    return {client.title: runs.official(client) for client in OFFICIAL}


def compare_arrivals(places: Sequence[Place], folder: Path, *, short: bool) -> dict[str, Any]:
    """Arrivals at a Java push consumer, at both systems."""
    return _Runs(places, folder, SHORT if short else FULL).arrivals()


def lines(found: Mapping[str, Any]) -> list[list[str]]:
    """The lines with the rates of the official clients."""
    rows = []
    for title, runs in found.items():
        rates = {side: [run["rate"] for run in some] for side, some in runs.items()}
        cells = [
            cell({name: statistics.median(run[name] for run in some) for name in ("rate", "cpu_us")})
            for some in runs.values()
        ]
        rows.append(line(f"official {title}: rate, server's CPU", cells, rates, least=1))
    return rows


def arrival_lines(found: Mapping[str, Any]) -> list[list[str]]:
    """The lines with the latencies to the listener."""
    rows = []
    for name in ("p50_us", "p99_us"):
        values = {side: [run[name] for run in some] for side, some in found.items()}
        cells = []
        for side, some in found.items():
            cpu_us = statistics.median(run["cpu_us"] for run in some)
            cells.append(f"{number(statistics.median(values[side]))} us; {number(cpu_us)} us")
        title = f"{A_SECOND:,}/s to the listener of a Java push consumer: {name[:3]}, server's CPU"
        rows.append(line(title, cells, values, most=1))
    return rows
