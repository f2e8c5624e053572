"""The figures of broker and client beside Apache's, and of OrbitMQ alone beside its goals."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import grpc as with_grpc
from benchmarks import keys as with_keys
from benchmarks.client_speed import WAYS
from benchmarks.first_messages import AIMS, TITLES
from benchmarks.grpc_judging import HEADINGS as GRPC_HEADINGS
from benchmarks.pages.records import cost, number, rate, record, table, taken

SIDES = ("OrbitMQ", "Apache RocketMQ 5.5.0")
JUDGED = ("paced", "saturated")
MODES = {"alone": "alone", "+ slave": "asynchronous slave", "quorum 2": "every answer waits for the slave"}


def _figures(flush: str, side: str) -> dict[str, Any]:
    return {figure["title"]: figure for figure in record("peer")[flush][side]}


def _pair(title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    flush = "SYNC_FLUSH" if title.endswith("SYNC") and not title.endswith("ASYNC") else "ASYNC_FLUSH"
    return _figures(flush, "ours")[title], _figures(flush, "apache")[title]


def _load(what: str, title: str) -> list[str]:
    ours, apache = _pair(title)
    return [what, cost(ours), cost(apache)]


def _processes(flush: str = "ASYNC_FLUSH") -> tuple[dict[str, Any], dict[str, Any]]:
    ours, apache = record("peer")[flush]["processes"]
    return ours, apache


def _of_process(what: str, shown: Callable[[dict[str, Any]], str]) -> list[str]:
    return [what, *map(shown, _processes())]


def _memory(process: dict[str, Any]) -> str:
    return f"{number(process['idle_mb'])} MB, {number(process['loaded_mb'])} MB"


def _growth(what: str, shown: Callable[[dict[str, Any]], str]) -> list[str]:
    growth = record("peer")["growth"]
    return [what, shown(growth["ours"]), shown(growth["apache"])]


def _pop_us(side: str, *, idle: bool) -> float:
    """Broker CPU per message in microseconds, with or without the broker's idle CPU of the same time."""
    costs = record("pop")["costs"][side]
    spent = 0.0 if idle else costs["idle_cpu_s"]
    runs = [(run["cpu_s"] - spent * run["measured_s"]) / run["messages"] for run in costs["runs"]]
    return float(statistics.median(runs)) * 1e6


def _pop() -> list[str]:
    cells = []
    for side in ("OrbitMQ", "Apache 5.5.0"):
        with_idle, without = _pop_us(side, idle=True), _pop_us(side, idle=False)
        cells.append(f"{number(without)} us; {number(with_idle)} us with the broker's idle time")
    return ["pop of 32 messages and their acknowledgement, broker CPU of a message", *cells]


def _recovery() -> list[str]:
    return _growth(
        "start after `kill -9` at full rate",
        lambda found: f"{number(found['recovery_s'])} s ({found['records']:,.0f} records)",
    )


def _connections() -> list[str]:
    return _growth("memory of 10,000 idle connections", lambda f: f"{number(f['idle_connections_mb'])} MB")


def _grpc(load: str, side: str) -> dict[str, float]:
    """The median of each figure of a load over gRPC."""
    runs = record("grpc")["grpc"][load][side]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def readme() -> str:
    """README's table of OrbitMQ's broker beside Apache's."""
    popped = [_pop_us(side, idle=False) for side in ("OrbitMQ", "Apache 5.5.0")]
    rows = [
        _load("send 128 B, on disk before the answer: rate, broker CPU of one", "send 128 B, 16 x 16 SYNC"),
        [
            "the same over gRPC",
            *(cost(_grpc("SendMessage 128 B, 16 x 16", side)) for side in ("ours", "apache")),
        ],
        _load("pull of 32 messages: rate, broker CPU of one pull", "pull of 32 x 128 B, 16 x 4"),
        ["pop and acknowledge: broker CPU of one message", *(f"{number(us)} us" for us in popped)],
        _of_process("memory, idle and loaded", _memory),
        _connections(),
        _of_process("ready after start", lambda process: f"{number(process['ready_s'])} s"),
        _recovery(),
    ]
    source = f"`make bench-peer`: {taken(record('peer'))}; pop: {record('pop')['machine']['taken'][:10]}; "
    source += f"gRPC: {record('grpc')['machine']['taken'][:10]}."
    return table(["the same load, in turn", *SIDES], rows) + f"\n\n{source}"


