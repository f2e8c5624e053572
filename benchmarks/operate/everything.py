"""A broker with all features on beside a broker with all off: start and memory."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

from benchmarks import keys
from benchmarks.operate.certificates import made
from benchmarks.operate.model import Found, Line, Place, Row, more
from benchmarks.operate.sides import STARTED_WITHIN_S, signed
from benchmarks.ports import free_ports
from benchmarks.remoting import HEART_BEAT, Client
from benchmarks.servers import Ours, Server, ServerError

OFF: Final = {"protectedMode": "false", "tls.server.mode": "disabled"}
SETTLED_S = 1.0
LINES = (
    Line("start", "start, until a request is answered: more", "ms", most=50),
    Line("memory", "RssAnon a second later: more", "MB", most=8),
)


def take(place: Place) -> Mapping[str, Found]:
    """Start both brokers in turn, each time with its earlier store."""
    pair = made(place.folder)
    settings: dict[str, Mapping[str, str]] = {
        "off": OFF,
        "on": {**keys.ON, **pair.server, "protectedMode": "true"},
    }
    starts: dict[str, list[float]] = {name: [] for name in settings}
    memory: dict[str, list[float]] = {name: [] for name in settings}
    name_server = Ours().name_server(place.folder)
    with contextlib.ExitStack() as running:
        running.callback(name_server.stop)
        # The first start of each broker creates the files of its store.
        for turn in range(place.rounds(10) + 1):
            for name in list(settings)[:: 1 if turn % 2 else -1]:
                ready_ms, mb = _start(place, name, name_server.address, settings[name])
                if turn:
                    starts[name].append(ready_ms)
                    memory[name].append(mb)
    return {
        "start": more(starts["on"], starts["off"], "{:.0f} ms"),
        "memory": more(memory["on"], memory["off"], "{:.1f} MB"),
    }


def _start(place: Place, name: str, name_server: str, settings: Mapping[str, str]) -> tuple[float, float]:
    """Milliseconds until a broker answers, and its memory afterwards."""
    given: dict[str, Any] = dict(settings)
    if name == "on":
        given |= {"metricsExporterType": "PROM", "metricsPromExporterPort": str(free_ports())}
    broker = Ours().broker(place.folder / name, name_server, wait=False, **given)
    try:
        ready_s = _ready_s(broker)
        time.sleep(SETTLED_S)
        return ready_s * 1000, broker.anonymous_mb()
    finally:
        broker.stop()


def _ready_s(broker: Server) -> float:
    """Seconds from the start of the process to its first successful answer to a signed request."""
    body = b'{"clientID":"probe","consumerDataSet":[],"producerDataSet":[]}'
    fields = signed(HEART_BEAT, {}, body).ext
    for _ in itertools.count():
        with contextlib.suppress(OSError), Client(broker.port, timeout_s=5) as client:
            if client.ask(HEART_BEAT, fields, body).code == 0:
                return time.monotonic() - broker.started_at
        if broker.process.poll() is not None or time.monotonic() - broker.started_at > STARTED_WITHIN_S:
            break
        time.sleep(0.002)
    raise ServerError(f"{broker.name} does not answer:\n{broker.tail()}")


ROW = Row("everything", "metrics, keys, TLS and protected mode on / all off", LINES, take)
