"""Rows become messages with lasting ids, and each is sent once whatever fails."""

from __future__ import annotations

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)
from tests.unit.sink_brokers import QUEUES, ScriptedBrokers, scripted

from orbitmq.errors import BrokerError
from orbitmq.message.properties import decode_properties
from orbitmq.message.tags import java_hash
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import OptionError, SchemaError, SinkStateError, UnreachableError
from orbitmq.spark.options import AT_LEAST_ONCE, WriteOptions
from orbitmq.spark.write import fencing
from orbitmq.spark.write.commit import BatchCommit, Written, written_by
from orbitmq.spark.write.in_flight import InFlight, SendRequest
from orbitmq.spark.write.metrics import SendMetrics
from orbitmq.spark.write.rows import check_columns
from orbitmq.spark.write.send import Begin, TaskSender
from orbitmq.spark.write.sink import BatchWriter, StreamWriter
from orbitmq.spark.write.sink_state import FolderState
from orbitmq.spark.write.task import SPARK_ID, TaskId, new_run, unique_key

START = Offsets(dict.fromkeys(QUEUES, 0))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    return scripted(monkeypatch)


def options(**values: Any) -> WriteOptions:
    return WriteOptions(
        **{"topic": "t", "batch_bytes": 2100, "pipeline": 2, "retry_timeout_ms": 10_000, **values}
    )


def sender(
    *, attempt: int = 1, again: bool = False, columns: Sequence[str] = ("body",), **values: Any
) -> TaskSender:
    task = TaskId("query", 7, 2, "ab", attempt)
    return TaskSender(
        options(**values), task, frozenset(columns), lambda _topic, _ends: START if again else None
    )


