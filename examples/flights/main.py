"""``make demo``: a cluster, 336,776 flights, two consumers, Spark, and an audit of the whole."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.flights.audit import Audit, audit
from examples.flights.children import Child, ChildError
from examples.flights.data import FLIGHTS, DataError, Table, flights_file
from examples.flights.picture import Sample, draw
from examples.flights.sender import QUEUES_PER_BROKER, Ledger, create_topics, send_all, send_warm_up
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from orbitmq import OrbitError

BROKERS = 2
CONSUMERS = 2
TIME_LIMIT_S = 600.0
# A slow machine beside other work needs minutes.
CLUSTER_READY_S = 300.0
GROUP_READY_S = 300.0
FINISH_S = 300.0
TICK_S = 0.25
# Says that a folder is ours to empty.
MARKER = ".orbitmq-demo"

console = Console()


class DemoError(Exception):
    """The demo cannot go on."""


@dataclass
class Demo:
    """The state of a run.

    Attributes:
        out: the folder for all that it writes.
        times: how often each flight is sent.
    """

    out: Path
    times: int = 1
    ledger: Ledger = field(default_factory=Ledger)
    consumers: list[dict[str, Any]] = field(default_factory=lambda: [{"count": 0} for _ in range(CONSUMERS)])
    archived: int = 0
    name_server: str = ""
    spark_ready: asyncio.Event = field(default_factory=asyncio.Event)
    samples: list[Sample] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many messages are sent."""
        return FLIGHTS * self.times

    @property
    def consumed(self) -> int:
        return sum(report["count"] for report in self.consumers)

    def on_spark(self, line: dict[str, Any]) -> None:
        """Take a line of the pipeline."""
        self.archived = line.get("rows", self.archived)
        if "spark" in line:
            console.print(f"Spark {line['spark']} is ready after {line['ready_s']:.1f} s")
            self.spark_ready.set()

    def on_cluster(self, line: dict[str, Any]) -> None:
        """Take the line that ``orbitmq up`` prints once all servers serve."""
        self.name_server = line["name_server"]

    async def run(self) -> Audit:
        """The whole way of the flights.

        Raises:
            DemoError, ChildError, OrbitError, DataError: what failed.
        """
        async with AsyncExitStack() as stack:
            cluster = Child("cluster", self.out, self.on_cluster)
            stack.push_async_callback(cluster.stop)
            await cluster.start(
                "orbitmq",
                "up",
                "--brokers",
                str(BROKERS),
                "--port",
                "0",
                "--json",
                "--dir",
                str(self.out / "data"),
            )
            await self._cluster_is_ready(cluster)
            await create_topics(self.name_server)
            await send_warm_up(self.name_server)
            spark = Child("spark", self.out, self.on_spark)
            readers = [Child(f"consumer-{i}", self.out, self._keeper(i)) for i in range(CONSUMERS)]
            for child in (spark, *readers):
                stack.push_async_callback(child.stop)
            await spark.start("examples.flights.pipeline", self.name_server, str(self.out.absolute()))
            for reader in readers:
                await reader.start("examples.flights.consumer", self.name_server)
            await self._group_formed(readers)
            await self._spark_is_ready(spark)
            await self._flow(self.name_server, [cluster, spark, *readers])
            await asyncio.gather(*(child.finish(FINISH_S) for child in (spark, *readers)))
        return audit(self.out, self.ledger, self.consumers, self.times)

    def _keeper(self, index: int) -> Any:
        def keep(line: dict[str, Any]) -> None:
            self.consumers[index] = line

        return keep

    async def _cluster_is_ready(self, cluster: Child) -> None:
        """Wait until all servers serve."""
        deadline = time.monotonic() + CLUSTER_READY_S
        while not self.name_server:
            cluster.check()
            if time.monotonic() > deadline:
                raise DemoError(f"the cluster did not start in {CLUSTER_READY_S:.0f} s, see {cluster.log}")
            await asyncio.sleep(TICK_S)

    async def _group_formed(self, readers: list[Child]) -> None:
        """Wait until the queues are shared evenly, so that no rebalance repeats messages later."""
        share = BROKERS * QUEUES_PER_BROKER // CONSUMERS
        deadline = time.monotonic() + GROUP_READY_S
        while any(report.get("queues") != share for report in self.consumers):
            for child in readers:
                child.check()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the consumers did not share the queues in {GROUP_READY_S:.0f} s: {self.consumers}"
                )
            await asyncio.sleep(TICK_S)

    async def _spark_is_ready(self, spark: Child) -> None:
        """Spark takes seconds to start, and more until all of its processes have run once."""
        while not self.spark_ready.is_set():
            spark.check()
            await asyncio.sleep(TICK_S)

    async def _flow(self, name_server: str, children: list[Child]) -> None:
        """Send, and watch until everything has arrived everywhere."""
        begin = time.monotonic()
        sending = asyncio.create_task(send_all(name_server, self.ledger, self.times))
        columns = (
            TextColumn("{task.description:22}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        try:
            with Progress(*columns, console=console, refresh_per_second=1 / TICK_S) as progress:
                names = ("flights sent", "consumed by two", "archived by Spark")
                bars = [progress.add_task(name, total=self.total) for name in names]
                while True:
                    now = Sample(time.monotonic() - begin, self.ledger.sent, self.consumed, self.archived)
                    self.samples.append(now)
                    for bar, value in zip(bars, now[1:], strict=True):
                        progress.update(bar, completed=value)
                    if sending.done():
                        sending.result()
                        if min(now.consumed, now.archived) >= now.sent:
                            return
                    for child in children:
                        child.check()
                    if now.at > TIME_LIMIT_S:
                        raise DemoError(f"not done after {TIME_LIMIT_S:.0f} s: {now}")
                    await asyncio.sleep(TICK_S)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def show(demo: Demo, result: Audit, seconds: float) -> None:
    """Print the summary."""
    grid = Grid(title="Audit", title_justify="left")
    grid.add_column("check")
    grid.add_column("found", justify="right")
    grid.add_column("")
    for what, found, good in result.checks:
        grid.add_row(what, found, "[green]ok[/]" if good else "[red]WRONG[/]")
    console.print(grid)
    console.print(_delays(demo.ledger.expected))
    total = demo.total
    times = {
        name: _reached(demo.samples, column, total).at
        for column, name in enumerate(("sent", "consumed", "archived"), 1)
    }
    console.print(
        f"archive complete {times['archived'] - times['sent']:.1f} s after the last message was sent"
    )
    rates = ", ".join(f"{name} in {t:.1f} s ({total / t:,.0f}/s)" for name, t in times.items())
    console.print(f"{total:,} flights: {rates}; whole run {seconds:.0f} s")
    console.print(f"archived once the first third was: {warm_rate(demo.samples, total):,.0f}/s")


def _reached(samples: Sequence[Sample], column: int, count: int) -> Sample:
    return next(sample for sample in samples if sample[column] >= count)


def warm_rate(samples: Sequence[Sample], total: int) -> float:
    """Archived messages per second from the end of the batch with the first third on until all are archived.

    Processes, compilers and caches are cold at first, which a run of a few seconds shows more than its rate.
    """
    column = Sample._fields.index("archived")
    first, last = _reached(samples, column, total // 3), _reached(samples, column, total)
    return (last.archived - first.archived) / max(last.at - first.at, TICK_S)


def _delays(table: Table) -> Grid:
    grid = Grid(title="Delays by carrier, whole year", title_justify="left")
    for name in ("carrier", "flights", "cancelled", "mean departure delay, min", "mean arrival delay, min"):
        grid.add_column(name, justify="left" if name == "carrier" else "right")
    for carrier in sorted({carrier for carrier, _ in table.cells}):
        total = Table()
        for (name, _), cell in table.cells.items():
            if name == carrier:
                total.cell(carrier, 0).merge(cell)
        sums = total.cell(carrier, 0)
        grid.add_row(
            carrier,
            f"{sums.flights:,}",
            f"{sums.flights - sums.departed:,}",
            f"{sums.departure_minutes / sums.departed:.1f}" if sums.departed else "-",
            f"{sums.arrival_minutes / sums.arrived:.1f}" if sums.arrived else "-",
        )
    return grid


async def demo(out: Path, times: int) -> bool:
    """Run it in ``out``, an empty folder; whether everything was right."""
    begin = time.monotonic()
    flights_file()
    state = Demo(out, times)
    result = await state.run()
    draw(out / "flights.png", state.samples, state.ledger.expected)
    show(state, result, time.monotonic() - begin)
    console.print(f"picture: {out / 'flights.png'}")
    return result.is_good


def prepare(out: Path) -> ExitStack:
    """Empty the folder of an earlier run, or make it. It is ours until what is returned is closed.

    Raises:
        DemoError: it holds something else, or another demo uses it.
    """
    out.mkdir(parents=True, exist_ok=True)
    marker = out / MARKER
    if not marker.exists() and any(out.iterdir()):
        raise DemoError(f"{out} is not empty and not from an earlier demo; choose another folder with --out")
    claim = ExitStack()
    lock = claim.enter_context(marker.open("ab"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        raise DemoError(f"another demo uses {out}; choose another folder with --out") from None
    for path in out.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != marker:
            path.unlink()
    return claim


def _failed(error: BaseException) -> int:
    console.print(f"demo: failed: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="folder for everything it writes"
    )
    parser.add_argument(
        "--times", type=int, default=1, help="send the flights so often, to see the rate once all is warm"
    )
    arguments = parser.parse_args()
    if arguments.times < 1:
        parser.error("--times must be 1 or more")
    try:
        with prepare(arguments.out):
            good = asyncio.run(demo(arguments.out, arguments.times))
    except (DemoError, ChildError, OrbitError, DataError, OSError) as error:
        return _failed(error)
    except KeyboardInterrupt:
        return _failed(DemoError("interrupted"))
    except ExceptionGroup as group:
        return _failed(group.exceptions[0])
    print("demo: OK" if good else "demo: failed: the audit found differences", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
