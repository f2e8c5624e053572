"""The console of a cluster with many topics and groups: durations of pages, and the viewers' costs for a
broker.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks import many_topics
from benchmarks.measure import Case
from benchmarks.operate.model import Found, Line, Place, Row, middle
from benchmarks.operate.sides import (
    GROUP,
    TOPIC,
    beside,
    commit,
    compared,
    create_topic,
    give_way,
    in_turn,
    load,
    make_groups,
    make_topics,
)
from benchmarks.ports import free_ports
from benchmarks.servers import Ours, Server, child_settings

TOPICS, GROUPS, BROKERS = 1_000, 2_300, 4
FEW_TOPICS, FEW_GROUPS = 200, 400
VIEWERS: Final = 10
LOOKS_EACH_S: Final = 2.0
COLD_S: Final = 2.1
"""A page may show data that is 2 s old; after this time it requests new data from the brokers."""
LOOK_MS: Final = 20
MOST_LOOKS: Final = 1_000
"""The interval and the number of checks whether a page is drawn: 20 s in all."""
PACED: Final = Case(rate=10_000)
PAGES: Final = (
    "/", "/charts", "/topics", f"/topics/{many_topics.name(5)}", "/groups", f"/groups/{GROUP.format(5)}",
    "/messages", f"/messages?topic={many_topics.name(5)}", "/dead-letters", "/brokers", "/clients", "/timers",
    "/traces", "/access", "/audit",
)  # fmt: skip
LINES = (
    Line("drawn", "first page drawn (first contentful paint in Chromium)", "s", most=0.5),
    Line("page", "any page, p95, each asked of the brokers anew", "ms", most=150),
    Line("transfer", "transfer of the first page and all it loads", "KB", most=200),
    Line("largest", "transfer of the largest page", "KB", most=200),
    Line("memory", "RssAnon of the console then", "MB", most=70),
    Line("p99", "a broker's p99 at 10,000/s with 10 viewers / without", most=1.05),
)


class Viewer:
    """A browser's session without a browser."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self._get(link)

    def look(self, path: str) -> tuple[float, int]:
        """Milliseconds until the whole page has arrived, and its bytes."""
        begin = time.monotonic()
        size = self._get(self.base + path)
        return (time.monotonic() - begin) * 1000, size

    def _get(self, address: str) -> int:
        with self._opener.open(address, timeout=30) as answer:
            return len(answer.read())


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row."""
    topics, groups = (FEW_TOPICS, FEW_GROUPS) if place.short else (TOPICS, GROUPS)
    with (
        _cluster(place, topics, groups) as (name_server, brokers),
        _console(name_server) as (link, pid),
    ):
        viewer = Viewer(link)
        found = _pages(place, viewer)
        found |= _drawn(place, viewer)
        found["memory"] = Found(int(_status(pid, "RssAnon")) / 1024)
        _apart(place, brokers[0].pid, pid, [broker.pid for broker in brokers[1:]])
        found["p99"] = _viewers(place, viewer, brokers[0])
    return found


@contextlib.contextmanager
def _cluster(place: Place, topics: int, groups: int) -> Iterator[tuple[Server, Sequence[Server]]]:
    """A name server, and brokers with the same topics and groups; each group lags in one topic."""
    pairs = [(GROUP.format(number), many_topics.name(number % topics)) for number in range(groups)]
    generator = place.apart()
    with contextlib.ExitStack() as running:
        name_server = Ours().name_server(place.folder)
        running.callback(name_server.stop)
        brokers = []
        for number in range(BROKERS):
            broker = Ours().broker(
                place.folder / str(number),
                name_server.address,
                name=f"broker-{number}",
                flushDiskType="ASYNC_FLUSH",
            )
            running.callback(broker.stop)
            brokers.append(broker)

        def fill(broker: Server) -> None:
            create_topic(broker, TOPIC)
            make_topics(generator, broker, topics)
            make_groups(broker, groups)
            commit(broker, pairs)

        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(fill, brokers))
        time.sleep(2)  # time for registrations to reach the name server, and for files to be written
        yield name_server, brokers


@contextlib.contextmanager
def _console(name_server: Server) -> Iterator[tuple[str, int]]:
    """A console; yields a link that opens a session, and the console's process id."""
    port = str(free_ports())
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "console",
        "--port",
        port,
        "--json",
        "-n",
        name_server.address,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=child_settings) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["link"], process.pid
        finally:
            process.terminate()