def rows(numbers: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch({"body": [str(n) for n in numbers]})


def cut_short(brokers: ScriptedBrokers) -> int:
    """Run a first attempt that ends after some of its 95 rows; returns their number."""
    brokers.failures = ["", "lose answer"] + ["lose request"] * 1000
    first = sender(retry_timeout_ms=100)
    with pytest.raises(UnreachableError, match="messages were not taken"):
        written_by(first, [rows(range(95))])
    brokers.failures = []
    stored = len(brokers.bodies())
    assert 0 < stored < 95
    return stored


@pytest.mark.parametrize(
    "failures",
    [
        [],
        ["busy"],
        ["late"],
        ["lose request"],
        ["lose answer"],
        ["", "lose answer", "busy", "lose request", "lose answer"],
    ],
)
def test_every_row_once_whatever_is_lost(brokers: ScriptedBrokers, failures: list[str]) -> None:
    brokers.failures = list(failures)
    task = sender()
    task.add(rows(range(40)))
    task.add(rows(range(40, 95)))
    task.finish()
    assert brokers.bodies() == list(range(95))
    assert task.metrics.rows == task.rows == 95
    assert task.metrics.late_flushes == failures.count("late")
    assert bool(task.metrics.retries) == bool({"busy", "lose request"} & set(failures))


def test_the_memory_of_a_batch_is_used_again_once_it_is_taken(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lain: list[object] = []
    real = InFlight.send

    def noted(self: InFlight, request: SendRequest) -> None:
        assert isinstance(request.items, memoryview)
        lain.append(request.items.obj)
        real(self, request)

    monkeypatch.setattr(InFlight, "send", noted)
    task = sender()
    for begin in range(0, 950, 95):
        task.add(rows(range(begin, begin + 95)))
    task.finish()
    assert sorted(brokers.bodies()) == list(range(950))
    assert len({id(memory) for memory in lain}) <= 3 < len(lain)


def test_all_brokers_have_sends_on_their_way_while_the_next_rows_are_encoded(
    brokers: ScriptedBrokers,
) -> None:
    brokers.holding = {"broker-a:1", "broker-b:1"}
    task = sender(request_timeout_ms=5_000)
    numbers = itertools.count()
    while brokers.waiting.total() < 4:
        task.add(rows([next(numbers)]))
    assert brokers.waiting == {"broker-a:1": 2, "broker-b:1": 2}, "as many at each as the pipeline allows"
    task.add(rows([next(numbers)]))
    assert not brokers.bodies(), "nothing was waited for"
    brokers.holding.clear()
    task.finish()
    assert brokers.bodies() == list(range(next(numbers)))
    assert task.metrics.retries == 0


def test_a_broker_that_does_not_answer_yet_holds_up_no_other(brokers: ScriptedBrokers) -> None:
    brokers.holding = {"broker-a:1"}
    task = sender(request_timeout_ms=60_000)
    for number in range(500):
        task.add(rows([number]))
    assert brokers.waiting["broker-a:1"] == 2
    assert len(brokers.stored[QUEUES[2]]) > 400
    brokers.holding.clear()
    task.finish()
    assert brokers.bodies() == list(range(500))


@given(st.permutations(range(95)))
@settings(max_examples=20, deadline=None)
def test_a_replay_in_another_order_sends_what_is_missing(order: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        brokers = scripted(patch)
        stored = cut_short(brokers)
        second = sender(attempt=2, again=True)
        second.add(rows(order))
        second.finish()
    assert brokers.bodies() == list(range(95))
    assert second.metrics.rows == 95 - stored
    assert second.replay.earlier == len(second.replay.matched) == stored


def test_an_attempt_ends_those_before_it_before_it_looks(brokers: ScriptedBrokers) -> None:
    """Each connection is bound before its first message; without a failure no attempt is fenced."""
    first = sender()
    first.add(rows(range(95)))
    first.finish()
    assert {(each.writer, each.run, each.part, each.turn, each.fence) for each in brokers.bound} == {
        ("query", 0xAB, 2, 1 << 16, False)
    }
    brokers.bound.clear()
    brokers.failures = ["", "lose answer"]
    second = sender(attempt=2, again=True)
    second.add(rows(range(150)))
    second.finish()
    assert brokers.bodies() == list(range(150))
    fences = [each.turn for each in brokers.bound if each.fence]
    assert fences == [2 << 16] * 2 + [(2 << 16) + 1] * 2, "at both brokers, and again after a lost answer"
    assert brokers.bound[-1].turn == (2 << 16) + 1
    assert all(earlier.turn <= later.turn for earlier, later in itertools.pairwise(brokers.bound))


def test_an_attempt_that_was_ended_fails(brokers: ScriptedBrokers) -> None:
    brokers.refused_writers = True
    with pytest.raises(SinkStateError, match=r"query/7/2: another attempt has taken over at broker-\w:1"):
        written_by(sender(), [rows(range(3))])
    at_least_once = sender(delivery=AT_LEAST_ONCE)
    at_least_once.add(rows(range(3)))
    at_least_once.finish()


def test_brokers_that_cannot_fence_get_time_for_late_requests(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(fencing, "this_worker", lambda: SimpleNamespace(pause=paused.append))
    monkeypatch.setattr(fencing, "LATE_REQUEST_S", 0.3)
    cut_short(brokers)
    sender(attempt=2, again=True).add(rows(range(95)))
    assert paused == []
    brokers.fences = False
    sender(attempt=3, again=True).add(rows(range(95)))
    assert paused == [0.3]


def test_later_runs_have_higher_numbers() -> None:
    names = [new_run(now_ms, chance) for now_ms in (0, 1, 1_795_000_000_000) for chance in (0, 0xFFFFF)]
    numbers = [TaskId("q", 0, 0, name, 0).run_number for name in names]
    assert numbers == sorted(numbers)
    assert numbers[-1] < 1 << 63


def test_equal_rows_are_each_sent_once(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["", "lose request"] + ["lose request"] * 1000
    first = sender(retry_timeout_ms=100)
    with pytest.raises(UnreachableError):
        written_by(first, [rows([7] * 60)])
    brokers.failures = []
    second = sender(attempt=2, again=True)
    second.add(rows([7] * 60))
    second.finish()
    assert brokers.bodies() == [7] * 60


def test_at_least_once_asks_nobody(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["lose answer"]
    task = sender(delivery=AT_LEAST_ONCE)
    task.add(rows(range(95)))
    task.finish()
    assert set(brokers.bodies()) == set(range(95))
    assert len(brokers.bodies()) > 95, "what was stored without an answer is there twice"
    assert all(SPARK_ID.encode() not in item.properties for item in brokers.messages())
    keys = [decode_properties(item.properties)["UNIQ_KEY"] for item in brokers.messages()]
    assert set(keys) == {unique_key(task.task.key_prefix, row) for row in range(95)}


def test_a_replay_waits_until_what_is_stored_can_be_seen(brokers: ScriptedBrokers) -> None:
    cut_short(brokers)
    brokers.behind = [300, 300, 0]
    brokers.routes_away = 2
    second = sender(attempt=2, again=True)
    second.add(rows(range(95)))
    second.finish()
    assert brokers.bodies() == list(range(95))
    brokers.slaves = {"broker-a:1"}
    third = sender(attempt=3, again=True, retry_timeout_ms=50)
    with pytest.raises(UnreachableError, match="stored in 't' earlier cannot be read: the master of"):
        third.add(rows(range(95)))


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500, 215])
def test_what_a_producer_retries_is_retried(brokers: ScriptedBrokers, code: int) -> None:
    brokers.codes = [code, code]
    task = sender()
    task.add(rows(range(95)))
    task.finish()
    assert brokers.bodies() == list(range(95))


def test_a_batch_is_filled_by_its_real_size(brokers: ScriptedBrokers) -> None:
    task = sender()
    task.add(pa.record_batch({"body": ["1" * 10] * 200, "keys": ["k" * 300] * 200}))
    task.finish()
    assert 1000 < brokers.largest <= 2100
    assert len(brokers.bodies()) == 200


def test_a_batch_holds_no_more_messages_than_the_fast_path_of_a_broker_takes(
    brokers: ScriptedBrokers,
) -> None:
    task = sender(batch_bytes=1 << 20)
    task.add(rows(range(100)))
    task.add(rows(range(100, 600)))
    task.finish()
    assert brokers.bodies() == list(range(600))
    assert brokers.sends == 3


def test_a_message_larger_than_a_batch_travels_alone(brokers: ScriptedBrokers) -> None:
    task = sender()
    task.add(rows([1, 10**4000, 2]))
    task.finish()
    assert brokers.bodies() == [1, 2, 10**4000]
    assert brokers.largest == len(str(10**4000)), "its body may be as long as the broker's limit"


def test_a_message_that_is_too_large_is_named(brokers: ScriptedBrokers) -> None:
    task = sender(batch_bytes=100_000)
    task.add(pa.record_batch({"body": ["0"]}))
    task.add(pa.record_batch({"body": ["1", "2", "3" * 6000, "4"]}))
    with pytest.raises(BrokerError, match=r"row 3 of query/7/2, a body of 6000 bytes: limit maxMessageSize"):
        task.finish()
    other = sender()
    with pytest.raises(SchemaError, match=r"row 1 of query/7/2 is a message of 17\d+ bytes, a request holds"):
        other.add(pa.record_batch({"body": [b"", bytes(17 << 20)]}))


@pytest.mark.parametrize("location", ["/dev/full/state", "/proc/state"])
def test_a_folder_that_takes_no_files_is_named(location: str) -> None:
    state = FolderState(location)
    with pytest.raises(SinkStateError, match=rf"{location}/q/0/begin-0-ab\.1-t\.json cannot be written"):
        state.begin(TaskId("q", 0, 0, "ab", 1), "t", START)
    with pytest.raises(SinkStateError, match=rf"{location}/q/0/commit-ab\.json cannot be written"):
        state.commit("q", 0, "ab", {})


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "q" / "0"
    folder.mkdir(parents=True)
    for name in ("begin-0-ab.1-t.json", "commit-ab.json"):
        (folder / name).symlink_to("/dev/full")
    state = FolderState(str(tmp_path))
    with pytest.raises(
        SinkStateError, match=r"begin-0-ab\.1-t\.json cannot be written: .*: No space left on device$"
    ):
        state.begin(TaskId("q", 0, 0, "ab", 1), "t", START)
    with pytest.raises(
        SinkStateError, match=r"commit-ab\.json cannot be written: .*: No space left on device$"
    ):
        state.commit("q", 0, "ab", {})


def test_a_refusal_is_an_error(brokers: ScriptedBrokers) -> None:
    brokers.failures = ["refuse"]
    task = sender()
    task.add(rows(range(3)))
    with pytest.raises(BrokerError, match="read only"):
        task.finish()


def test_a_row_becomes_a_message(brokers: ScriptedBrokers) -> None:
    task = sender(columns=["topic", "body", "tags", "keys", "properties"])
    task.add(
        pa.record_batch(
            {
                "topic": ["t", None],
                "body": [b"1", b"2"],
                "tags": ["red", None],
                "keys": [["k1", "k2"], None],
                "properties": pa.array(
                    [[("x", "y"), ("empty", "")], None], pa.map_(pa.string(), pa.string())
                ),
            }
        )
    )
    task.finish()
    first, second = sorted(brokers.messages(), key=lambda item: item.body)
    digest = f"{task._encoder.digests[0]:016x}"
    assert decode_properties(first.properties) == {
        "x": "y",
        "TAGS": "red",
        "KEYS": "k1 k2",
        "UNIQ_KEY": unique_key(task.task.key_prefix, 0),
        SPARK_ID: f"query/7/2/ab.1/0/{digest}",
    }
    assert set(decode_properties(second.properties)) == {"UNIQ_KEY", SPARK_ID}


def test_sliced_and_wide_columns_are_read(brokers: ScriptedBrokers) -> None:
    whole = pa.record_batch(
        {
            "body": pa.array(["0", "1", "2", "3"], pa.large_string()),
            "keys": [["a", ""], ["b", None], ["c"], []],
            "properties": pa.array([[("n", str(i))] for i in range(4)], pa.map_(pa.string(), pa.string())),
        }
    )
    task = sender(columns=["body", "keys", "properties"])
    task.add(whole.slice(1, 2))
    task.add(whole.slice(0, 0))
    task.finish()
    found = {int(item.body): decode_properties(item.properties) for item in brokers.messages()}
    assert {number: (p["n"], p["KEYS"]) for number, p in found.items()} == {1: ("1", "b"), 2: ("2", "c")}


@pytest.mark.parametrize("seed", range(20))
def test_a_key_keeps_its_queue_and_its_order(brokers: ScriptedBrokers, seed: int) -> None:
    kinds = ["", "", "busy", "lose request", "lose answer"]
    brokers.failures = random.Random(seed).choices(kinds, k=12)
    keys = [f"k{i % 5}" for i in range(400)]
    task = sender(columns=["body", "sharding_key"])
    for first in range(0, 400, 100):
        part = range(first, first + 100)
        task.add(pa.record_batch({"body": [str(n) for n in part], "sharding_key": keys[first : first + 100]}))
    task.finish()
    assert brokers.bodies() == list(range(400))
    for queue, log in brokers.stored.items():
        numbers = [int(item.body) for item in log]
        for key in {keys[n] for n in numbers}:
            assert QUEUES[abs(java_hash(key)) % 3] == queue
            assert [n for n in numbers if keys[n] == key] == [n for n in range(400) if keys[n] == key]
    assert decode_properties(brokers.messages()[0].properties)["__SHARDINGKEY"] in keys


def test_a_queue_can_be_named(brokers: ScriptedBrokers) -> None:
    task = sender(columns=["body", "queue_id"])
    task.add(pa.record_batch({"body": ["1", "2", "3"], "queue_id": pa.array([1, 0, 1], pa.int32())}))
    task.finish()
    assert [[int(item.body) for item in brokers.stored[queue]] for queue in QUEUES] == [[2], [1, 3], []]
    with pytest.raises(SchemaError, match="topic 't' has no queue 9"):
        task.add(pa.record_batch({"body": ["1"], "queue_id": pa.array([9], pa.int32())}))


def test_a_delayed_message_travels_alone(brokers: ScriptedBrokers) -> None:
    task = sender(columns=["body", "delay_level"], delivery=AT_LEAST_ONCE)
    task.add(pa.record_batch({"body": ["1", "2", "3"], "delay_level": pa.array([3, None, 0], pa.int32())}))
    task.finish()
    levels = {int(item.body): decode_properties(item.properties).get("DELAY") for item in brokers.messages()}
    assert levels == {1: "3", 2: None, 3: None}
    assert brokers.sends == 2
    timed = sender(columns=["body", "deliver_at"], delivery=AT_LEAST_ONCE)
    times = pa.array([1_700_000_000_123_000], pa.timestamp("us", "UTC"))
    timed.add(pa.record_batch({"body": ["4"], "deliver_at": times}))
    timed.finish()
    (late,) = [item for item in brokers.messages() if item.body == b"4"]
    assert decode_properties(late.properties)["TIMER_DELIVER_MS"] == "1700000000123"
    with pytest.raises(SchemaError, match="row 1 of query/7/2 has deliver_at -5; allowed"):
        timed.add(pa.record_batch({"body": ["4"], "deliver_at": pa.array([-5], pa.int64())}))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [None]}, "row 0 of query/7/2 has no body"),
        ({"body": ["x", "y"], "topic": ["t", ""]}, "row 1 of query/7/2 has no topic"),
        ({"body": ["x"], "properties": [{"DELAY": "3"}]}, "use the column delay_level or deliver_at"),
        ({"body": ["x"], "tags": ["a\x01"]}, r"row 0 of query/7/2 has a property with U\+0000, U\+0001"),
        ({"body": ["x"], "tags": ["a\0"]}, r"row 0 of query/7/2 has a property with U\+0000, U\+0001"),
        ({"body": ["x"], "keys": ["a" * 33_000]}, "has properties of more than 32767 bytes"),
        ({"body": ["x"], "delay_level": [19]}, "has delay_level 19; allowed: 0 to 18"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    brokers: ScriptedBrokers, columns: dict[str, Any], words: str
) -> None:
    if "properties" in columns:
        maps = pa.map_(pa.string(), pa.string())
        columns["properties"] = pa.array([list(each.items()) for each in columns["properties"]], maps)
    task = sender(columns=list(columns), topic=None if "topic" in columns else "t")
    columns["body"] = pa.array(columns["body"], pa.string())
    with pytest.raises(SchemaError, match=words):
        task.add(pa.record_batch(columns))
    assert not brokers.sends


@pytest.mark.behaviour("SP-06")
@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"id": LongType(), "body": StringType()}, "t", "column 'id' cannot be written; known: topic, body"),
        ({"body": LongType()}, "t", "body has type bigint, must be binary or string"),
        ({"tags": StringType()}, "t", "column body is missing"),
        (
            {"body": StringType(), "properties": MapType(StringType(), IntegerType())},
            "t",
            "properties has type map<string,int>, must be map<string,string>",
        ),
        (
            {"body": StringType(), "keys": ArrayType(LongType())},
            "t",
            "keys has type array<bigint>, must be string or array<string>",
        ),
        ({"body": StringType(), "Body": StringType()}, "t", "a column is there twice: body, Body"),
        ({"body": StringType()}, None, "name the topic"),
        (
            {"body": StringType(), "sharding_key": StringType(), "queue_id": IntegerType()},
            "t",
            "say the same",
        ),
        ({"body": StringType(), "delay_level": IntegerType(), "deliver_at": LongType()}, "t", "say the same"),
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


