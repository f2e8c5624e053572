"""Streams read while brokers and the name server go away, queues grow, come and expire, and drivers die.

No Spark, no sockets, no real time: planner and reader as Spark's processes run them, one after the other.
Each offset must be in exactly one committed batch, as a row or named as lost by a warning, and a batch that
is played again must give the same rows.
"""

from __future__ import annotations

import json
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.seeds import seeds

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime import worker
from orbitmq.spark.cluster import connections
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import Reading, read_options
from orbitmq.spark.read.reading import read_task
from orbitmq.spark.read.source import BatchReader
from orbitmq.spark.read.stream import Stream
from orbitmq.spark.schema import message_schema
from orbitmq.transport.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from orbitmq.transport.identity import NOBODY, Identity
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import GetMaxOffsetResponse, GetMinOffsetResponse
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

TOPIC, OTHER_TOPIC = "t", "u"
NAME_SERVER = "ns:1"
SCHEMA = message_schema(["broker", "queue_id", "queue_offset", "body"])
SKIPPED = re.compile(r"offsets (\d+) to (\d+) of \w+/([\w-]+)/(\d+) are not there any more, skipped")
TRIGGERS = 8
READ_AND_WRITE = 6


@dataclass
class Queue:
    """Messages from ``first`` up to ``last``."""

    first: int = 0
    last: int = 0


@dataclass
class Machines:
    """The cluster and the clock. Chance decides what fails, and for how long."""

    rng: random.Random
    now: float = 1000.0
    queues: dict[MessageQueue, Queue] = field(default_factory=dict)
    away_until: dict[str, float] = field(default_factory=dict)
    # A broker whose master is away and whose slave has not copied the last messages yet.
    behind: dict[str, tuple[int, float]] = field(default_factory=dict)
    # Brokers that the name servers do not show while they are away.
    taken_out: frozenset[str] = frozenset()
    calm: bool = False

    def is_away(self, address: str) -> bool:
        return self.now < self.away_until.get(address, 0)

    def hidden(self, broker: str) -> int:
        """How many of the last messages its slave lacks."""
        count, until = self.behind.get(broker, (0, 0.0))
        return count if self.now < until else 0

    def route(self, topic: str) -> TopicRouteData:
        """Without brokers when the name servers do not know the topic."""
        counts = Counter(queue.broker_name for queue in self.queues if queue.topic == topic)
        names = sorted(n for n in counts if not (n in self.taken_out and self.is_away(f"{n}:1")))
        return TopicRouteData(
            [QueueData(name, counts[name], counts[name], READ_AND_WRITE) for name in names],
            [BrokerData("c", name, {1 if self.hidden(name) else 0: f"{name}:1"}) for name in names],
        )

    def cluster(self) -> ClusterInfo:
        """The brokers that the name servers show."""
        names = {queue.broker_name for queue in self.queues}
        shown = [name for name in sorted(names) if not (name in self.taken_out and self.is_away(f"{name}:1"))]
        return ClusterInfo(
            {name: BrokerData("c", name, {0: f"{name}:1"}) for name in shown}, {"c": set(shown)}
        )

    def answer(self, address: str, command: Command) -> Command:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = self.route(command.ext["topic"])
            if not route.broker_datas:
                return command.reply(ResponseCode.TOPIC_NOT_EXIST, "scripted")
            return command.reply(body=route.encode())
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return command.reply(body=self.cluster().encode())
        broker = address.partition(":")[0]
        if command.code == RequestCode.GET_BROKER_CONFIG:
            role = b"SLAVE" if self.hidden(broker) else b"ASYNC_MASTER"
            return command.reply(body=b"brokerRole=" + role + b"\n")
        if not self.calm and self.rng.random() < 0.03:
            return command.reply(ResponseCode.SYSTEM_BUSY, "scripted")
        asked = MessageQueue(command.ext.get("topic", TOPIC), broker, int(command.ext.get("queueId", 0)))
        queue = self.queues.get(asked, Queue())
        last = max(queue.first, queue.last - self.hidden(broker))
        if command.code == RequestCode.GET_MAX_OFFSET:
            return GetMaxOffsetResponse(offset=last).reply_to(command)
        if command.code == RequestCode.GET_MIN_OFFSET:
            return GetMinOffsetResponse(offset=queue.first).reply_to(command)
        assert command.code == RequestCode.PULL_MESSAGE, command
        return self.pulled(PullMessageRequest.from_ext(command.ext), command, broker, queue.first, last)

    def pulled(
        self, request: PullMessageRequest, command: Command, broker: str, first: int, last: int
    ) -> Command:
        low = request.queue_offset
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=low, min_offset=first, max_offset=last
        )
        if low < first:
            header.next_begin_offset = first
            return header.reply_to(command, code=ResponseCode.PULL_OFFSET_MOVED)
        if low >= last:
            return header.reply_to(command, code=ResponseCode.PULL_NOT_FOUND)
        high = min(last, low + min(request.max_msg_nums, self.rng.choice((1, 3, 8, 32))))
        header.next_begin_offset = high
        queue = MessageQueue(request.topic, broker, request.queue_id)
        body = b"".join(record(queue, offset) for offset in range(low, high))
        return header.reply_to(command, code=ResponseCode.SUCCESS, body=body)


