"""TLS 1.3 beside plain TCP at one broker, and beside Apache's broker with the same certificate.

The load generator uses OpenSSL, in the same way for both brokers, which serve TLS and plain TCP on one port.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.measure import QUEUES, Bench, Case, Effort, Generator, speaks_tls
from benchmarks.operate.certificates import Pair, made
from benchmarks.operate.model import Found, Line, Place, Row
from benchmarks.operate.sides import Run, Side, compared, in_turn
from benchmarks.remoting import Client
from benchmarks.servers import Apache

SENDS: Final = Case()
SINGLE: Final = Case(connections=64, window=1)
PULLS: Final = Case(mode="pull", window=4)
LINES = (
    Line("sends", "rate of sends, 16 x 16, TLS / plain", least=0.5),
    Line("pulls", "rate of pulls of 32, 16 x 4, TLS / plain", least=0.5),
    Line("single", "rate of sends, 64 x 1, TLS / plain", least=0.35),
    Line("sends_cpu", "CPU of a send with TLS, 16 x 16, ours / Apache's", most=0.5),
    Line("single_cpu", "CPU of a send with TLS, 64 x 1, ours / Apache's", most=0.8),
)


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row; empty without OpenSSL's headers."""
    if not speaks_tls():
        print("operate: no TLS without OpenSSL's headers (Debian: libssl-dev)", flush=True)
        return {}
    generator, pair = Generator(), made(place.folder)
    found: dict[str, Found] = {}
    with Side(place.folder / "ours", generator, pair.server) as ours:
        with ours.working() as broker:
            Bench(generator, Effort(0, 0, 1)).prepare(broker)
            with Client(broker.port) as client:
                end = min(client.max_offset("bench_pull", queue) for queue in range(QUEUES))
        for key, case in (("sends", SENDS), ("pulls", PULLS), ("single", SINGLE)):
            more: dict[str, Any] = {"topic": "bench_pull", "max_offset": end} if case is PULLS else {}
            runs = in_turn(
                place.rounds(9),
                {
                    name: partial(_once, place, ours, case, tls, **more)
                    for name, tls in (("tls", 1), ("plain", 0))
                },
            )
            found[key] = compared(runs, "ops_per_second", "tls", "plain", "{:,.0f}/s")
        if place.apache is not None:
            found |= _beside(place, generator, ours, pair)
    return found


def _once(place: Place, side: Side, case: Case, tls: int, **more: Any) -> Run:
    with side.working():
        return side.load(case, place.seconds(1.0, 0.4), tls=tls, **more)


def _beside(place: Place, generator: Generator, ours: Side, pair: Pair) -> dict[str, Found]:
    """The CPU time of both brokers."""
    assert place.apache is not None
    maker, found = Apache(place.apache), {}
    with _java_options(pair), Side(place.folder / "apache", generator, {}, maker=maker) as apache:
        for key, case in (("sends_cpu", SENDS), ("single_cpu", SINGLE)):
            with apache.working():
                apache.load(case, place.seconds(maker.warmup_s, 2.0), tls=1)
            sides = {"ours": ours, "apache": apache}
            runs = in_turn(
                place.rounds(7), {name: partial(_once, place, side, case, 1) for name, side in sides.items()}
            )
            found[key] = compared(runs, "server_cpu_us", "ours", "apache", "{:.2f} us")
    return found


@contextlib.contextmanager
def _java_options(pair: Pair) -> Iterator[None]:
    """Give Java programs started in the block the certificate; Apache's take their TLS settings from system
    properties.
    """
    options = {"tls.test.mode.enable": "false", **pair.server}
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(f"-D{key}={value}" for key, value in options.items())
    try:
        yield
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]


ROW = Row("tls", "TLS 1.3", LINES, take)