@pytest.mark.behaviour("SP-06")
def test_a_send_fits_a_request(brokers: ScriptedBrokers) -> None:
    schema = StructType().add("body", StringType())
    StreamWriter(options(delivery=AT_LEAST_ONCE, batch_bytes=8 << 20), schema)
    with pytest.raises(OptionError, match=r"batchBytes is above 16646152: a request holds no more"):
        StreamWriter(options(delivery=AT_LEAST_ONCE, batch_bytes=16 << 20), schema)
    with pytest.raises(OptionError, match="a request holds no more"):
        BatchWriter(options(batch_bytes=16 << 20), schema, overwrite=False)


def test_a_place_for_the_state_is_needed(brokers: ScriptedBrokers) -> None:
    schema = StructType().add("body", StringType())
    with pytest.raises(OptionError, match="delivery=exactly-once needs the option checkpointLocation"):
        StreamWriter(options(), schema)
    with pytest.raises(
        OptionError, match=r"'ftp://x/y' cannot be used.*Known are file, s3, gs, abfs and hdfs"
    ):
        StreamWriter(options(state_location="ftp://x/y"), schema)
    StreamWriter(options(delivery=AT_LEAST_ONCE), StructType().add("body", StringType()))


# -- a whole batch: tasks, crashes, replays, the driver ------------------------------------------------


