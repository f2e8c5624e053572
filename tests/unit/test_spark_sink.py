"""Rows become messages with lasting ids, and each is sent once whatever fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from orbitmq.errors import BrokerError
from orbitmq.message.batch import iter_batch
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.system import SystemFiles
from orbitmq.spark import send
from orbitmq.spark.brokers import Brokers, QueueAddresses
from orbitmq.spark.errors import OptionError, SchemaError, SinkStateError, UnreachableError
from orbitmq.spark.messages import SPARK_ID, Row, TaskId, check_columns, messages, unique_key
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.send import Begun, TaskSender
from orbitmq.spark.sink_state import SinkState
from orbitmq.wire.bodies import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import GetMaxOffsetResponse
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from orbitmq.wire.headers.send import SendBatchMessageRequest, SendMessageResponse

TASK = TaskId("query", 7, 2)
QUEUES = [MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)]
NOTHING = Begun(Offsets(dict.fromkeys(QUEUES, 0)), again=False)


class ScriptedBrokers(Brokers):
    """Stores what it is sent; ``failures`` are used up by the sends, one each."""

    def __init__(self) -> None:
        super().__init__(["n:1"], 100)
        self.stored: dict[str, list[tuple[bytes, bytes]]] = {"broker-a:1": [], "broker-b:1": []}
        self.failures: list[str] = []
        self.codes: list[int] = []
        self.behind = [0]
        self.routes_away = 0
        self.slaves: set[str] = set()
        self.largest = 0

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        if self.routes_away:
            self.routes_away -= 1
            raise UnreachableError("name server away")
        table = {queue: f"{queue.broker_name}:1" for queue in QUEUES}
        masters = frozenset(set(table.values()) - self.slaves)
        return QueueAddresses(table, {q: a for q, a in table.items() if a in masters}, masters)

    def ask(self, address: str, commands: Sequence[Command], **_: Any) -> list[Command]:
        return [self._answer(address, command) for command in commands]

    def _answer(self, address: str, command: Command) -> Command:
        log = self.stored[address]
        if command.code == RequestCode.GET_MAX_OFFSET:
            return GetMaxOffsetResponse(offset=len(log)).reply_to(command)
        if command.code == RequestCode.PULL_MESSAGE:
            low = PullMessageRequest.from_ext(command.ext).queue_offset
            body = b"".join(
                encode_record(Record("t", body, properties, queue_offset=low + i))
                for i, (body, properties) in enumerate(log[low : low + 32])
            )
            header = PullMessageResponse(
                suggest_which_broker_id=0, next_begin_offset=low, min_offset=0, max_offset=len(log)
            )
            return header.reply_to(command, body=body)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            behind = self.behind.pop(0) if len(self.behind) > 1 else self.behind[0]
            return command.reply(body=KVTable({"dispatchBehindBytes": str(behind)}).encode())
        if command.code == RequestCode.GET_MIN_OFFSET:
            return GetMaxOffsetResponse(offset=0).reply_to(command)
        assert SendBatchMessageRequest.from_ext(command.ext).batch
        if self.codes:
            return command.reply(self.codes.pop(0), "scripted")
        self.largest = max(self.largest, len(command.body))
        if any(len(item.body) > 5000 for item in iter_batch(command.body)):
            return command.reply(ResponseCode.MESSAGE_ILLEGAL, "limit maxMessageSize 5000 bytes")
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "busy":
            return command.reply(ResponseCode.SYSTEM_BUSY, "full")
        if failure == "refuse":
            return command.reply(ResponseCode.INVALID_PARAMETER, "read only")
        if failure != "lose request":
            log += [(bytes(item.body), bytes(item.properties)) for item in iter_batch(command.body)]
        if failure.startswith("lose"):
            raise UnreachableError(f"{address}: cut")
        return SendMessageResponse(msg_id="", queue_id=0, queue_offset=0).reply_to(command)

    def bodies(self) -> list[int]:
        return sorted(int(body) for log in self.stored.values() for body, _ in log)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    made = ScriptedBrokers()
    monkeypatch.setattr(send, "Brokers", lambda *_: made)
    return made


def sender(begun: Begun = NOTHING, *, retry_timeout_ms: int = 10_000) -> TaskSender:
    options = WriteOptions(topic="t", batch_bytes=2100, pipeline=2, retry_timeout_ms=retry_timeout_ms)
    return TaskSender(options, TASK, lambda topic, _: begun)


def rows(count: int, order: Any = None) -> list[Row]:
    numbers = list(range(count)) if order is None else order
    batch = pa.record_batch({"body": [str(n) for n in numbers]})
    return list(messages(batch, TASK, 0, "t"))


def cut_short(brokers: ScriptedBrokers) -> int:
    """A first attempt that ends after some of its 95 rows; how many."""
    brokers.failures = ["", "lose answer"] + ["lose request"] * 1000
    with pytest.raises(UnreachableError):
        sender(retry_timeout_ms=100).add_all(rows(95))
    brokers.failures = []
    stored = len(brokers.bodies())
    assert 0 < stored < 95
    return stored


@pytest.mark.parametrize(
    "failures",
    [
        [],
        ["busy"],
        ["lose request"],
        ["lose answer"],
        ["", "lose answer", "busy", "lose request", "lose answer"],
    ],
)
def test_every_row_once_whatever_is_lost(brokers: ScriptedBrokers, failures: list[str]) -> None:
    brokers.failures = list(failures)
    task = sender()
    task.add_all(rows(95))
    task.flush()
    assert brokers.bodies() == list(range(95))


def test_a_second_attempt_sends_what_is_missing(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["", "lose answer"] + ["lose request"] * 1000
    first = sender(retry_timeout_ms=200)
    with pytest.raises(UnreachableError, match=r"messages were not taken: .*cut"):
        first.add_all(rows(95))
    assert 0 < len(brokers.bodies()) < 95
    brokers.failures = []
    second = sender(Begun(NOTHING.ends, again=True))
    second.add_all(rows(95))
    second.flush()
    assert brokers.bodies() == list(range(95))
    assert second.sent < 95


@given(st.permutations(range(95)))
@settings(max_examples=20, deadline=None)
def test_a_replay_in_another_order_sends_what_is_missing(order: list[int]) -> None:
    brokers = ScriptedBrokers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send, "Brokers", lambda *_: brokers)
        stored = cut_short(brokers)
        second = sender(Begun(NOTHING.ends, again=True))
        second.add_all(rows(95, order))
        second.flush()
    assert brokers.bodies() == list(range(95))
    assert second.sent == 95 - stored


def test_equal_rows_are_each_sent_once(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["", "lose request"] + ["lose request"] * 1000
    same = list(messages(pa.record_batch({"body": ["7"] * 60}), TASK, 0, "t"))
    with pytest.raises(UnreachableError):
        sender(retry_timeout_ms=100).add_all(same)
    brokers.failures = []
    second = sender(Begun(NOTHING.ends, again=True))
    second.add_all(same)
    second.flush()
    assert brokers.bodies() == [7] * 60


def test_stored_messages_that_fit_no_row_are_told_with_counts(brokers: ScriptedBrokers) -> None:
    stored = cut_short(brokers)
    second = sender(Begun(NOTHING.ends, again=True))
    second.add_all(rows(40, list(range(1000, 1040))))  # a shuffle put other rows into this partition
    words = rf"stored {stored} messages in 't' earlier; {stored} of them fit no row"
    with pytest.raises(SinkStateError, match=words):
        second.flush()
    assert len(brokers.bodies()) == stored, "nothing was sent before that was known"
    untouched = sender(Begun(NOTHING.ends, again=True))
    untouched.resume(["t"])  # this time the partition has no row at all
    with pytest.raises(SinkStateError, match="fit no row"):
        untouched.flush()


def test_a_replay_waits_until_what_is_stored_can_be_seen(brokers: ScriptedBrokers) -> None:
    cut_short(brokers)
    brokers.behind = [300, 300, 0]
    brokers.routes_away = 2
    second = sender(Begun(NOTHING.ends, again=True))
    second.add_all(rows(95))
    second.flush()
    assert brokers.bodies() == list(range(95))
    brokers.slaves = {"broker-a:1"}
    third = sender(Begun(NOTHING.ends, again=True), retry_timeout_ms=50)
    with pytest.raises(
        UnreachableError, match="what task query/7/2 stored in 't' cannot be read: the master of"
    ):
        third.add_all(rows(95))


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500, 215])
def test_what_a_producer_retries_is_retried(brokers: ScriptedBrokers, code: int) -> None:
    brokers.codes = [code, code]
    task = sender()
    task.add_all(rows(95))
    task.flush()
    assert brokers.bodies() == list(range(95))


def test_a_batch_is_filled_by_its_real_size(brokers: ScriptedBrokers) -> None:
    task = sender()
    made = pa.record_batch({"body": ["1" * 10] * 200, "keys": ["k" * 300] * 200})
    task.add_all(messages(made, TASK, 0, "t"))
    task.flush()
    assert 1000 < brokers.largest <= 2100
    assert len(brokers.bodies()) == 200


def test_a_message_that_is_too_large_is_named(brokers: ScriptedBrokers) -> None:
    made = pa.record_batch({"body": ["1", "2", "3" * 6000, "4"]})
    task = TaskSender(WriteOptions(topic="t", batch_bytes=100_000), TASK, lambda topic, _: NOTHING)
    task.add_all(messages(made, TASK, 0, "t"))
    with pytest.raises(BrokerError, match=r"row 2 of query/7/2, a body of 6000 bytes: limit maxMessageSize"):
        task.flush()


def test_a_refusal_is_an_error(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["refuse"]
    task = sender()
    task.add_all(rows(3))
    with pytest.raises(BrokerError, match="read only"):
        task.flush()


@given(st.integers(0, 2**32 - 1))
def test_a_key_gives_its_row_back(row: int) -> None:
    key = unique_key(TASK.prefix, row)
    assert len(key) == 32
    assert TASK.row_of(key, TASK.prefix) == row
    other = TaskId("query", 7, 3)
    assert other.row_of(key, other.prefix) is None


def test_a_row_becomes_a_message() -> None:
    batch = pa.record_batch(
        {
            "topic": ["a", None],
            "body": [b"1", b"2"],
            "tags": ["red", None],
            "keys": [["k1", "k2"], None],
            "properties": pa.array([[("x", "y"), ("empty", "")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    (_, digest, first), (_, _, second) = messages(batch, TASK, 5, "t")
    assert (first.topic, first.body, first.tags, first.keys) == ("a", b"1", "red", ["k1", "k2"])
    assert first.properties["x"] == "y"
    assert "empty" not in first.properties
    assert first.properties[SPARK_ID] == f"query/7/2/5/{digest}"
    assert first.unique_key == unique_key(TASK.prefix, 5)
    assert (second.topic, second.tags, second.keys) == ("t", None, [])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [None]}, "row 0 of query/7/2 has no body"),
        ({"body": ["x"], "properties": [{"DELAY": "3"}]}, "delayed messages cannot be written"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        list(messages(pa.record_batch(columns), TASK, 0, "t"))


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"id": LongType(), "body": StringType()}, "t", "column 'id' cannot be written; known: topic, body"),
        ({"body": LongType()}, "t", "body has type bigint, must be binary or string"),
        ({"tags": StringType()}, "t", "column body is missing"),
        ({"body": StringType()}, None, "name the topic"),
    ],
)
def test_columns_that_are_not_messages_are_refused(
    columns: dict[str, Any], topic: str | None, words: str
) -> None:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    with pytest.raises(SchemaError, match=words):
        check_columns(schema, topic)


def test_state_is_kept_once(tmp_path: Path) -> None:
    state = SinkState(SystemFiles(), f"file://{tmp_path}")
    ends, later = Offsets({QUEUES[0]: 5}), Offsets({QUEUES[0]: 9})
    assert state.intend(TASK, "%RETRY%t", ends) == Begun(ends, again=False)
    assert state.intend(TASK, "%RETRY%t", later) == Begun(ends, again=True)
    assert not state.is_committed("query", 7)
    assert state.topics_of(TASK) == ["%RETRY%t"]
    assert state.topics_of(TaskId("query", 7, 1)) == []
    state.check_partitions("query", 7, {0, 1, 2})
    with pytest.raises(
        SinkStateError, match=r"sent from 1 partitions and replayed from 2: .*partitions \[2\]"
    ):
        state.check_partitions("query", 7, {0, 1})
    assert state.commit("query", 7, {"rows": 1})
    assert not state.commit("query", 7, {"rows": 2})
    assert state.is_committed("query", 7)
    state.commit("query", 107, {})
    assert not state.is_committed("query", 7), "too old to be replayed"
    damaged = next((tmp_path / "query").rglob("commit.json")).parent / "intent-2-t.json"
    damaged.write_text("{")
    with pytest.raises(SinkStateError, match="is damaged"):
        state.intend(TaskId("query", 107, 2), "t", ends)
    with pytest.raises(SinkStateError, match="cannot be a folder name"):
        state.is_committed("../up", 1)
    with pytest.raises(OptionError, match="must be a folder"):
        SinkState(SystemFiles(), "s3://bucket/x")
