"""`make bench-peer`: the same loads against OrbitMQ's broker and Apache RocketMQ's, side by side.

Both brokers run in one session on the same machine, in turn for every load, each with all processors; the
other one is paused (SIGSTOP) while one is measured, and the one that begins changes from run to run. Before
its measurement a load warms up the JVM for 10 s. Apache's broker comes from Maven Central and has a heap of 1
GiB. Then Apache's own benchmark programs run against both, and growth, pops, timers, OrbitMQ's redrive and
gRPC are measured.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import example_programs, growth, grpc, pop, redrive, replicas, timers
from benchmarks.example_programs import Programs, Speed
from benchmarks.measure import (
    Bench,
    Case,
    Effort,
    Figure,
    Generator,
    keep,
    kept,
    machine,
    microseconds,
    record,
    summary,
    table,
)
from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server, apache_classpath

LOADS = [
    Case(connections=1, window=1),
    Case(connections=64, window=1),
    Case(),
    Case(body=1024),
    Case(mode="batch", connections=4, window=4),
    Case(mode="pull", window=4),
    Case(mode="pull", window=4, sql=True),
    Case(rate=10_000),
    Case(mode="deliver", rate=10_000),
]
DURABLE_LOADS = [replace(case, durable=True) for case in LOADS[:3]]

Maker = Ours | Apache
T = TypeVar("T")


class Side:
    """One of the two systems: its servers in one flush mode, running between `open` and `close`."""

    def __init__(self, maker: Maker, bench: Bench, folder: Path, *, durable: bool) -> None:
        self.bench = bench
        self.folder = folder
        self._warmup_s = maker.warmup_s
        self.process: dict[str, float] = {}
        self.figures: list[Figure] = []
        self._name_server = maker.name_server(folder)
        flush = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        try:
            self._broker = maker.broker(
                folder, self._name_server.address, flushDiskType=flush, enablePropertyFilter="true"
            )
        except BaseException:
            self._name_server.kill()
            raise
        self.process["ready_s"] = self._broker.ready_s
        self.process["idle_mb"] = self._broker.anonymous_mb()
        bench.prepare(self._broker)
        self._broker.pause()

    def warm(self, case: Case) -> None:
        """Run a load without a measurement, so that code is compiled and pages are allocated on both
        sides.
        """
        self._broker.resume()
        self.bench.warm(self._broker, case, self._warmup_s)
        self._broker.pause()

    def once(self, case: Case) -> dict[str, Any]:
        """Run a load once, while the other side is paused."""
        self._broker.resume()
        run = self.bench.once(self._broker, case)
        self._broker.pause()
        return run

    def run_example(self, program: Callable[[Server, Server], Speed]) -> Speed:
        """Run one of Apache's benchmark programs, while the other side is paused."""
        self._broker.resume()
        speed = program(self._name_server, self._broker)
        self._broker.pause()
        return speed

    def close(self) -> None:
        """Record memory and threads, stop both servers, remove their data."""
        self.process["loaded_mb"] = self._broker.anonymous_mb()
        self.process["threads"] = self._broker.status("Threads")
        try:
            self._broker.stop()
        finally:
            self._name_server.stop()
            shutil.rmtree(self.folder)
        self.process["stopped_s"] = self._broker.stopped_s


def ratio(ours: float, theirs: float) -> str:
    """The ratio of OrbitMQ's figure to the peer's."""
    return f"{ours / theirs:.2f}" if theirs else "-"


def compare(cases: list[Case], ours: list[Figure], theirs: list[Figure]) -> str:
    """One line per load: rate, CPU and latencies of both brokers, and the ratios ours/theirs."""
    headings = [
        "load",
        "ops/s ours",
        "Apache",
        "ratio",
        "CPU us ours",
        "Apache",
        "ratio",
        "p50 ours",
        "Apache",
    ]
    headings += ["p99 ours", "Apache", "p99.9 ours", "Apache", "errors"]
    rows = []
    for case, a, b in zip(cases, ours, theirs, strict=True):
        row = [case.title, f"{a.rate:,.0f}", f"{b.rate:,.0f}", ratio(a.rate, b.rate)]
        row += [f"{a.cpu_us:.2f}", f"{b.cpu_us:.2f}", ratio(a.cpu_us, b.cpu_us)]
        for pick in _LATENCIES:
            row += [microseconds(pick(a)), microseconds(pick(b))]
        rows.append([*row, f"{a.failed or ''}/{b.failed or ''}".strip("/")])
    return table(headings, rows)


_LATENCIES: tuple[Callable[[Figure], float], ...] = (
    lambda figure: figure.p50_us,
    lambda figure: figure.p99_us,
    lambda figure: figure.p999_us,
)


def processes(ours: dict[str, float], theirs: dict[str, float]) -> str:
    """Start, memory, threads and stop of both brokers."""
    names = {
        "ready_s": "ready after start, s",
        "idle_mb": "RssAnon idle, MB",
        "loaded_mb": "RssAnon loaded, MB",
        "threads": "threads",
        "stopped_s": "clean stop, s",
    }
    rows = [
        [title, f"{ours[key]:,.2f}", f"{theirs[key]:,.2f}", ratio(ours[key], theirs[key])]
        for key, title in names.items()
    ]
    return table(["process", "ours", "Apache", "ratio"], rows)