def record(queue: MessageQueue, offset: int) -> bytes:
    body = f"{queue.broker_name}/{queue.queue_id}/{offset}".encode()
    return encode_record(Record(queue.topic, body, b"", queue.queue_id, 0, offset))


class SimulatedConnection:
    """As much of a BlockingConnection as Spark's processes use."""

    machines: Machines

    def __init__(
        self, address: str, timeout_ms: int = 3000, *, identity: Identity = NOBODY, allocate: object = None
    ) -> None:
        self.address, self.identity, self.closed = address, identity, False
        self._waiting: dict[int, Command] = {}
        self._posted = 0
        if self.machines.is_away(address):
            self.machines.now += 0.01
            raise ConnectError(f"cannot connect to {address}: refused", address)

    @property
    def usable(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True

    def request_many(self, commands: Sequence[Command], timeout_ms: int) -> list[Command]:
        self._fail(timeout_ms)
        return [self.machines.answer(self.address, command) for command in commands]

    def submit(self, command: Command) -> int:
        self._posted += 1
        self._waiting[self._posted] = command
        return self._posted

    def poll(self, timeout_s: float = 0.0, bodies: dict[int, memoryview] | None = None) -> dict[int, Command]:
        """Some of the answers, in any order; a broker that is away may also say nothing at all."""
        machines, rng = self.machines, self.machines.rng
        if machines.is_away(self.address) and rng.random() < 0.3:
            machines.now += timeout_s
            return {}
        self._fail(0)
        if not timeout_s:
            return {}
        numbers = rng.sample(sorted(self._waiting), rng.randint(1, len(self._waiting)))
        answers = {number: machines.answer(self.address, self._waiting.pop(number)) for number in numbers}
        if bodies is not None and rng.random() < 0.5:
            bodies |= {number: memoryview(answer.body) for number, answer in answers.items()}
            answers = {number: replace(answer, body=b"") for number, answer in answers.items()}
        return answers

    def _fail(self, timeout_ms: int) -> None:
        machines = self.machines
        machines.now += 0.0005
        if machines.is_away(self.address) or (not machines.calm and machines.rng.random() < 0.02):
            self.closed = True
            if machines.rng.random() < 0.3:
                machines.now += timeout_ms / 1000
                raise RequestTimeoutError("silent", self.address)
            raise ConnectionLostError("cut", self.address)


@pytest.fixture
def machines_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Machines]]:
    def make(seed: int) -> Machines:
        made = Machines(random.Random(seed))
        clock = SimpleNamespace(monotonic=lambda: made.now, now_ms=lambda: int(made.now * 1000))

        def pause(seconds: float) -> None:
            made.now += seconds

        monkeypatch.setattr(worker, "SystemClock", lambda: clock)
        monkeypatch.setattr(worker, "time", SimpleNamespace(sleep=pause))
        worker.this_worker.cache_clear()
        SimulatedConnection.machines = made
        connections.close_connections()
        return made

    monkeypatch.setattr(connections, "BlockingConnection", SimulatedConnection)
    yield make
    connections.close_connections()
    worker.this_worker.cache_clear()