class KilledError(Exception):
    """The whole application is gone."""


def play(
    brokers: ScriptedBrokers, state: FolderState, run: str, parts: list[list[int]], **values: Any
) -> dict[str, Any]:
    """Run a batch once, as Spark does it; returns the record of the commit."""
    chosen = options(**values)
    done: list[Written] = []
    for partition, numbers in enumerate(parts):
        task = TaskId("query", 7, partition, run, partition)
        begin: Begin = lambda topic, ends, task=task: state.begin(task, topic, ends)  # noqa: E731
        batches = [rows(numbers[at : at + 20]) for at in range(0, len(numbers), 20)]
        done.append(written_by(TaskSender(chosen, task, frozenset({"body"}), begin), iter(batches)))
    commit = BatchCommit(chosen, frozenset({"body"}), done, state)
    commit.finish()
    record = state.commit_record("query", 7)
    assert record is not None
    return record


@pytest.mark.parametrize("block", range(4))
def test_a_shuffled_replay_after_a_kill_stores_each_row_once(
    brokers: ScriptedBrokers, tmp_path: Path, block: int
) -> None:
    kills = 0
    for seed in range(block * 20, block * 20 + 20):
        chance = random.Random(seed)
        numbers = [chance.randrange(chance.choice([9, 1000])) for _ in range(chance.randrange(200))]
        for log in brokers.stored.values():
            log.clear()
        state = FolderState(str(tmp_path / str(seed)))
        for run in range(20):
            left = chance.randrange(12) if run < 19 else 1 << 30

            def kill(left: list[int] = [left]) -> None:  # noqa: B006
                left[0] -= 1
                if left[0] < 0:
                    raise KilledError

            brokers.before_send = kill
            parts: list[list[int]] = [[] for _ in range(chance.randint(1, 4))]
            for number in numbers:
                chance.choice(parts).append(number)
            try:
                record = play(brokers, state, f"{run:x}", parts)
                break
            except KilledError:
                kills += 1
        assert Counter(brokers.bodies()) == Counter(numbers), seed
        assert record["rows"] == len(numbers)
        keys = [decode_properties(item.properties)["UNIQ_KEY"] for item in brokers.messages()]
        assert len(set(keys)) == len(keys)
    assert kills > 12


