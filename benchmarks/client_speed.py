"""`make bench-client`: the Python client and Apache's Java client on the same broker, in one run.

Both clients run the same loads in turn, and the one that begins changes from round to round. Each is a
separate process with its own warm-up: 10 s of the same load for the JVM. Bodies have 128 bytes; the broker is
OrbitMQ's with ASYNC_FLUSH. The main figure is the client's CPU time per message: one core divided by it is
the rate "per core". Without Maven Central the Python client is measured alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import first_messages
from benchmarks.measure import QUEUES, keep, machine, record, table
from benchmarks.remoting import Client
from benchmarks.servers import (
    ROOT,
    Ours,
    PeerUnavailableError,
    ServerError,
    child_settings,
    java_program,
    left_out,
    wait_for_route,
)
from benchmarks.verdict import Miss, exit_code, times_worse

TOPIC = "client_speed"
TIMEOUT_S = 300
JVM_WARMUP_S = 10
JVM_WARMUP_CONSUMED = 1_000_000
"""Messages of the backlog that a Java consumer reads before the measurement: about ten seconds."""


@dataclass(frozen=True)
class Way:
    """One way of using a client.

    Attributes:
        peer: the name of the load in the Java client.
        share: the share of the run's messages.
        per_core: the goal in messages per second and core; 0 for none.
    """

    name: str
    title: str
    peer: str
    share: float = 1.0
    per_core: int = 0


WAYS = (
    Way("single", "send awaited, 1 in flight", "single", 0.1),
    Way("many", "send awaited, 256 in flight", "many", 1.0, 60_000),
    Way("batch", "auto-batch, awaited, 4096 in flight", "batch", 4.0),
    Way("submit", "auto-batch, submit, 4096 in flight", "batch", 4.0, 300_000),
    Way("consume", "consume a backlog", "consume", 2.0, 150_000),
    Way("consume_batch", "consume a backlog, batches of 32", "consume_batch", 2.0, 250_000),
)


@dataclass
class Speed:
    """Messages per second, and the client's CPU time per message in microseconds."""

    rate: float
    cpu_us: float

    @property
    def per_core(self) -> float:
        return 1e6 / self.cpu_us


Runner = Callable[[str, int, int], Speed]


def runner(command: list[str], name_server: str, folder: Path, *more: object) -> Runner:
    """Returns a function that runs a client program for one load, with `more` as its last arguments."""

    def run(way: str, warmup: int, messages: int) -> Speed:
        arguments = [name_server, TOPIC, way, str(warmup), str(messages), *map(str, more)]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=folder,
            preexec_fn=child_settings,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            raise ServerError(f"{' '.join(arguments)} failed: {done.stderr[-1000:] or done.stdout[-1000:]}")
        found = json.loads(lines[-1])
        return Speed(messages / found["seconds"], found["cpu_seconds"] / messages * 1e6)

    return run


def medians(speeds: list[Speed]) -> Speed:
    return Speed(statistics.median(s.rate for s in speeds), statistics.median(s.cpu_us for s in speeds))


