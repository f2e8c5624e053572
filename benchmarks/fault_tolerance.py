"""Three brokers on real sockets: one becomes slow by 700 ms, later another one is killed. Measures how
producers react.

    python -m benchmarks.fault_tolerance [--short] [--freeze] [--chart docs/images/fault_tolerance.png]

Runs the same load with latency fault tolerance off and on, and with Apache's Java producer if its jars are
available. Prints the share of messages that went to the slow broker, latencies, failures, and whether an
accepted message is missing afterwards. A proxy slows the broker down by delaying its answers.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import table
from benchmarks.ports import free_ports
from benchmarks.servers import Ours, PeerUnavailableError, Server, apache_classpath

from orbitmq import ConsumeFrom, Message, Producer, PullConsumer, SendError

TOPIC = "fault_tolerance"
SLOW, KILLED = "broker-b", "broker-c"
# The address at which clients reach the slow broker: its proxy. The broker itself has the same port on
# 127.0.0.1.
PROXY_HOST = "127.0.0.2"
SLOW_BY_S = 0.7
SENDERS = 8
PAUSE_S = 0.01


@dataclass(frozen=True)
class Plan:
    """Times in seconds from the start of a run; the killed broker may be frozen (SIGSTOP) instead."""

    slow_at: float
    kill_at: float
    end: float
    freeze: bool = False


LONG, SHORT = Plan(5, 15, 30), Plan(2, 5, 10)


@dataclass(frozen=True)
class Sent:
    """One send; an empty broker name stands for a failed send."""

    at: float
    took: float
    broker: str
    message_id: str


@dataclass
class Run:
    """The sends of one producer."""

    title: str
    sends: list[Sent] = field(default_factory=list)
    missing: int = 0


class SlowProxy:
    """A proxy that passes everything on, and delays answers by ``delay_s``."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, PROXY_HOST, self._port)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        for pump in (
            self._pump(reader, broker_writer, slow=False),
            self._pump(broker_reader, writer, slow=True),
        ):
            task = asyncio.get_running_loop().create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(65536):
                if slow and self.delay_s:
                    loop.call_later(self.delay_s, _write, writer, data)
                else:
                    writer.write(data)
        except ConnectionError:
            pass  # either side may close; the other side is closed below
        finally:
            writer.close()


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write delayed data, unless the client has closed meanwhile."""
    if not writer.is_closing():
        writer.write(data)


class Place:
    """A name server and three brokers, one of which is behind a proxy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ours = Ours()
        self._stack = ExitStack()
        self.brokers: dict[str, Server] = {}

    def start(self) -> None:
        self.name_server = self._ours.name_server(self._folder)
        self._stack.callback(self.name_server.stop)
        for name in ("broker-a", SLOW, KILLED):
            self.brokers[name] = self.broker(name)
        self.proxy = SlowProxy(self.brokers[SLOW].port)

    def broker(self, name: str, port: int = 0) -> Server:
        more: dict[str, Any] = {"brokerIP1": PROXY_HOST, "bindAddress": "127.0.0.1"} if name == SLOW else {}
        return self._ours.broker(
            self._folder / name,
            self.name_server.address,
            port=port or free_ports(5) + 2,
            name=name,
            flushDiskType="ASYNC_FLUSH",
            defaultTopicQueueNums="4",
            **more,
        )

    def kill(self, *, freeze: bool) -> None:
        if freeze:
            self.brokers[KILLED].pause()
        else:
            self.brokers[KILLED].kill()

    def revive(self, *, frozen: bool) -> None:
        if frozen:
            self.brokers[KILLED].resume()
        else:
            self.brokers[KILLED] = self.broker(KILLED, self.brokers[KILLED].port)

    def stop(self) -> None:
        for server in self.brokers.values():
            server.stop()
        self._stack.close()