def _latencies(one: dict[str, Any]) -> str:
    return f"{cost(one)}; {number(one['p99_us'])}, {number(one['p999_us'])} us"


def loads() -> str:
    """The table of the broker's rates, CPU time and latencies, measured in turn with Apache's."""
    rows = []
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        for title, ours in _figures(flush, "ours").items():
            apache = _figures(flush, "apache")[title]
            ratio = f"{ours['cpu_us'] / apache['cpu_us']:.2f}"
            rows.append([title, _latencies(ours), _latencies(apache), ratio])
    examples = record("peer")["examples"]
    for name, ours in examples["ours"].items():
        apache = examples["apache"][name]
        ratio = f"{ours['cpu_us'] / apache['cpu_us']:.2f}"
        rows.append([f"Apache's own example {name}", cost(ours), cost(apache), ratio])
    ratio = f"{_pop_us('OrbitMQ', idle=False) / _pop_us('Apache 5.5.0', idle=False):.2f}"
    rows.append([*_pop(), ratio])
    headings = ["load", *(f"{side}: rate; CPU; p99, p99.9" for side in SIDES), "CPU, ours to Apache's"]
    return table(headings, rows)


def grpc() -> str:
    """The table of the loads over gRPC."""
    rows = []
    for load in record("grpc")["grpc"]:
        ours, apache = _grpc(load, "ours"), _grpc(load, "apache")
        cells = [
            f"{cost(one)}; {number(one['p50_us'])}, {number(one['p99_us'])} us" for one in (ours, apache)
        ]
        rows.append([load, *cells, f"{ours['cpu_us'] / apache['cpu_us']:.2f}"])
    headings = ["load", *(f"{side}: rate; CPU; p50, p99" for side in SIDES), "CPU, ours to Apache's"]
    return f"{table(headings, rows)}\n\n{taken(record('grpc'))}."


def grpc_rows() -> str:
    """The table of gRPC's rows, and whether their goals were met."""
    return table([*GRPC_HEADINGS, "taken"], with_grpc.row_lines(record("grpc")))


def processes() -> str:
    """The table of a broker process: start, memory and stop."""
    rows = [
        _of_process("ready after start", lambda process: f"{number(process['ready_s'])} s"),
        _of_process("anonymous memory, idle and loaded", _memory),
        _of_process("clean stop", lambda process: f"{number(process['stopped_s'])} s"),
        _recovery(),
        _connections(),
    ]
    return table(["process", *SIDES], rows)


def topics() -> str:
    """The table of the costs of many topics."""
    rows = [
        _growth(
            "make them, 16 at a time",
            lambda f: f"{rate(f['create_rate'])}, {number(f['create_cpu_ms'])} ms of CPU each",
        ),
        _growth("first message to each", lambda f: rate(f["first_rate"])),
        _growth(
            "35 s idle: CPU, memory", lambda f: f"{number(f['idle_cpu_s'])} s, {number(f['memory_mb'])} MB"
        ),
        _growth(
            "start after a clean stop, until a pull is answered", lambda f: f"{number(f['clean_start_s'])} s"
        ),
    ]
    return table([f"{record('peer')['growth']['topics']:,} topics of 8 queues", *SIDES], rows)


def replicas() -> str:
    """The table of a broker with a slave, beside Apache's."""
    rows = []
    sides = [record("peer")["replicas"][side] for side in ("ours", "apache")]
    for ours, apache in zip(*sides, strict=True):
        title = ours["figure"]["title"]
        if ours["mode"] != "alone" and ("1024 B, 16 x 16" in title or title == "send 128 B, 1 x 1 SYNC"):
            cells = [f"{cost(one['figure'])}, {number(one['slave_cpu_us'])} us" for one in (ours, apache)]
            rows.append([f"{title}, {MODES[ours['mode']]}", *cells])
    return table(["with a slave", *(f"{side}: rate; CPU of master, slave" for side in SIDES)], rows)


