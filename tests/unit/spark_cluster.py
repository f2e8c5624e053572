"""A cluster whose offsets a test moves, and the stream reader on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.spark import versions

if not versions.HAS_READ_LIMITS:
    pytest.skip("another version of PySpark: 4.2 or later", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import Reading, read_options
from orbitmq.spark.read import positions
from orbitmq.spark.read.stream_reader import StreamReader
from orbitmq.spark.schema import message_schema
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

A0, A1, B0 = (
    MessageQueue("t", broker, n) for broker, n in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))
)

BY_TIME = (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,)
# In every queue, the time of a message is this plus its offset.
FIRST_MS = 1_700_000_000_000


class ScriptedCluster:
    """Queues with a first and a last offset, which a test moves."""

    def __init__(self) -> None:
        self.first: dict[MessageQueue, int] = {A0: 0, A1: 10}
        self.last: dict[MessageQueue, int] = {A0: 100, A1: 60}
        self.error: Exception | None = None
        self.routes: list[Exception | set[str]] = []
        """The first answers of the name servers: an error, or the names of the known brokers."""
        self.away: set[str] = set()
        self.unknown: set[str] = set()
        """Topics that no name server knows."""
        self.slaves: set[str] = set()
        self.others_answer = False
        self.group: dict[MessageQueue, int] = {}
        self.by_time: dict[MessageQueue, int] = {}
        self.body_bytes = 100
        self.pull_failures: list[Command] = []
        """Responses to pulls that come before messages do."""
        self.samples = 0
        self.refusal = ResponseCode.SUCCESS
        self.remark = ""
        self.checked: list[str] = []
        self.heartbeats = 0
        self.committed_offsets: list[tuple[str, str, str]] = []

    def __call__(self, name_servers: Any, timeout_ms: int, **_: Any) -> ScriptedCluster:
        return self

    def readable(self, topics: Any, *, refresh: bool = False) -> dict[MessageQueue, str]:
        found, missing = self.readable_where_possible(topics, refresh=refresh)
        for error in missing.values():
            raise error
        return found

    def readable_where_possible(
        self, topics: Any, *, refresh: bool = False
    ) -> tuple[dict[MessageQueue, str], dict[str, TopicNotFoundError]]:
        if self.error is not None:
            raise self.error
        missing = {name: TopicNotFoundError(name, f"{name} is unknown") for name in self.unknown & {*topics}}
        there = {*topics} - self.unknown
        return {queue: f"{queue.broker_name}:1" for queue in self.last if queue.topic in there}, missing

    def offsets_where_possible(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> tuple[dict[MessageQueue, int], dict[str, UnreachableError]]:
        there = {queue: at for queue, at in queues.items() if at not in self.away}
        away = self.away & set(queues.values())
        return self.offsets(there, request), {at: UnreachableError(f"{at} away") for at in away}

    def topics_like(self, pattern: str) -> tuple[str, ...]:
        return tuple(name for name in ("t",) if re.fullmatch(pattern, name))

    def committed(self, group: str, queues: dict[MessageQueue, str]) -> dict[MessageQueue, int]:
        assert group == "g"
        return self.group

    def ask(self, address: str, commands: Sequence[Command]) -> list[Command]:
        """The response to each request; pulls get as many messages of ``body_bytes`` as they request."""
        if any(command.code == RequestCode.UPDATE_CONSUMER_OFFSET for command in commands):
            self.committed_offsets += [
                (c.ext["consumerGroup"], c.ext["queueId"], c.ext["commitOffset"]) for c in commands
            ]
        elif commands[0].code == RequestCode.HEART_BEAT:
            self.heartbeats += 1
        if commands[0].code == RequestCode.CHECK_CLIENT_CONFIG:
            self.checked.append(address)
        if commands[0].code != RequestCode.PULL_MESSAGE:
            return [Command(self.refusal, remark=self.remark) for _ in commands]
        self.samples += len(commands)
        assert all(command.code == RequestCode.PULL_MESSAGE for command in commands)
        return [self.pulled(int(command.ext["queueOffset"])) for command in commands]

    def pulled(self, offset: int) -> Command:
        if self.pull_failures:
            return self.pull_failures.pop(0)
        records = (
            Record("t", b"x" * self.body_bytes, queue_offset=at, store_timestamp=FIRST_MS + at)
            for at in (offset, offset + 1)
        )
        return Command(ResponseCode.SUCCESS, body=b"".join(map(encode_record, records)))

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        if topic in self.unknown:
            raise TopicNotFoundError(topic, f"{topic} is unknown")
        told = self.routes.pop(0) if self.routes else {"broker-a", "broker-b"}
        if isinstance(told, Exception):
            raise told
        there = {
            queue: f"{queue.broker_name}:1"
            for queue in self.last
            if queue.topic == topic and queue.broker_name in told
        }
        return QueueAddresses(there, there, frozenset(there.values()))

    def routes_of(self, queues: Any) -> dict[str, QueueAddresses]:
        return {}

    def another_answers(self, topics: Any, broker_name: str | None) -> bool:
        return self.others_answer

    def is_master(self, topic: str, address: str) -> bool:
        return address not in self.slaves

    def offsets(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> dict[MessageQueue, int]:
        found = {}
        for queue, address in queues.items():
            if address in self.away:
                raise UnreachableError(f"{address} away")
            code = request(queue).code
            table = self.first if code == RequestCode.GET_MIN_OFFSET else self.last
            if code in BY_TIME:
                wanted = int(request(queue).ext["timestamp"]) - FIRST_MS
                right = min(max(wanted, self.first[queue]), self.last[queue])
                found[queue] = self.by_time.get(queue, right)
            else:
                found[queue] = table[queue]
        return found


def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    """A cluster that planners in this process find."""
    made = ScriptedCluster()
    monkeypatch.setattr(positions, "Brokers", made)
    return made


def reader(**options: str) -> StreamReader:
    what = {} if {"topic", "topicPattern", "assign"} & options.keys() else {"topic": "t"}
    start = {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}
    given = {**what, **start, "offsetTimeout": "50ms", **options}
    return StreamReader(read_options(given, Reading.STREAM), message_schema())


def begin(stream: StreamReader) -> dict[str, Any]:
    """The start offsets of a query, as Spark requests them for its first batch; errors appear by then."""
    start: dict[str, Any] = stream.initialOffset()
    stream.latestOffset(start, ReadAllAvailable())
    return start


def places(value: dict[str, Any]) -> dict[MessageQueue, int]:
    return dict(Offsets.from_json(value))


def rows_of(planned: Any) -> dict[MessageQueue, tuple[int, int]]:
    ranges = [r for task in planned for r in task.ranges]
    return {
        queue: (
            min(r.low for r in ranges if r.queue == queue),
            max(r.high for r in ranges if r.queue == queue),
        )
        for queue in {r.queue for r in ranges}
    }


def at(**_: int) -> dict[str, Any]:
    return Offsets({A0: 0, A1: 10}).to_json()