def in_turn(sides: list[T], number: int) -> list[T]:
    """The sides in the order of run `number`: the one that begins changes from run to run."""
    return sides[::-1] if number % 2 else sides


def compare_examples(sides: list[Side], programs: Programs) -> tuple[str, dict[str, Any]]:
    """Apache's own Producer and Consumer against both brokers, in turn."""
    speeds: list[dict[str, Speed]] = [{} for _ in sides]
    for number, (title, program) in enumerate(
        (("Producer -w 64 -s 128", programs.producer), ("Consumer", programs.consumer))
    ):
        print(f"running Apache's example {title}", flush=True)
        for side in in_turn(sides, number):
            speeds[sides.index(side)][title] = side.run_example(program)
    return example_programs.compared(*speeds), {"ours": speeds[0], "apache": speeds[1]}


def compare_loads(sides: list[Side], cases: list[Case], repeats: int) -> str:
    """The project's own loads against both brokers, in turn."""
    for number, case in enumerate(cases):
        print(f"measuring {case.title}", flush=True)
        runs: dict[int, list[dict[str, Any]]] = {id(side): [] for side in sides}
        for side in sides:
            side.warm(case)
        for turn in range(repeats):
            for side in in_turn(sides, number + turn):
                runs[id(side)].append(side.once(case))
        for side in sides:
            side.figures.append(summary(case.title, runs[id(side)]))
    return compare(cases, sides[0].figures, sides[1].figures)


def compare_growth(folder: Path, classpath: str, *, short: bool) -> tuple[str, dict[str, Any]]:
    """Many topics, records and connections at both brokers, one after the other."""
    topics = growth.SHORT_TOPICS if short else growth.PEER_TOPICS
    generator = Generator()
    print(f"measuring growth, {topics:,} topics", flush=True)
    ours, theirs = (growth.measure(maker, generator, folder, topics) for maker in (Ours(), Apache(classpath)))
    return growth.compare(ours, theirs, topics), {"topics": topics, "ours": ours, "apache": theirs}


# These runs follow a warm-up of the JVM with the heaviest load, once for each way of replication.
REPLICAS_EFFORT, REPLICAS_SHORT = Effort(1.0, 3.0, 2), Effort(0.5, 1.0, 1)


def compare_replicas(folder: Path, classpath: str, *, short: bool) -> tuple[str, dict[str, Any]]:
    """A master alone, with an asynchronous slave, and with a slave that each answer waits for; at both
    systems, one after the other.
    """
    generator = Generator()
    found = []
    for maker in (Ours(), Apache(classpath)):
        print(f"measuring {maker.title} with a slave", flush=True)
        effort = REPLICAS_SHORT if short else REPLICAS_EFFORT
        found.append(replicas.measure(maker, generator, folder, short=short, effort=effort)[1])
    return replicas.beside(*found), {"ours": found[0], "apache": found[1]}


def about(effort: Effort, jvm_s: float, ours_s: float, *, short: bool) -> dict[str, Any]:
    """The machine, the time and the method of the measurements."""
    taken = record(
        short=short, effort=asdict(effort), warmup_s={"ours": ours_s, "apache": jvm_s}, order="alternating"
    )
    return {"record": taken, "machine": machine()}


def head(content: dict[str, Any]) -> list[str]:
    """The first lines of the page."""
    taken, place = content["record"], content["machine"]
    effort, warmup_s = taken["effort"], taken["warmup_s"]
    where = f"{place['cpu']}, {place['cpus']} CPUs, {place['taken']}"
    runs = f"{effort['repeats']} x {effort['duration_s']:g} s"
    return [
        f"# OrbitMQ and Apache RocketMQ on {where}, {taken['kind']} record\n",
        "Generator and broker share all CPUs. Each line: the load itself for "
        f"{warmup_s['apache']:g} s to warm the JVM",
        f"({warmup_s['ours']:g} s for OrbitMQ), then {runs} of each side; which of",
        "them begins changes from run to run; medians.",
    ]


@dataclass(frozen=True)
class Wanted:
    """The measurements that the command line requests.

    Attributes:
        loads: the project's own loads, by flush mode (durable or not); a mode without any is left out.
        examples: whether to run Apache's example programs.
        rest: whether to measure growth, pops, timers, the redrive and replicas.
        grpc: the rows to measure over gRPC.
    """

    loads: dict[bool, list[Case]]
    examples: bool = True
    rest: bool = True
    grpc: Sequence[str] = grpc.NAMES

    @classmethod
    def of(cls, options: argparse.Namespace) -> Wanted:
        """The measurements that the command line requests."""
        if options.examples:
            return cls({False: []}, rest=False, grpc=())
        if options.grpc:
            return cls({}, examples=False, rest=False, grpc=options.rows)
        loads = {False: LOADS, True: DURABLE_LOADS}
        if options.loads is None:
            return cls(loads)
        some = {
            mode: [case for case in cases if options.loads in case.title] for mode, cases in loads.items()
        }
        found = {mode: cases for mode, cases in some.items() if cases}
        return cls(found, examples=False, rest=False, grpc=())