def timers() -> str:
    """The table of timer messages: their lateness and memory, and the start with them."""
    found = record("peer")["timers"]

    def row(what: str, shown: Callable[[dict[str, Any]], str]) -> list[str]:
        return [what, shown(found["OrbitMQ"]), shown(found["Apache 5.5.0"])]

    rows = [
        row(
            "late at 1,000 due a second, 99th percentile", lambda f: f"{f['timer_late_p99_s'] * 1000:,.0f} ms"
        ),
        row("10,000 due in one second, the last one late", lambda f: f"{f['timer_burst_s'] * 1000:,.0f} ms"),
        row("memory of each that waits", lambda f: f"{number(f['timer_memory_bytes'])} B"),
        row(
            "from a start after `kill -9` with them to the next delivery",
            lambda f: f"{number(f['timer_kill_start_s'])} s",
        ),
    ]
    waiting = found["OrbitMQ"]["timer_waiting"]
    return table([f"timers, {waiting:,.0f} of them waiting", *SIDES], rows)


def client() -> str:
    """The table of the Python client beside Apache's Java client."""
    speeds, waits = record("client")["speeds"], record("client")["waits"]
    rows = []
    for way in WAYS:
        mine, java = speeds[way.name]
        aim = f"{way.per_core:,}/s" if way.per_core else ""
        cells = [f"{number(one['cpu_us'])} us" for one in (mine, java)]
        rows.append([way.title, *cells, rate(1e6 / mine["cpu_us"]), aim])
    head = table(["load, CPU of the client for a message", "OrbitMQ", "Java", "ours per core", "goal"], rows)
    waited = [
        [title, f"{number(statistics.median(waits[key]))} s", f"{number(AIMS[key])} s"]
        for key, title in TITLES.items()
    ]
    waiting = table(["waiting", "median", "goal"], waited)
    return f"{head}\n\n{waiting}\n\n`make bench-client`: {taken(record('client'))}."


def goals() -> str:
    """The goals of the loads in `make bench`, and whether each was met."""
    rows = []
    sections = [content for name, content in record("orbitmq").items() if name.split(", ")[-1] in JUDGED]
    for row in itertools.chain.from_iterable(sections):
        if row["target"]:
            figure, met = row["figure"], "yes" if row["met"] else "**no**"
            rows.append([figure["title"], _latencies(figure), row["target"], met])
    found = table(["load", "measured: rate; CPU; p99, p99.9", "goal", "met"], rows)
    return f"{found}\n\n`make bench`: {taken(record('orbitmq'))}."


def alone() -> str:
    """The table of a slave's costs for its master."""
    rows = []
    found = {(one["mode"], one["figure"]["title"]): one for one in record("orbitmq")["replicas"]}
    for title in dict.fromkeys(title for _, title in found):
        if "16 x 16" in title or " 1 x 1" in title:
            cells = []
            for mode in MODES:
                one = found[mode, title]["figure"]
                slave = found[mode, title]["slave_cpu_us"]
                both = f"{number(one['cpu_us'])} us" + (f", {number(slave)} us" if slave else "")
                cells.append(f"{rate(one['rate'])}; {both}; p50 {number(one['p50_us'])} us")
            rows.append([title, *cells])
    return table(["rate; CPU of master, slave; p50", *MODES.values()], rows)


def keys() -> str:
    """The table of the costs of keys, and whether their goals were met."""
    loads = record("keys")["loads"]
    rows = itertools.chain.from_iterable(with_keys.rows(*load) for load in loads.items())
    return f"{table(with_keys.HEADINGS, rows)}\n\n{taken(record('keys'))}."


BLOCKS: dict[str, Callable[[], str]] = {
    "readme": readme,
    "loads": loads,
    "grpc": grpc,
    "grpc-rows": grpc_rows,
    "processes": processes,
    "topics": topics,
    "replicas": replicas,
    "timers": timers,
    "client": client,
    "goals": goals,
    "alone": alone,
    "keys": keys,
}