def test_other_rows_in_a_replay_fail_with_counts(brokers: ScriptedBrokers, tmp_path: Path) -> None:
    state = FolderState(str(tmp_path))
    brokers.failures = ["", ""] + ["lose request"] * 100
    with pytest.raises(UnreachableError):
        play(brokers, state, "a", [list(range(95))], retry_timeout_ms=50)
    brokers.failures = []
    stored = len(brokers.bodies())
    words = (
        rf"batch 7: {stored} of the {stored} messages that earlier attempts stored fit none of its 95 rows"
    )
    for run in ("b", "c"):  # each later replay does so, too, until an operator decides
        with pytest.raises(SinkStateError, match=words if run == "b" else "fit none of its"):
            play(brokers, state, run, [list(range(1000, 1095))])
    with pytest.raises(SinkStateError, match=f"remove {tmp_path}/query/7"):
        play(brokers, state, "d", [list(range(1000, 1095))])


@pytest.mark.behaviour("SP-01")
def test_a_broker_that_every_restart_finds_away_is_waited_for(
    brokers: ScriptedBrokers, tmp_path: Path
) -> None:
    state = FolderState(str(tmp_path))
    brokers.failures = [""] * 3 + ["lose request"] * 1000
    with pytest.raises(UnreachableError, match="messages were not taken"):
        play(brokers, state, "a", [list(range(95))], retry_timeout_ms=50)
    brokers.failures = []
    assert brokers.stored[QUEUES[2]], "some rows are at broker-b"
    brokers.gone = {"broker-b:1"}
    for run in ("b", "c", "d"):  # each restart records the ends of the queues that exist
        with pytest.raises(UnreachableError, match=r"cannot be read: the master of .*broker-b.* is away"):
            play(brokers, state, run, [list(range(95))], retry_timeout_ms=50)
    brokers.gone = set()
    play(brokers, state, "e", [list(range(95))])
    assert brokers.bodies() == list(range(95))