def _apart(place: Place, measured: int, console: int, others: Sequence[int]) -> None:
    """Give the measured broker a processor of its own. All other processes share a processor with the load
    generator, which has priority: otherwise its measured times would include the other brokers' work for the
    console.
    """
    for pid in (measured, console, *others):
        cpus = place.server_cpus if pid == measured else place.other_cpus
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if cpus:
                os.sched_setaffinity(thread, cpus)
            if pid != measured:
                give_way(thread)


def _pages(place: Place, viewer: Viewer) -> dict[str, Found]:
    times: list[tuple[float, str]] = []
    sizes: dict[str, int] = {}
    for _ in range(place.rounds(2, 1)):
        for path in PAGES:
            time.sleep(COLD_S)
            took_ms, sizes[path] = viewer.look(path)
            times.append((took_ms, path))
    times.sort()
    took_ms, path = times[int(len(times) * 0.95)]
    largest = max(sizes, key=lambda path: sizes[path])
    return {
        "page": Found(took_ms, made_of=f"{len(times)} pages; {path}; slowest {times[-1][0]:.0f} ms"),
        "largest": Found(sizes[largest] / 1000, made_of=largest),
    }


def _drawn(place: Place, viewer: Viewer) -> dict[str, Found]:
    """Chromium's figures of the overview page; empty without Chromium or playwright."""
    chromium = shutil.which("chromium")
    try:
        tool = importlib.import_module("playwright.sync_api")
    except ImportError:
        tool = None
    if chromium is None or tool is None:
        print("operate: no page is drawn without chromium and playwright", flush=True)
        return {}
    script = """() => ({
        drawn: performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)[0],
        bytes: ['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind))
            .reduce((sum, one) => sum + one.transferSize, 0),
    })"""
    cookies = [{"name": one.name, "value": one.value, "url": viewer.base} for one in viewer.cookies]
    drawn, sizes = [], []
    with tool.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for turn in range(place.rounds(9, 3) + 1):
            time.sleep(COLD_S)
            # A new browser context has an empty cache.
            context = browser.new_context()
            context.add_cookies(cookies)
            page = context.new_page()
            page.goto(viewer.base)
            # The page's policy forbids eval, by which playwright would wait inside the page.
            told: dict[str, float] = page.evaluate(script)
            for _ in range(MOST_LOOKS):
                if told.get("drawn") is not None:
                    break
                page.wait_for_timeout(LOOK_MS)
                told = page.evaluate(script)
            context.close()
            if turn:
                drawn.append(told["drawn"] / 1000)
                sizes.append(told["bytes"] / 1000)
        browser.close()
    return {"drawn": middle(drawn), "transfer": middle(sizes)}


def _viewers(place: Place, viewer: Viewer, broker: Server) -> Found:
    def once(*, watched: bool) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            if watched:
                for number in range(VIEWERS):
                    stack.enter_context(beside(partial(_look_on, viewer, number, place.other_cpus)))
                time.sleep(0.5)
            return load(place.apart(), broker, PACED, place.seconds(4.0, 1.0))

    runs = in_turn(
        place.rounds(5), {name: partial(once, watched=name == "with") for name in ("with", "without")}
    )
    return compared(runs, "p99", "with", "without", "{:,.0f} us")


def _look_on(viewer: Viewer, number: int, cpus: set[int] | None, done: threading.Event) -> None:
    """Act as a viewer who opens another page every two seconds."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    give_way()
    pages = random.Random(number)
    while not done.wait(pages.uniform(0.5, 1.5) * LOOKS_EACH_S):
        viewer.look(pages.choice(PAGES))


def _status(pid: int, key: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.split()[0]
    raise KeyError(key)


ROW = Row("console", "console: 1,000 topics, 2,300 groups, 4 brokers", LINES, take)