Place = tuple[str, int, int]


class Query:
    """One streaming query with its checkpoint: the ends of the batches, as text."""

    def __init__(self, machines: Machines, caplog: pytest.LogCaptureFixture) -> None:
        self.machines, self.rng = machines, machines.rng
        self.caplog = caplog
        self.ends: list[str] = []
        self.rows: Counter[Place] = Counter()
        self.stream = self.driver()

    def driver(self) -> Stream:
        """A new process; nothing but the checkpoint is the same, not even the number of its cores."""
        options = {
            "topic": ",".join(sorted({queue.topic for queue in self.machines.queues})),
            "nameServers": NAME_SERVER, "startingOffsets": "earliest", "failOnDataLoss": "false",
            "requestTimeout": "2s", "offsetTimeout": "10m", "parallelism": str(self.rng.randint(1, 4)),
            "pullDepth": str(self.rng.choice((1, 2, 16))),
            "batchBytes": str(self.rng.choice((1, 500, 4 << 20))),
        }  # fmt: skip
        if self.rng.random() < 0.5:
            self.limit: int | None = self.rng.randint(1, 80)
        else:
            self.limit = None
        self.options = read_options(options, Reading.STREAM)
        return Stream(self.options)

    def start(self) -> dict[str, Any]:
        return dict(json.loads(self.ends[-1])) if self.ends else self.stream.initial()

    def trigger(self) -> bool:
        """One batch; whether there was one."""
        start = self.start()
        try:
            end = self.stream.latest(start, max_rows=self.limit)
        except TopicNotFoundError:
            assert not self.ends, "only a query that begins may not know its topics"
            self.machines.now += 10
            self.stream = self.driver()  # the query is started again
            return False
        if end == start:
            self.machines.now += 0.1
            return False
        text = json.dumps(end)
        rows = self.run(start, json.loads(text))
        while not self.machines.calm and self.rng.random() < 0.3:
            # Killed before the batch was noted: another driver plays it again.
            self.stream = self.driver()
            if self.rng.random() < 0.5:
                self.disturb()
            again = self.run(self.start(), json.loads(text))
            assert again == rows, "a batch is the same when it is played again, but for what expired"
            rows = again
        self.rows += rows
        self.ends.append(text)
        return True

    def run(self, start: dict[str, Any], end: dict[str, Any]) -> Counter[Place]:
        """Every place that the batch tells of, as a message or as lost."""
        told: Counter[Place] = Counter()
        self.caplog.clear()
        for partition in self.stream.tasks(start, end):
            for batch in read_task(pickle.loads(pickle.dumps(partition)), self.options, SCHEMA):
                for row in batch.to_pylist():
                    place = row["broker"], row["queue_id"], row["queue_offset"]
                    assert row["body"] == "/".join(map(str, place)).encode()
                    told[place] += 1
        for line in self.caplog.messages:
            if (lost := SKIPPED.match(line)) is not None:
                for offset in range(int(lost[1]), int(lost[2]) + 1):
                    told[lost[3], int(lost[4]), offset] += 1
        return told

    def disturb(self) -> None:
        """Something happens in the cluster."""
        machines, rng = self.machines, self.rng
        queue = rng.choice(sorted(machines.queues))
        state = machines.queues[queue]
        match rng.randrange(7):
            case 0 | 1:
                for grown in machines.queues.values():
                    grown.last += rng.choice((0, 0, 1, 7, 60))
            case 2:
                state.first = rng.randint(state.first, state.last)
            case 3:
                machines.away_until[f"{queue.broker_name}:1"] = machines.now + rng.choice((0.05, 3.0, 90.0))
            case 4:
                machines.away_until[NAME_SERVER] = machines.now + rng.choice((0.05, 3.0, 30.0))
            case 5:
                machines.behind[queue.broker_name] = (
                    rng.randint(1, 30),
                    machines.now + rng.choice((0.5, 20.0)),
                )
            case _:
                number = sum(other.broker_name == queue.broker_name for other in machines.queues)
                machines.queues[queue._replace(queue_id=number)] = Queue()


