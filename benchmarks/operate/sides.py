"""Brokers that are paused unless they are measured, loads on them in turn, and their topics and groups."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import keys, many_topics
from benchmarks.measure import QUEUES, Case, Generator
from benchmarks.operate.model import Found, ratio
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client, RequestError
from benchmarks.servers import Apache, Ours, Server, stop_paused

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.signing import Credentials, Signer

TOPIC: Final = "bench"
STARTED_WITHIN_S: Final = 90.0
CHUNK_BYTES: Final = 1 << 20
GROUP: Final = "readers_{:04d}"
# Apache's broker refuses sends that wait for long, which happens when the machine stalls for a moment.
PATIENT: Final = {"waitTimeMillsInSendQueue": "20000", "osPageCacheBusyTimeOutMills": "20000"}
Run = dict[str, Any]


class Side:
    """A broker with a name server and the topic ``bench``, which is paused unless it is measured.

    Args:
        signs: whether requests to the broker carry the root user's keys.
    """

    def __init__(
        self,
        folder: Path,
        generator: Generator,
        settings: Mapping[str, str],
        *,
        maker: Ours | Apache | None = None,
        cpus: set[int] | None = None,
        signs: bool = False,
        name_server: Server | None = None,
        name: str = "broker-a",
    ) -> None:
        maker = maker or Ours()
        self._generator = generator
        self._signs = signs
        self._own = maker.name_server(folder) if name_server is None else None
        self.name_server = name_server or self._own
        assert self.name_server is not None
        patient = PATIENT if isinstance(maker, Apache) else {}
        given: dict[str, Any] = {"flushDiskType": "ASYNC_FLUSH", **patient, **settings}
        self.broker = maker.broker(
            folder, self.name_server.address, cpus=cpus, wait=False, name=name, **given
        )
        create_topic(self.broker, TOPIC, signs=signs)
        self.broker.pause()

    @contextmanager
    def working(self) -> Iterator[Server]:
        """Let the broker run inside the block."""
        self.broker.resume()
        try:
            yield self.broker
        finally:
            self.broker.pause()

    def load(self, case: Case, seconds: float, *, topic: str = TOPIC, **more: object) -> Run:
        """Run a load once on the broker, which must be running.

        Raises:
            RuntimeError: a request failed.
        """
        return load(self._generator, self.broker, case, seconds, topic=topic, **more)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the side's servers."""
        stop_paused(self.broker, *([] if self._own is None else [self._own]))


def load(
    generator: Generator, broker: Server, case: Case, seconds: float, *, topic: str = TOPIC, **more: object
) -> Run:
    """Run a load once.

    Raises:
        RuntimeError: a request failed.
    """
    options: dict[str, object] = {
        "port": broker.port, "pid": broker.pid, "topic": topic, "queues": QUEUES, "rate": case.rate,
        "connections": case.connections, "window": case.window, "body": case.body, "warmup": 0.2,
        "duration": seconds,
    }  # fmt: skip
    run = generator.run(case.mode, **(options | more))
    if run["errors"] or run["mismatched"]:
        raise RuntimeError(f"{case.title}: {run['errors']}, {run['mismatched']} without an answer to match")
    return run


def in_turn(rounds: int, takes: Mapping[str, Callable[[], Run]]) -> dict[str, list[Run]]:
    """Run each side once per round, in an order that changes from round to round.

    A round in which a broker got no CPU time is left out.
    """
    runs: dict[str, list[Run]] = {name: [] for name in takes}
    for turn in range(rounds):
        found = {name: takes[name]() for name in list(takes)[:: 1 if turn % 2 else -1]}
        if all(run["ops_per_second"] and run["server_cpu_us"] for run in found.values()):
            for name, run in found.items():
                runs[name].append(run)
    return runs


def compared(runs: Mapping[str, Iterable[Run]], key: str, of: str, to: str, shape: str) -> Found:
    """The ratio of one figure between two sides; keys such as ``p99`` are latencies in microseconds."""
    first, second = (
        [float(run["latency_us"][key] if key.startswith("p") else run[key]) for run in runs[side]]
        for side in (of, to)
    )
    return ratio(first, second, shape)


def signed(code: int, fields: Mapping[str, str], body: bytes = b"", user: Credentials = keys.ROOT) -> Command:
    """A request signed with a user's keys."""
    command = Command(code, dict(fields), body, keys.OPAQUE)
    Signer(user).sign(command, user)
    return command


def ask(client: Client, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
    """Send a request signed with the root user's keys, and require success."""
    client.request(code, signed(code, fields, body).ext, body)


def fields_of(topic: str) -> dict[str, str]:
    """The header of a request that creates a topic with 8 queues."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "perm": "6",
        "writeQueueNums": str(QUEUES), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


def create_topic(broker: Server, topic: str, *, signs: bool = False) -> None:
    """Create a topic, with retries until the broker accepts it.

    Raises:
        OSError, RequestError: the broker does not accept it in time, or has ended.
    """
    fields = fields_of(topic)
    if signs:
        fields = signed(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).ext
    deadline = time.monotonic() + STARTED_WITHIN_S
    while True:
        try:
            with Client(broker.port) as client:
                client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            return
        except (OSError, RequestError):
            if time.monotonic() > deadline or broker.process.poll() is not None:
                print(broker.tail())
                raise
            time.sleep(0.1)


def make_topics(generator: Generator, broker: Server, count: int) -> None:
    """Create topics with 8 queues and a message in the first one; their names are those of
    ``many_topics``.
    """
    many_topics.create_some(broker, 0, count)
    many_topics.first_messages(generator, broker, count)


def make_groups(broker: Server, count: int) -> None:
    """Create consumer groups."""
    with Client(broker.port, timeout_s=60) as client:
        for number in range(count):
            client.create_group(GROUP.format(number))


def commit(broker: Server, pairs: Iterable[tuple[str, str]]) -> None:
    """Commit offset 0 in all queues, for each pair of a group and a topic."""
    frames = bytearray()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as to:
        for group, topic in pairs:
            for queue in range(QUEUES):
                fields = {
                    "consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": "0",
                }  # fmt: skip
                frames += encode_frame(Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields, flag=FLAG_ONEWAY))
            if len(frames) >= CHUNK_BYTES:
                to.sendall(frames)
                frames.clear()
        frames += encode_frame(Command(GET_BROKER_RUNTIME_INFO, opaque=1))
        to.sendall(frames)
        # The answer to this request arrives after everything sent before is handled.
        if not to.recv(1):
            raise ConnectionError("the broker closed the connection")


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run ``work`` in a thread, which ends soon after its event is set; its error is raised here."""
    done = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(done)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="beside")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


def give_way(thread: int = 0) -> None:
    """Let a thread (0: this one) run only while no other wants its processor: the load generator goes first.

    A niceness would not do: a nice thread keeps the processor until its slice ends, some milliseconds, and
    the generator's wait for it would be in the latencies.
    """
    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far, with a precision of a microsecond."""
    # The id of a process's clock, as computed by clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)