@pytest.mark.behaviour("SP-01")
def test_a_broker_that_was_taken_away_for_good_ends_no_query_for_ever(
    brokers: ScriptedBrokers, tmp_path: Path
) -> None:
    state = FolderState(str(tmp_path))
    values: dict[str, Any] = {"retry_timeout_ms": 50, "state_location": str(tmp_path)}
    brokers.failures = [""] * 3 + ["lose request"] * 1000
    with pytest.raises(UnreachableError, match="messages were not taken"):
        play(brokers, state, "a", [list(range(95))], **values)
    brokers.failures = []
    brokers.gone = {"broker-b:1"}
    words = rf"broker-b.* is away\. If that stays so: to send all rows, again those .*, remove .* {tmp_path}$"
    for run in ("b", "c"):
        with pytest.raises(UnreachableError, match=words):
            play(brokers, state, run, [list(range(95))], **values)
    shutil.rmtree(tmp_path / "query")
    play(brokers, state, "d", [list(range(95))], **values)
    assert set(brokers.bodies()) == set(range(95))


@pytest.mark.behaviour("SP-01")
def test_a_batch_whose_messages_have_expired_says_what_to_do(
    brokers: ScriptedBrokers, tmp_path: Path
) -> None:
    state = FolderState(str(tmp_path))
    brokers.failures = ["", "", ""] + ["lose request"] * 1000
    values: dict[str, Any] = {"retry_timeout_ms": 50, "state_location": str(tmp_path)}
    with pytest.raises(UnreachableError, match="messages were not taken"):
        play(brokers, state, "a", [list(range(95))], **values)
    brokers.failures, brokers.first = [], 2
    words = rf"rows of the batch are stored in 't': offsets 0 to 1 of .* not there any more: .*in {tmp_path}$"
    with pytest.raises(SinkStateError, match=words):
        play(brokers, state, "b", [list(range(95))], **values)