@dataclass
class Planned:
    """A batch of 50 messages from each of some brokers, that is about to be read in one task."""

    machines: Machines
    brokers: tuple[str, ...] = ("broker-a", "broker-b")
    reading: Reading = Reading.STREAM
    loss: str = "true"
    topics: tuple[str, ...] = (TOPIC, TOPIC)  # of each broker

    def __post_init__(self) -> None:
        self.machines.calm = True
        for topic, broker in zip(self.topics, self.brokers, strict=False):
            self.machines.queues[MessageQueue(topic, broker, 0)] = Queue(0, 50)
        topics = ",".join(dict.fromkeys(self.topics))
        given = {"topic": topics, "nameServers": NAME_SERVER, "parallelism": "1", "batchBytes": "1"}
        given |= {"failOnDataLoss": self.loss, "startingOffsets": "earliest"}
        self.options = read_options(given, self.reading)
        if self.reading is Reading.STREAM:
            stream = Stream(self.options)
            start = stream.initial()
            (self.task,) = stream.tasks(start, stream.latest(start))
        else:
            (self.task,) = BatchReader(self.options, SCHEMA).partitions()

    def silence(self, seconds: float, *names: str) -> None:
        for name in names:
            self.machines.away_until[f"{name}:1"] = self.machines.now + seconds

    def read(self) -> int:
        return sum(batch.num_rows for batch in read_task(self.task, self.options, SCHEMA))


def test_a_batch_waits_for_a_silent_broker_while_another_one_answers(
    machines_of: Callable[[int], Machines], caplog: pytest.LogCaptureFixture
) -> None:
    machines = machines_of(1)
    batch = Planned(machines)
    began = machines.now
    rows = read_task(batch.task, batch.options, SCHEMA)
    first = next(rows).num_rows
    batch.silence(3600, "broker-b")
    batch.silence(300, "ns")  # the brokers are known
    assert first + sum(more.num_rows for more in rows) == 100
    assert machines.now - began >= 3600
    assert 50 <= len(caplog.records) <= 60, "one warning a minute"
    assert all("a batch waits for broker-b: " in text for text in caplog.messages)


def test_a_batch_waits_for_a_topic_that_went_with_its_broker_while_another_topic_is_there(
    machines_of: Callable[[int], Machines], caplog: pytest.LogCaptureFixture
) -> None:
    machines = machines_of(5)
    batch = Planned(machines, topics=(TOPIC, OTHER_TOPIC))
    began = machines.now
    rows = read_task(batch.task, batch.options, SCHEMA)
    first = next(rows).num_rows
    batch.silence(3600, "broker-b")
    machines.taken_out = frozenset({"broker-b"})
    assert first + sum(more.num_rows for more in rows) == 100
    assert machines.now - began >= 3600
    assert 50 <= len(caplog.records) <= 60, "one warning a minute"
    assert all(text.startswith("a batch waits for broker-b: ") for text in caplog.messages)
    # The known route serves for a while, then the topic itself is missed.
    unknown = f"topic {OTHER_TOPIC!r} is not known to the name servers {NAME_SERVER}"
    assert any(unknown in text for text in caplog.messages)


