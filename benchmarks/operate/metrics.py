"""Metrics that are scraped every second: their effect on sends, and the cost of one scrape.

The load generator and the scraper share a processor. The scraper discards the answers: to read 10 MB would
take CPU time from the generator, and the figures would be those of a delayed generator. The broker's CPU time
per send is shown beside the rate, since neighbours do not affect it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from benchmarks import many_topics, metrics_scrape
from benchmarks.measure import Case
from benchmarks.operate.model import Found, Line, Place, Row, middle
from benchmarks.operate.sides import (
    GROUP,
    Run,
    Side,
    beside,
    commit,
    compared,
    cpu_s,
    in_turn,
    make_groups,
    make_topics,
)
from benchmarks.ports import free_ports

TOPICS, GROUPS = 1_000, 50
SERIES = 50_000
PAIRS = (SERIES - metrics_scrape.SERIES_OF_A_TOPIC * TOPICS) // metrics_scrape.SERIES_OF_A_PAIR
"""Number of pairs of a group and a topic that it reads."""
OK = b"HTTP/1.1 200"
THROWN_BYTES = 1 << 20
PACED = Case(rate=10_000)
SATURATED = Case()
LINES = (
    Line("few_rate", "rate, 16 x 16; each topic read by one group: 16,000 series", least=0.97),
    Line("few_cpu", "CPU of the broker for a send, 16 x 16; 16,000 series"),
    Line("rate", "rate, 16 x 16; 50,000 series", least=0.97),
    Line("cpu", "CPU of the broker for a send, 16 x 16; 50,000 series"),
    Line("p99", "p99 at 10,000/s; 50,000 series", most=1.1),
    Line("scrape_cpu", "CPU of a scrape of 50,000 series, HTTP included", "s", most=0.1),
    Line("step", "longest step of the event loop in a scrape", "ms", most=5),
)


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row."""
    generator, port = place.apart(), free_ports()
    series = {"metricsOtelCardinalityLimit": str(2 * SERIES)}
    on = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port), **series}
    found: dict[str, Found] = {}
    with ExitStack() as running:
        sides = {}
        for name, settings in (("off", {}), ("on", on)):
            side = Side(place.folder / name, generator, settings, cpus=place.server_cpus)
            sides[name] = running.enter_context(side)
            with side.working() as broker:
                make_topics(generator, broker, TOPICS)
                make_groups(broker, GROUPS)
                commit(broker, ((GROUP.format(n % GROUPS), many_topics.name(n)) for n in range(TOPICS)))
        runs = _runs(place, sides, SATURATED, port)
        found["few_rate"], found["few_cpu"] = _rate(runs), _cpu(runs)
        for side in sides.values():
            with side.working() as broker:
                commit(broker, _pairs())
        runs = _runs(place, sides, SATURATED, port)
        found["rate"], found["cpu"] = _rate(runs), _cpu(runs)
        runs = _runs(place, sides, PACED, port)
        found["p99"] = compared(runs, "p99", "on", "off", "{:,.0f} us")
        with sides["on"].working() as broker:
            found["scrape_cpu"] = _scrape_cpu(broker.pid, port, place.rounds(7, 3))
    made = metrics_scrape.measured(TOPICS, SERIES, place.rounds(7, 3))
    found["step"] = Found(made["longest_step_ms"], made_of=f"{made['series']:,.0f} series")
    return found


def _pairs() -> list[tuple[str, str]]:
    return [(GROUP.format(n % GROUPS), many_topics.name(n // GROUPS % TOPICS)) for n in range(PAIRS)]


def _runs(place: Place, sides: Mapping[str, Side], case: Case, port: int) -> dict[str, list[Run]]:
    def once(name: str) -> Run:
        with sides[name].working(), ExitStack() as scraping:
            if name == "on":
                scraping.enter_context(beside(partial(_scrape, port, place.other_cpus)))
            return sides[name].load(case, place.seconds(3.0, 1.0))

    return in_turn(place.rounds(6), {name: partial(once, name) for name in sides})


def _rate(runs: Mapping[str, list[Run]]) -> Found:
    return compared(runs, "ops_per_second", "on", "off", "{:,.0f}/s")


def _cpu(runs: Mapping[str, list[Run]]) -> Found:
    return compared(runs, "server_cpu_us", "on", "off", "{:.2f} us")


def scrape(port: int) -> bytes:
    """The text of a broker's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found: bytes = answer.read()
    return found


def _scrape(port: int, cpus: set[int] | None, done: threading.Event) -> None:
    """Scrape once a second until the event is set.

    Raises:
        RuntimeError: the broker did not answer with success, or no scrape ended.
    """
    if cpus:
        os.sched_setaffinity(0, cpus)  # of this thread only
    due, scrapes = time.monotonic(), 0
    while not done.wait(max(0.0, due - time.monotonic())):
        _throw_away(port)
        scrapes += 1
        due += 1.0
    if not scrapes:
        raise RuntimeError("no scrape ended beside the load")


def _throw_away(port: int) -> None:
    """Run one scrape whose text the kernel discards: to read it would take CPU time from the generator."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as to:
        to.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        status = to.recv(len(OK), socket.MSG_WAITALL)
        if status != OK:
            raise RuntimeError(f"a scrape was answered with {status!r}")
        space = bytearray(THROWN_BYTES)
        while to.recv_into(space, 0, socket.MSG_TRUNC):
            pass


def _scrape_cpu(pid: int, port: int, scrapes: int) -> Found:
    """The CPU time of the idle broker's process for a scrape."""
    lines, took = 0, []
    scrape(port)
    for _ in range(scrapes):
        time.sleep(0.3)
        begin = cpu_s(pid)
        text = scrape(port)
        took.append(cpu_s(pid) - begin)
        lines = sum(not line.startswith(b"#") for line in text.splitlines())
    return middle(took, f"{lines:,} series, {len(text) / 1e6:.1f} MB")


ROW = Row("metrics", "metrics on, scraped each second, 1,000 topics x 8 queues, 50 groups / off", LINES, take)