async def python_sends(place: Place, run: Run, plan: Plan, options: dict[str, Any]) -> None:
    """Send with OrbitMQ's producer until the plan ends."""
    async with Producer("faults", name_servers=place.name_server.address, **options) as producer:
        await producer.send(Message(TOPIC, b"x" * 128))
        begun = time.perf_counter()

        async def sender() -> None:
            while (start := time.perf_counter() - begun) < plan.end:
                broker, message_id = "", ""
                try:
                    result = await producer.send(Message(TOPIC, b"x" * 128))
                    broker, message_id = result.queue.broker_name, result.message_id
                except SendError as error:
                    print(f"  a send failed: {error}", file=sys.stderr)
                run.sends.append(Sent(start, time.perf_counter() - begun - start, broker, message_id))
                await asyncio.sleep(PAUSE_S)

        await asyncio.gather(follow(place, plan), *(sender() for _ in range(SENDERS)))


async def java_sends(
    place: Place, run: Run, plan: Plan, world: Any, *, avoid: bool, detector: bool = False
) -> None:
    """Send with Apache's Java producer until the plan ends."""
    options: dict[str, object] = {
        "ns": place.name_server.address,
        "topic": TOPIC,
        "avoid": str(avoid).lower(),
        "detector": str(detector).lower(),
    }
    options |= {"millis": int(plan.end * 1000), "senders": SENDERS, "pause": int(PAUSE_S * 1000)}
    with world.java("Faults", **options) as program:
        await asyncio.to_thread(program.wait_for, "started")
        facts, _ = await asyncio.gather(asyncio.to_thread(program.wait_for, "done", 120), follow(place, plan))
    for fact in facts:
        if fact["fact"] == "send":
            run.sends.append(Sent(float(fact["at"]), float(fact["took"]), fact["broker"], fact["id"]))


async def follow(place: Place, plan: Plan) -> None:
    """Carry out the plan's faults at their times."""
    await asyncio.sleep(plan.slow_at)
    place.proxy.delay_s = SLOW_BY_S
    await asyncio.sleep(plan.kill_at - plan.slow_at)
    await asyncio.to_thread(place.kill, freeze=plan.freeze)
    await asyncio.sleep(plan.end - plan.kill_at)


async def stored_ids(place: Place) -> set[str]:
    """The unique ids of all messages of the topic."""
    found: set[str] = set()
    consumer = PullConsumer(
        "faults_audit", name_servers=place.name_server.address, consume_from=ConsumeFrom.FIRST
    )
    async with consumer:
        queues = await consumer.queues(TOPIC)
        consumer.assign(queues)
        await consumer.seek_to_begin(*queues)
        ends = {queue: await consumer.max_offset(queue) for queue in queues}
        while any([await consumer.position(queue) < end for queue, end in ends.items()]):
            found.update(message.message_id for message in await consumer.poll(4096))
    return found


@asynccontextmanager
async def servers(folder: Path) -> AsyncIterator[Place]:
    """The running place with its proxy."""
    place = Place(folder)
    try:
        await asyncio.to_thread(place.start)
        await place.proxy.start()
        await asyncio.sleep(1)
        yield place
        await place.proxy.stop()
    finally:
        await asyncio.to_thread(place.stop)


Sender = Callable[[Place, Run, Plan], Any]


async def measure(place: Place, title: str, send: Sender, plan: Plan) -> Run:
    """One run on healthy servers, and the search for lost messages."""
    run = Run(title)
    place.proxy.delay_s = 0.0
    print(f"{title}: {plan.end:.0f} s", flush=True)
    await send(place, run, plan)
    place.proxy.delay_s = 0.0
    await asyncio.to_thread(place.revive, frozen=plan.freeze)
    await asyncio.sleep(2)
    accepted = {sent.message_id for sent in run.sends if sent.broker}
    run.missing = len(accepted - await stored_ids(place))
    return run


async def measure_all(plan: Plan, world: Any) -> list[Run]:
    """Run every producer in turn on the same three brokers."""
    on = {"send_latency_fault_enable": True}
    ways: list[tuple[str, Sender]] = [
        ("OrbitMQ, off", lambda p, r, q: python_sends(p, r, q, {})),
        ("OrbitMQ, on, 4.x", lambda p, r, q: python_sends(p, r, q, on)),
        (
            "OrbitMQ, on, 5.x",
            lambda p, r, q: python_sends(
                p, r, q, {**on, "fault_profile": "5.x", "start_detector_enable": True}
            ),
        ),
    ]
    if world is not None:
        ways += [
            ("Java 5.5.0, off", lambda p, r, q: java_sends(p, r, q, world, avoid=False)),
            ("Java 5.5.0, on", lambda p, r, q: java_sends(p, r, q, world, avoid=True)),
            (
                "Java 5.5.0, on, detector",
                lambda p, r, q: java_sends(p, r, q, world, avoid=True, detector=True),
            ),
        ]
    with tempfile.TemporaryDirectory() as folder:
        async with servers(Path(folder)) as place:
            return [await measure(place, title, send, plan) for title, send in ways]


