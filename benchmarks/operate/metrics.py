"""Metrics that are scraped each second: what they take from sends, and what one scrape costs."""

from __future__ import annotations

import os
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
PAIRS = (SERIES - 2 * TOPICS) // metrics_scrape.SERIES_OF_A_PAIR
"""Pairs of a group and a topic that it reads."""
PACED = Case(rate=10_000)
SATURATED = Case()
LINES = (
    Line("few_rate", "rate, 16 x 16; each topic read by one group: 7,000 series", least=0.97),
    Line("rate", "rate, 16 x 16; 50,000 series", least=0.97),
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
        found["few_rate"] = _rate(runs)
        for side in sides.values():
            with side.working() as broker:
                commit(broker, _pairs())
        runs = _runs(place, sides, SATURATED, port)
        found["rate"] = _rate(runs)
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


def scrape(port: int) -> bytes:
    """The text of a broker's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found: bytes = answer.read()
    return found


def _scrape(port: int, cpus: set[int] | None, done: threading.Event) -> None:
    """Each second, until the event is set."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # of this thread only
    due = time.monotonic()
    while not done.wait(max(0.0, due - time.monotonic())):
        scrape(port)
        due += 1.0


def _scrape_cpu(pid: int, port: int, scrapes: int) -> Found:
    """The processor time that the idle broker's process uses for a scrape."""
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