def test_a_batch_of_nothing_but_a_topic_that_is_gone_fails_after_the_time_out(
    machines_of: Callable[[int], Machines],
) -> None:
    """Another broker answers, but has none of the query's topics."""
    machines = machines_of(6)
    machines.queues[MessageQueue(OTHER_TOPIC, "broker-b", 0)] = Queue(0, 50)
    batch = Planned(machines, brokers=("broker-a",))
    began = machines.now
    batch.silence(3600, "broker-a")
    machines.taken_out = frozenset({"broker-a"})
    # The known route serves for as long, so the lost broker may be what the error names.
    with pytest.raises(
        (TopicNotFoundError, UnreachableError), match=f"topic {TOPIC!r} is not known|broker-a:1"
    ):
        batch.read()
    assert 60 <= machines.now - began <= 120


def test_an_empty_broker_of_that_name_ends_the_wait(
    machines_of: Callable[[int], Machines], caplog: pytest.LogCaptureFixture
) -> None:
    machines = machines_of(4)
    batch = Planned(machines, loss="false")
    batch.silence(600, "broker-b")
    machines.queues[MessageQueue(TOPIC, "broker-b", 0)] = Queue(0, 0)
    assert batch.read() == 50
    lost = [found for line in caplog.messages if (found := SKIPPED.match(line)) is not None]
    assert {found[3] for found in lost} == {"broker-b"}
    assert sum(int(found[2]) - int(found[1]) + 1 for found in lost) == 50


def test_a_short_absence_is_no_warning(
    machines_of: Callable[[int], Machines], caplog: pytest.LogCaptureFixture
) -> None:
    batch = Planned(machines_of(2))
    batch.silence(20, "broker-b")
    assert batch.read() == 100
    assert not caplog.records


@pytest.mark.parametrize(
    ("silent", "chosen"),
    [
        (("broker-a", "broker-b"), {}),
        (("broker-a",), {"brokers": ("broker-a",)}),
        (("broker-b",), {"reading": Reading.BATCH}),
    ],
    ids=["no broker answers", "the only one", "a batch read"],
)
def test_otherwise_a_silent_broker_is_an_error_after_the_time_out(
    machines_of: Callable[[int], Machines], silent: tuple[str, ...], chosen: dict[str, Any]
) -> None:
    machines = machines_of(3)
    batch = Planned(machines, **chosen)
    began = machines.now
    batch.silence(3600, *silent)
    with pytest.raises(UnreachableError, match=rf"{silent[0]}:1: "):
        batch.read()
    assert 60 <= machines.now - began <= 120


@pytest.mark.parametrize("seed", seeds(250))
def test_every_message_is_in_one_batch(
    seed: int, machines_of: Callable[[int], Machines], caplog: pytest.LogCaptureFixture
) -> None:
    machines = machines_of(seed)
    rng = machines.rng
    machines.taken_out = frozenset(rng.choice(((), ("broker-b",), ("broker-a", "broker-b"))))
    topics = {"broker-a": TOPIC, "broker-b": rng.choice((TOPIC, OTHER_TOPIC))}
    for broker in ("broker-a", "broker-b")[: rng.randint(1, 2)]:
        for number in range(rng.randint(1, 3)):
            first = rng.choice((0, 0, 5))
            machines.queues[MessageQueue(topics[broker], broker, number)] = Queue(
                first, first + rng.choice((0, 1, 90))
            )
    query = Query(machines, caplog)
    for _ in range(TRIGGERS):
        query.trigger()
        query.disturb()
    machines.calm = True
    machines.now += 1000
    for _ in range(2000):
        if not query.trigger():
            break
    assert set(query.rows.values()) <= {1}, "no place twice"
    begins: dict[MessageQueue, int] = {}
    for text in reversed(query.ends):
        begins |= Offsets.from_json(json.loads(text)).begins
    for queue, state in machines.queues.items():
        told = sorted(offset for name, n, offset in query.rows if (name, n) == queue[1:])
        assert told == list(range(begins.get(queue, state.last), state.last)), queue