def report(runs: list[Run], plan: Plan) -> str:
    """One line per run, about the messages sent after the broker had become slow."""
    rows = []
    for run in runs:
        late = [sent for sent in run.sends if sent.at >= plan.slow_at]
        good = [sent for sent in late if sent.broker]
        costs = sorted(sent.took * 1000 for sent in good) or [0.0]
        share = sum(sent.broker == SLOW for sent in good) / max(1, len(good))
        rows.append(
            [
                run.title,
                f"{len(late):,}",
                f"{share:.1%}",
                *(f"{costs[int(q * (len(costs) - 1))]:.1f}" for q in (0.5, 0.99, 1.0)),
                str(len(late) - len(good)),
                str(run.missing),
            ]
        )
    headings = ["producer, fault tolerance", "sends", "to the slow one", "p50 ms", "p99 ms", "max ms"]
    return table([*headings, "failed", "missing"], rows)


def chart(runs: list[Run], plan: Plan, path: Path) -> None:
    """Latency and chosen broker over time, one column per run."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    fate = "frozen" if plan.freeze else "killed"
    colours = {"broker-a": "#4878a8", SLOW: "#d1605e", KILLED: "#6a9f58"}
    figure, axes = pyplot.subplots(
        2, len(runs), figsize=(4.2 * len(runs), 5.4), sharex=True, sharey="row", squeeze=False
    )
    for column, run in enumerate(runs):
        latency, choice = axes[0][column], axes[1][column]
        latency.set_title(run.title, fontsize=11)
        latency.set_yscale("log")
        for broker, colour in colours.items():
            own = [sent for sent in run.sends if sent.broker == broker]
            latency.scatter(
                [sent.at for sent in own], [sent.took * 1000 for sent in own], s=3, color=colour, linewidths=0
            )
        width = plan.end / 30
        edges = [step * width for step in range(31)]
        choice.hist(
            [[sent.at for sent in run.sends if sent.broker == broker] for broker in colours],
            bins=edges,
            stacked=True,
            color=list(colours.values()),
            weights=[[1 / width for sent in run.sends if sent.broker == broker] for broker in colours],
            label=[
                f"{SLOW} (slow)" if b == SLOW else f"{KILLED} ({fate})" if b == KILLED else b for b in colours
            ],
        )
        for axis in (latency, choice):
            axis.axvline(plan.slow_at, color="#d1605e", linestyle=":", linewidth=1)
            axis.axvline(plan.kill_at, color="#6a9f58", linestyle=":", linewidth=1)
            axis.spines[["top", "right"]].set_visible(False)
        choice.set_xlabel("seconds")
    axes[0][0].set_ylabel("latency of a send, ms")
    axes[1][0].set_ylabel("messages per second")
    axes[1][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def java_world(folder: Path) -> Any:
    """Apache's clients, or None after the reason was printed."""
    from tests.interop.world import World

    try:
        return World(apache_classpath(), folder, measured=True)
    except PeerUnavailableError as reason:
        print(f"without the Java producer: {reason}")
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--short", action="store_true", help="10 s for each producer instead of 30 s")
    parser.add_argument("--freeze", action="store_true", help="stop the one broker with SIGSTOP, not SIGKILL")
    parser.add_argument("--chart", type=Path, help="draw latency and choice over time into this file")
    options = parser.parse_args()
    plan = replace(SHORT if options.short else LONG, freeze=options.freeze)
    with tempfile.TemporaryDirectory() as folder:
        runs = asyncio.run(measure_all(plan, java_world(Path(folder))))
    print(report(runs, plan))
    if options.chart:
        # Three columns are readable: OrbitMQ's off and on, and the Java producer's on.
        chart([*runs[:2], *runs[4:5]], plan, options.chart)
    if any(run.missing for run in runs):
        sys.exit("accepted messages are missing")


if __name__ == "__main__":
    main()