@pytest.mark.behaviour("SP-02")
def test_a_slave_that_acts_for_its_master_is_no_place_to_look(
    brokers: ScriptedBrokers, tmp_path: Path
) -> None:
    state = FolderState(str(tmp_path))
    brokers.failures = [""] * 3 + ["lose request"] * 1000
    with pytest.raises(UnreachableError, match="messages were not taken"):
        play(brokers, state, "a", [list(range(95))], retry_timeout_ms=50)
    brokers.failures = []
    at_master = brokers.stored[QUEUES[2]]
    brokers.stored[QUEUES[2]] = []  # the slave has not copied them
    brokers.acting = {"broker-b:1"}
    with pytest.raises(UnreachableError, match=r"cannot be read: the master of .*broker-b.* is away"):
        play(brokers, state, "b", [list(range(95))], retry_timeout_ms=50)
    brokers.stored[QUEUES[2]] = at_master
    brokers.acting, brokers.read_only = set(), {"broker-b:1"}
    play(brokers, state, "c", [list(range(95))])  # the master no longer takes messages
    assert brokers.bodies() == list(range(95))


@pytest.mark.behaviour("SP-03")
def test_an_older_checkpoint_beside_a_newer_state_loses_no_rows_in_silence(
    brokers: ScriptedBrokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(state_location=str(tmp_path))
    state = FolderState(str(tmp_path))
    for batch in (7, 8):
        state.commit("query", batch, "ab", {"rows": 10})

    def run(batch: int, numbers: Sequence[int]) -> None:
        local = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(batch)}
        context = SimpleNamespace(
            partitionId=lambda: 0, taskAttemptId=lambda: 1, getLocalProperty=lambda name: local[name]
        )
        monkeypatch.setattr(TaskContext, "get", lambda: context)
        writer = StreamWriter(chosen, StructType().add("body", StringType()))
        writer.commit([writer.write(iter([rows(numbers)]))], batch)

    with pytest.raises(SinkStateError, match=f"batch 8 begun before.*older.*remove {tmp_path}/query"):
        run(7, range(100, 110))
    with pytest.raises(SinkStateError, match=r"committed with 10 rows and has 15 now.*remove"):
        run(8, range(100, 115))
    run(8, range(10))
    assert brokers.bodies() == [], "Spark did not note the commit: all is there"
    shutil.rmtree(tmp_path / "query")
    run(7, range(100, 110))
    assert brokers.bodies() == list(range(100, 110))


