"""Rows become messages with lasting ids, and each is sent once whatever fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from orbitmq.errors import BrokerError
from orbitmq.message.batch import iter_batch
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.system import SystemFiles
from orbitmq.spark import send
from orbitmq.spark.brokers import Brokers, TopicRoute
from orbitmq.spark.errors import OptionError, SchemaError, SinkStateError, UnreachableError
from orbitmq.spark.messages import SPARK_ID, TaskId, check_columns, messages, unique_key
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.send import Begun, TaskSender
from orbitmq.spark.sink_state import SinkState
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

    def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        table = {queue: f"{queue.broker_name}:1" for queue in QUEUES}
        return TopicRoute(table, table)

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
        assert SendBatchMessageRequest.from_ext(command.ext).batch
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "busy":
            return command.reply(ResponseCode.SYSTEM_BUSY, "full")
        if failure == "refuse":
            return command.reply(ResponseCode.NO_PERMISSION, "read only")
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


def rows(count: int) -> list[Message]:
    batch = pa.record_batch({"body": [str(n) for n in range(count)]})
    return list(messages(batch, TASK, 0, "t"))


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
    first, second = messages(batch, TASK, 5, "t")
    assert (first.topic, first.body, first.tags, first.keys) == ("a", b"1", "red", ["k1", "k2"])
    assert first.properties["x"] == "y"
    assert "empty" not in first.properties
    assert first.properties[SPARK_ID] == "query/7/2/5"
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