def measure(ours: Runner, theirs: Runner | None, messages: int, rounds: int) -> dict[str, list[Speed | None]]:
    """For each load the medians of both clients; the Java client's are None if it was not measured."""
    found: dict[str, list[Speed | None]] = {}
    for way in WAYS:
        count = max(4096, int(messages * way.share) // 4096 * 4096)
        warmup = count // 4 // 4096 * 4096 or 4096
        mine: list[Speed] = []
        peers: list[Speed] = []
        for number in range(rounds):
            if theirs is not None and number % 2:
                peers.append(java(theirs, way, warmup, count))
            mine.append(ours(way.name, warmup, count))
            if theirs is not None and not number % 2:
                peers.append(java(theirs, way, warmup, count))
        found[way.name] = [medians(mine), medians(peers) if peers else None]
        print(f"  {way.title}: {found[way.name][0]}", file=sys.stderr)
    return found


def java(theirs: Runner, way: Way, warmup: int, count: int) -> Speed:
    """One run of the Java client, after its warm-up."""
    return theirs(way.peer, JVM_WARMUP_CONSUMED if way.peer.startswith("consume") else warmup, count)


def report(found: dict[str, list[Speed | None]], rounds: int, kind: str) -> str:
    headings = [
        "load",
        "msg/s ours",
        "Java",
        "CPU us/msg ours",
        "Java",
        "ratio",
        "ours per core",
        "aim",
        "met",
    ]
    rows = []
    for way in WAYS:
        mine, peer = found[way.name]
        assert mine is not None
        rows.append(
            [
                way.title,
                f"{mine.rate:,.0f}",
                f"{peer.rate:,.0f}" if peer else "",
                f"{mine.cpu_us:.2f}",
                f"{peer.cpu_us:.2f}" if peer else "",
                f"{mine.cpu_us / peer.cpu_us:.2f}" if peer else "",
                f"{mine.per_core:,.0f}/s",
                f"{way.per_core:,}/s" if way.per_core else "",
                ("yes" if mine.per_core >= way.per_core else "NO") if way.per_core else "",
            ]
        )
    place = machine()
    return "\n".join(
        [
            f"# The Python client on {place['cpu']}, {place['cpus']} CPUs, {place['taken']}, {kind} record",
            "",
            f"OrbitMQ's broker, 128 byte bodies; medians of {rounds} runs each. Java: Apache's client, "
            f"warmed for {JVM_WARMUP_S} s with the same load; which of them begins changes from run to run.",
            "",
            table(headings, rows),
        ]
    )


def missed(found: dict[str, list[Speed | None]], waits: dict[str, list[float]]) -> list[Miss]:
    """The goals that were missed."""
    misses = []
    for way in WAYS:
        mine = found[way.name][0]
        if way.per_core and mine is not None:
            text = f"{way.title}: {mine.per_core:,.0f}/s per core, wanted {way.per_core:,}"
            misses.append(Miss(text, times_worse(mine.per_core, least=way.per_core)))
    for what, seconds in waits.items():
        middle, aim = statistics.median(seconds), first_messages.AIMS[what]
        text = f"{first_messages.TITLES[what]}: {middle:.2f} s, wanted {aim} s"
        misses.append(Miss(text, times_worse(middle, most=aim)))
    return [miss for miss in misses if miss.times > 1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.client_speed", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one short run of each")
    parser.add_argument("--name", default="client", help="of the files in benchmarks/results")
    options = parser.parse_args()
    messages, rounds = (32_768, 1) if options.short else (131_072, 5)
    with tempfile.TemporaryDirectory(prefix="orbitmq-client-") as made:
        folder = Path(made)
        maker = Ours()
        name_server = maker.name_server(folder)
        broker = maker.broker(folder, name_server.address, flushDiskType="ASYNC_FLUSH")
        try:
            with Client(broker.port) as client:
                client.create_topic(TOPIC, QUEUES)
            wait_for_route(name_server, TOPIC)
            python = [sys.executable, str(ROOT / "benchmarks" / "client_loads.py")]
            ours = runner(python, name_server.address, folder)
            try:
                theirs = runner(
                    java_program("ClientSpeed", folder), name_server.address, folder, JVM_WARMUP_S
                )
            except PeerUnavailableError as error:
                left_out(f"without Apache's client: {error}")
                theirs = None
            found = measure(ours, theirs, messages, rounds)
            waits = first_messages.measure(name_server, broker, 2 if options.short else 5)
        finally:
            broker.stop()
            name_server.stop()
    taken = record(short=options.short, rounds=rounds, messages=messages, jvm_warmup_s=JVM_WARMUP_S)
    text = f"{report(found, rounds, taken['kind'])}\n\n{first_messages.report(waits)}"
    print(text)
    content = {"record": taken, "machine": machine(), "speeds": found, "waits": waits}
    print(f"\nkept in {keep(options.name, text, content)}")
    return exit_code(missed(found, waits))


if __name__ == "__main__":
    raise SystemExit(main())