def run(folder: Path, classpath: str, wanted: Wanted, *, short: bool) -> tuple[str, dict[str, Any]]:
    """Measure both systems in turn; returns the page, and the content of the record."""
    generator = Generator()
    effort = Effort(0.5, 1.5, 2) if short else Effort(1.0, 4.0, 4)
    example_effort = example_programs.SHORT if short else example_programs.Effort()
    programs = Programs(Apache(classpath), generator, folder, example_effort)
    content = about(effort, Apache(classpath).warmup_s, Ours().warmup_s, short=short)
    parts = head(content)
    for durable, cases in wanted.loads.items():
        mode = "SYNC_FLUSH" if durable else "ASYNC_FLUSH"
        makers: tuple[Maker, ...] = (Ours(), Apache(classpath))
        parts.append(f"\n## {mode}\n")
        with ExitStack() as running:
            sides = []
            for maker in makers:
                data = folder / f"{type(maker).__name__}-{mode}"
                print(f"starting {maker.title}, {mode}", flush=True)
                sides.append(Side(maker, Bench(generator, effort), data, durable=durable))
                running.callback(sides[-1].close)
            if cases:
                parts += [compare_loads(sides, cases, effort.repeats), ""]
            if wanted.examples and not durable:
                text, content["examples"] = compare_examples(sides, programs)
                parts += [text, ""]
        ours, theirs = sides
        parts.append(processes(ours.process, theirs.process))
        content[mode] = {
            "ours": ours.figures,
            "apache": theirs.figures,
            "processes": [ours.process, theirs.process],
        }
    if wanted.rest:
        text, content["growth"] = compare_growth(folder, classpath, short=short)
        parts.append(f"\n## Growth\n\n{text}")
        pair: list[Maker] = [Ours(), Apache(classpath)]
        text = pop.compare(pair, folder, short=short)
        parts.append(f"\n## Pop\n\n{text}")
        waiting = timers.SHORT_WAITING if short else timers.WAITING
        text, content["timers"] = timers.compare(pair, folder, waiting)
        parts.append(f"\n## Timers\n\n{text}")
        letters = redrive.SHORT_MESSAGES if short else redrive.MESSAGES
        text, content["redrive"] = redrive.compare(folder / "redrive", letters)
        parts.append(f"\n## Redrive\n\n{text}")
        text, content["replicas"] = compare_replicas(folder, classpath, short=short)
        parts.append(f"\n## A slave\n\n{text}")
    if wanted.grpc:
        content.update(grpc.measure(folder / "grpc", effort, short=short, names=wanted.grpc))
        parts.append(grpc_part(content))
    return "\n".join(parts), content


def grpc_part(content: dict[str, Any]) -> str:
    """The page's part about gRPC."""
    return f"\n## gRPC, SYNC_FLUSH\n\n{grpc.text(content)}"


def names_of_rows(text: str) -> list[str]:
    """The names of rows on the command line.

    Raises:
        argparse.ArgumentTypeError: a row does not exist.
    """
    names = text.split(",")
    if unknown := set(names) - set(grpc.NAMES):
        raise argparse.ArgumentTypeError(f"no row {', '.join(sorted(unknown))}: {', '.join(grpc.NAMES)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.peer", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one short run per load")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--examples", action="store_true", help="Apache's example programs only")
    only.add_argument("--loads", metavar="TEXT", help="only the loads whose title has this text, as 'SQL92'")
    only.add_argument("--grpc", action="store_true", help="gRPC only")
    parser.add_argument(
        "--rows",
        metavar="NAMES",
        type=names_of_rows,
        default=list(grpc.NAMES),
        help=f"with --grpc: only these, the record keeps the others: {', '.join(grpc.NAMES)}",
    )
    parser.add_argument(
        "--name", help="name of the files in benchmarks/results/: peer, or grpc (and -part, -short)"
    )
    parser.add_argument(
        "--folder", type=Path, default=None, help="where brokers keep their data (default: /tmp)"
    )
    options = parser.parse_args()
    wanted = Wanted.of(options)
    if not wanted.loads and not wanted.grpc:
        parser.error(f"--loads {options.loads}: no load has that in its title")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit cleans up servers and folders
    try:
        classpath = apache_classpath()
    except PeerUnavailableError as error:
        print(f"skipped: {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="orbitmq-peer-", dir=options.folder) as folder:
        text, content = run(Path(folder), classpath, wanted, short=options.short)
    name = options.name or ("grpc" if options.grpc else "peer")
    if options.grpc:
        content = grpc.merged(content, kept(name, content["record"]))
        text = "\n".join([*head(content), grpc_part(content)])
    elif not wanted.rest:
        name += "-part"
    print(text)
    print(f"\nkept in {keep(name, text, content)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