# -- the state -----------------------------------------------------------------------------------------


def test_state_is_kept_by_attempt(tmp_path: Path) -> None:
    state = FolderState(f"file://{tmp_path}")
    one, other = TaskId("query", 7, 2, "ab", 1), TaskId("query", 7, 0, "cd", 1)
    ends = Offsets(dict.fromkeys(QUEUES, 5))
    assert state.begin(one, "%RETRY%t", ends) is None
    assert state.begin(TaskId("query", 7, 1, "ab", 2), "%RETRY%t", ends) is None, "a sister is not earlier"
    assert state.begin(TaskId("query", 7, 2, "ab", 3), "%RETRY%t", ends) == ends, "the same task again"
    fewer = Offsets({QUEUES[0]: 3})
    assert state.begin(other, "%RETRY%t", fewer) == ends
    lowest = {QUEUES[0]: 3, QUEUES[1]: None, QUEUES[2]: None}
    assert state.begin(TaskId("query", 7, 0, "ef", 1), "%RETRY%t", ends) == lowest, "unknown: from the first"
    assert state.begin(TaskId("query", 7, 0, "ef", 1), "u", ends) is None
    assert state.begun("query", 7, {0: "ef.1"}) == {"%RETRY%t": lowest, "u": ends}
    assert not state.is_committed("query", 7)
    state.commit("query", 7, "ef", {"rows": 1})
    assert state.commit_record("query", 7) == {"rows": 1, "v": 2}
    state.commit("query", 107, "ef", {})
    assert not state.is_committed("query", 7), "too old to be replayed"
    assert state.begun("query", 7, {}) == {}
    with pytest.raises(SinkStateError, match="cannot be a folder name"):
        state.is_committed("../up", 1)


def test_a_file_counts_when_it_is_whole(tmp_path: Path) -> None:
    state = FolderState(str(tmp_path))
    ends = Offsets({QUEUES[0]: 5})
    assert state.begin(TaskId("query", 7, 0, "ab", 1), "t", ends) is None
    (begun,) = (tmp_path / "query" / "7").iterdir()
    whole = begun.read_text()
    begun.write_text(whole[:20])
    assert state.begin(TaskId("query", 7, 0, "cd", 1), "t", ends) is None, "its writer has sent nothing"
    begun.write_text(whole.replace("5", "-5"))
    with pytest.raises(SinkStateError, match="is damaged"):
        state.begin(TaskId("query", 7, 0, "ef", 1), "t", ends)
    (tmp_path / "query" / "7" / "commit-ab.json").write_text('{"v":')
    assert not state.is_committed("query", 7)


def test_the_state_of_the_version_before(tmp_path: Path) -> None:
    folder = tmp_path / "query" / "7"
    folder.mkdir(parents=True)
    (folder / "intent-0-t.json").write_text(START.text())
    state = FolderState(str(tmp_path))
    with pytest.raises(SinkStateError, match=r"of an earlier version.*let that version finish the batch"):
        state.begin(TaskId("query", 7, 0, "ab", 1), "t", START)
    (folder / "commit.json").write_text("{}")
    assert state.is_committed("query", 7), "what it committed is committed"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = FolderState(str(tmp_path / "file"))
    with pytest.raises(SinkStateError, match="cannot be"):
        state.begin(TaskId("query", 7, 0, "ab", 1), "t", START)
    assert options().is_exact


@pytest.mark.parametrize(("slow", "expected_ms"), [(0, 10), (10, 10), (11, 500)])
def test_of_a_hundred_requests_one_may_take_longer(slow: int, expected_ms: float) -> None:
    metrics = SendMetrics()
    for number in range(1000):
        metrics.took(500 if number < slow else 10)
    assert metrics.p99_ms() == pytest.approx(expected_ms, rel=0.1)
