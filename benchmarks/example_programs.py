"""Apache's own benchmark, `org.apache.rocketmq.example.benchmark`, against a broker of OrbitMQ or Apache.

Its results are read from the broker (offsets, counters, CPU time), so that both sides are measured in the
same way and a short run is enough.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import QUEUES, Generator, table
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client
from benchmarks.servers import PROGRAM_HEAP_MB, Apache, Server, ServerError, child_settings, wait_for_route

CREATE_GROUP = 200
COMMIT_OFFSET = 15
PACKAGE = "org.apache.rocketmq.example.benchmark"
SEND_TOPIC, READ_TOPIC, GROUP = "example_send", "example_read", "example_group"
BATCH = 32
SAMPLE_S = 0.1
STALLED_S = 30.0
# The timed part of the backlog, without the client's start and the last stragglers.
FROM_SHARE, TO_SHARE = 0.1, 0.95


@dataclass
class Speed:
    """The result of one program: messages per second, broker CPU per message, broker memory afterwards."""

    rate: float
    cpu_us: float
    anonymous_mb: float


@dataclass(frozen=True)
class Effort:
    """The duration of each program: Producer by time in seconds, Consumer by the batches of its backlog."""

    warmup_s: float = 10.0
    duration_s: float = 20.0
    batches: int = 60_000


SHORT = Effort(duration_s=4.0, batches=12_000)


class Programs:
    """Runs Producer and Consumer.

    Args:
        apache: Apache's servers, whose jars contain the programs.
        folder: the folder for the programs' logs.
    """

    def __init__(self, apache: Apache, generator: Generator, folder: Path, effort: Effort) -> None:
        self.apache = apache
        self.generator = generator
        self.folder = folder
        self.effort = effort

    def producer(self, name_server: Server, broker: Server) -> Speed:
        """`Producer -w 64 -s 128`: 64 threads, each of which waits for the answer to its message of 128
        bytes.
        """
        with Client(broker.port, timeout_s=30) as client:
            client.create_topic(SEND_TOPIC, QUEUES)
            wait_for_route(name_server, SEND_TOPIC)
            with self._run("Producer", name_server, "-w", "64", "-s", "128", "-t", SEND_TOPIC) as process:
                first = sent(client)
                deadline = time.monotonic() + STALLED_S
                while sent(client) == first:
                    alive(process)
                    if time.monotonic() > deadline:
                        raise ServerError(f"{broker.name}: the example Producer does not begin")
                    time.sleep(SAMPLE_S)
                time.sleep(self.effort.warmup_s)
                begin = sample(broker, sent(client))
                time.sleep(self.effort.duration_s)
                end = sample(broker, sent(client))
                alive(process)
        return speed(broker, begin, end)

    def consumer(self, name_server: Server, broker: Server) -> Speed:
        """`Consumer` with its default of 20 threads, on a backlog of messages of 128 bytes."""
        with Client(broker.port, timeout_s=30) as client:
            client.create_topic(READ_TOPIC, QUEUES)
            client.request(CREATE_GROUP, body=json.dumps({"groupName": GROUP}).encode())
            for queue in range(QUEUES):
                fields = {"consumerGroup": GROUP, "topic": READ_TOPIC, "queueId": str(queue)}
                client.request(COMMIT_OFFSET, {**fields, "commitOffset": "0"})
            wait_for_route(name_server, READ_TOPIC)
            batches = self.effort.batches
            self.generator.run(
                "batch",
                port=broker.port,
                topic=READ_TOPIC,
                queues=QUEUES,
                warmup=0,
                ops=batches,
                duration=240,
            )
            total = batches * BATCH
            with self._run("Consumer", name_server, "-t", READ_TOPIC, "-g", GROUP) as process:
                samples = watch(process, broker, lambda: delivered(client), total)
        first = samples[0][1]
        begin = next(s for s in samples if s[1] - first >= FROM_SHARE * total)
        end = next(s for s in samples if s[1] - first >= TO_SHARE * total)
        return speed(broker, begin, end)

    @contextmanager
    def _run(self, program: str, name_server: Server, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            *self.apache.java(self.folder, PROGRAM_HEAP_MB),
            f"{PACKAGE}.{program}",
            "-n",
            name_server.address,
        ]
        log = self.folder / f"example-{program.lower()}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=child_settings,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


Sample = tuple[float, int, float]
"""The time in seconds, the number of messages so far, and the broker's CPU time so far in seconds."""


def sample(broker: Server, count: int) -> Sample:
    return time.monotonic(), count, broker.cpu_s()


def speed(broker: Server, begin: Sample, end: Sample) -> Speed:
    messages = end[1] - begin[1]
    if messages == 0 or end[0] == begin[0]:
        raise ServerError(f"{broker.name}: the example program moved no messages while it was measured")
    rate = messages / (end[0] - begin[0])
    return Speed(rate, (end[2] - begin[2]) / messages * 1e6, broker.anonymous_mb())


def watch(
    process: subprocess.Popen[bytes], broker: Server, count: Callable[[], int], total: int
) -> list[Sample]:
    """Samples until the count has grown by `total` messages."""
    samples = [sample(broker, count())]
    moved = samples[0]
    while samples[-1][1] - samples[0][1] < TO_SHARE * total:
        alive(process)
        time.sleep(SAMPLE_S)
        samples.append(sample(broker, count()))
        if samples[-1][1] > moved[1]:
            moved = samples[-1]
        elif samples[-1][0] - moved[0] > STALLED_S:
            done = moved[1] - samples[0][1]
            raise ServerError(f"{broker.name}: the example Consumer stands still at {done} of {total}")
    return samples


def alive(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        raise ServerError(f"an example program ended with {process.returncode}")


def sent(client: Client) -> int:
    return sum(client.max_offset(SEND_TOPIC, queue) for queue in range(QUEUES))


def delivered(client: Client) -> int:
    """Number of messages that the broker has delivered to consumers since midnight, or since its start."""
    return int(json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]["msgGetTotalTodayNow"])


def compared(ours: dict[str, Speed], theirs: dict[str, Speed]) -> str:
    """One line per program: rate, CPU and memory of both brokers, and the ratios ours/theirs."""
    headings = ["Apache's example", "msg/s ours", "Apache", "ratio", "CPU us/msg ours", "Apache", "ratio"]
    headings += ["RssAnon MB ours", "Apache", "ratio"]
    rows = []
    for program, a in ours.items():
        b = theirs[program]
        row = [program, f"{a.rate:,.0f}", f"{b.rate:,.0f}", f"{a.rate / b.rate:.2f}"]
        row += [f"{a.cpu_us:.2f}", f"{b.cpu_us:.2f}", f"{a.cpu_us / b.cpu_us:.2f}"]
        row += [f"{a.anonymous_mb:,.0f}", f"{b.anonymous_mb:,.0f}", f"{a.anonymous_mb / b.anonymous_mb:.2f}"]
        rows.append(row)
    return table(headings, rows)
