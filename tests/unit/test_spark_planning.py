"""Options, offsets and partitions of the data source."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.offsets import Offsets, backlog, prorate
from orbitmq.spark.cluster.places import AtOffsets, AtTime, Start
from orbitmq.spark.errors import OffsetError, OptionError
from orbitmq.spark.options import Reading, read_options, write_options
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.read.partitions import MIN_ROWS_PER_TASK, TaskLimits, plan, task_count

_queues = st.builds(
    MessageQueue,
    st.sampled_from(["orders", "flights"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 11),
)
_offsets = st.dictionaries(_queues, st.integers(0, 10**6), max_size=12).map(Offsets)


def test_options_are_read_whatever_their_case() -> None:
    options = read_options(
        {
            "topic": "a, b",
            "nameservers": "h1:9876;h2:9876",
            "maxrowspertrigger": "500",
            "maxTriggerDelay": "30s",
            "failondataloss": "False",
            "startingoffsets": "LATEST",
            "batchBytes": "2m",
        }
    )
    assert options.topics == ("a", "b")
    assert options.name_servers == ("h1:9876", "h2:9876")
    assert (options.max_rows, options.max_delay_ms, options.fail_on_loss) == (500, 30_000, False)
    assert options.starting is Start.LATEST
    assert options.batch_bytes == 2 << 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"topic": "a", "maxRow": "5"},
            "unknown option 'maxRow'.*did you mean maxRowsPer.*known: accessKey, assign, batchBytes",
        ),
        ({"topic": "a", "maxRowPerTriger": "5"}, "did you mean maxRowsPerTrigger or"),
        ({"topic": "a", "kafka.bootstrap.servers": "h:1"}, "use nameServers, the addresses of RocketMQ"),
        ({"topic": "a", "subscribe": "b"}, "options topic and subscribe are the same"),
        ({"topic": "a", "topicPattern": "b.*"}, "options topic and topicPattern say what is read"),
        ({"topicPattern": "b("}, "is no regular expression"),
        ({"assign": '{"t":[0]}'}, r'is not {"topic":{"broker":\[0,1\]}}'),
        ({"assign": '{"t":{"broker-a":["0"]}}'}, "t/broker-a has"),
        ({"assign": '{"t":{}}'}, "names no queue"),
        ({"topic": "a", "startingTimestamp": "yesterday"}, "neither milliseconds since 1970 nor a time such"),
        ({"topic": "a", "startingTimestamp": "5", "startingOffsets": "latest"}, "say the same thing"),
        ({"topic": "a", "startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"}, "say the same thing"),
        ({"topic": "a", "startingOffsetsByTimestamp": '{"a":5}'}, 'is not {"topic":{"broker":{"0":milli'),
        ({"topic": "a", "startingOffsets": '{"a":{"b":{"0":-3}}}'}, "-2 is the first message, -1 the end"),
        ({"topic": "a", "startingOffsets": "group"}, "where the group of the option groupId stands: name it"),
        ({"topic": "a", "groupId": "g", "endingOffsets": "group"}, "not where it ends"),
        ({"topic": "a", "startingTimestampStrategy": "newest"}, "is not error or latest"),
        ({"topic": "a", "maxBytesPerTrigger": "2x"}, "not a size"),
        ({}, "option topic is missing.*Spark drops the OPTIONS of a table"),
        ({"topic": "a", "provider": "rocketmq"}, "^CREATE TABLE .* cannot be used"),
        ({"topic": " "}, "topic=' ' is empty"),
        ({"topic": "a", "nameServers": "localhost"}, "'localhost', which is not host:port"),
        ({"topic": "a", "nameServers": "h:99999"}, "not host:port"),
        ({"topic": "a", "maxRowsPerTrigger": "0"}, "not a whole number above 0"),
        ({"topic": "a", "maxTriggerDelay": "soon"}, "not a time"),
        ({"topic": "a", "failOnDataLoss": "rows"}, "is neither true nor false"),
        ({"topic": "a", "sql": "a = 1", "tags": "b"}, "options tags and sql are both given"),
        ({"topic": "a", "valueFormat": "avro"}, "is not binary or string"),
        ({"topic": "a", "valueFormat": "json"}, r"from_json\(CAST\(body AS STRING\)"),
        ({"topic": "a", "valueSchema": "id INT"}, r"unknown option .valueSchema.*from_json\(CAST\("),
        ({"topic": "a", "pushFilters": "all"}, "neither true nor false"),
        ({"topic": "a", "startingOffsets": "first"}, "not earliest, latest, group or offsets"),
        ({"topic": "a", "startingOffsets": '{"v":9}'}, "cannot be read as offsets"),
        ({"topic": "a", "startingOffsets": "{"}, "cannot be read as offsets"),
        ({"topic": "a", "minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "is above"),
        ({"topic": "a", "batchBytes": "0"}, "not a size"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_options(options)


@pytest.mark.parametrize(
    ("options", "reading", "words"),
    [
        (
            {"topic": "a", "endingoffsets": "latest"},
            Reading.STREAM,
            r"endingOffsets has no effect on a stream",
        ),
        ({"topic": "a", "maxRowsPerTrigger": "5"}, Reading.BATCH, "has no effect on a batch read: it has no"),
        (
            {"topic": "a", "pushFilters": "true"},
            Reading.STREAM,
            "no effect on a stream: use the options tags",
        ),
        ({"topic": "a", "path": "b"}, None, "name the topic once"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, str], reading: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_options(options, reading)


def test_kafka_s_names_mean_the_same() -> None:
    options = read_options(
        {"subscribePattern": "orders-.*", "maxOffsetsPerTrigger": "7", "minPartitions": "3"}, Reading.STREAM
    )
    assert (options.topic_pattern, options.max_rows, options.parallelism) == ("orders-.*", 7, 3)


def test_the_names_of_apache_s_connector_mean_the_same() -> None:
    theirs = {
        "nameServer": "h:1",
        "topic": "t",
        "subExpression": "a || b",
        "group": "g",
        "pullBatchSize": "64",
    }
    options = read_options({**theirs, "pullTimeoutMs": "3000"}, Reading.STREAM)
    assert (options.name_servers, options.tags, options.group_id) == (("h:1",), "a || b", "g")
    assert (options.pull_messages, options.request_timeout_ms) == (64, 3000)
    assert read_options({"topic": "t", "pullTimeout": "5s"}).request_timeout_ms == 5000
    writing = write_options({"nameServer": "h:1", "topic": "t", "group": "g"})
    assert (writing.name_servers, writing.producer_group) == (("h:1",), "g")
    with pytest.raises(
        OptionError, match="options nameServer and nameServers are the same: give one of them"
    ):
        read_options({"topic": "t", "nameServer": "h:1", "nameServers": "h:2"})
    with pytest.raises(OptionError, match="option subExpression=' ' is empty"):
        read_options({"topic": "t", "subExpression": " "})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nameserver.addr", "use nameServers"),
        ("namesrvAddr", "use nameServers"),
        ("consumerGroup", "use groupId"),
        ("subExpresion", "did you mean subExpression"),
        ("startTimeMs", "use startingTimestamp"),
        ("maxRowPerTrigger", "did you mean maxRowsPerTrigger"),
    ],
)
def test_the_error_of_other_names_says_what_to_use(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{name}' for reading topics: .*{words}"):
        read_options({"topic": "t", name: "x"})


@pytest.mark.behaviour("SP-14")
def test_a_stream_begins_at_latest_and_a_batch_at_earliest_unless_told() -> None:
    assert read_options({"topic": "t"}, Reading.STREAM).starting is Start.LATEST
    assert read_options({"topic": "t"}, Reading.BATCH).starting is Start.EARLIEST
    for told in ({"startingOffsets": "earliest"}, {"startingTimestamp": "2026-11-22"}):
        assert read_options({"topic": "t", **told}, Reading.STREAM).starting is not Start.LATEST


def test_single_queues_can_be_assigned() -> None:
    options = read_options({"assign": '{"t":{"broker-a":[0,3],"broker-b":[1]}}'})
    assert options.topics == ("t",)
    queues = {
        MessageQueue("t", "broker-a", 0),
        MessageQueue("t", "broker-a", 3),
        MessageQueue("t", "broker-b", 1),
    }
    assert options.assigned == queues


def test_places_have_several_forms() -> None:
    queue = MessageQueue("t", "broker-a", 0)
    named = read_options({"topic": "t", "startingOffsets": '{"t":{"broker-a":{"0":-2}}}'})
    assert named.starting == AtOffsets({queue: -2})
    checkpoint = read_options({"topic": "t", "startingOffsets": Offsets({queue: 7}).text()})
    assert checkpoint.starting == AtOffsets({queue: 7})
    iso = read_options(
        {"topic": "t", "startingTimestamp": "2026-11-22T13:00:00Z", "endingTimestamp": "1795356000001"}
    )
    assert (iso.starting, iso.ending) == (AtTime(1795352400000), AtTime(1795356000001))
    utc = read_options({"topic": "t", "startingTimestamp": "2026-11-22 14:00:00+01:00"})
    assert utc.starting == iso.starting
    single = read_options({"topic": "t", "startingOffsetsByTimestamp": '{"t":{"broker-a":{"0":5}}}'})
    assert single.starting == AtTime(None, {queue: 5})
    group = read_options({"topic": "t", "startingOffsets": "group", "groupId": "g"})
    assert group.starting is Start.GROUP


def test_load_names_the_topic() -> None:
    assert read_options({"path": "orders, payments"}).topics == ("orders", "payments")


def test_writer_state_lies_beside_the_checkpoint() -> None:
    assert write_options({"checkpointlocation": "/c/"}).state_location == "/c/orbitmq-sink"
    assert write_options({"stateLocation": "/s", "checkpointLocation": "/c"}).state_location == "/s"
    assert write_options({"topic": "t", "path": "x"}).state_location is None
    with pytest.raises(OptionError, match=r"stateLocation='cluster' is no folder"):
        write_options({"stateLocation": "cluster"})


@given(_offsets)
def test_offsets_survive_json_in_one_form(offsets: Offsets) -> None:
    assert Offsets.from_json(json.loads(offsets.text())) == offsets
    shuffled = Offsets(dict(reversed(list(offsets.items()))))
    assert json.dumps(shuffled.to_json()) == json.dumps(offsets.to_json())


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"v": 3, "t": {}},
        {"v": 2, "t": {}, "n": "two"},
        {"v": 2, "t": {}, "n": 0},
        {"v": 2, "t": {}, "from": 5},
        {"v": 1, "t": {"a": 3}},
        {"v": 1, "t": {"a": {"b": {"x": 1}}}},
        {"v": 1, "t": {"a": {"b": {"0": -1}}}},
        {"v": 1, "t": {"a": {"b": {"0": "1"}}}},
        {"v": 1, "t": {"a": {"b": {"0": True}}}},
    ],
)
def test_other_offsets_are_refused(value: object) -> None:
    with pytest.raises(OffsetError):
        Offsets.from_json(value)


@given(_offsets, _offsets, st.integers(1, 10**6))
def test_prorated_ends_move_on_and_stay_inside(start: Offsets, latest: Offsets, max_rows: int) -> None:
    end = Offsets({**start, **{q: max(o, start.get(q, 0)) for q, o in latest.items()}})
    limited = prorate(start, end, max_rows)
    waiting = sum(backlog(start, end).values())
    assert sum(backlog(start, limited).values()) == min(max_rows, waiting)
    for queue, offset in limited.items():
        assert start.get(queue, 0) <= offset <= end[queue]
    assert set(limited) == set(end)


@pytest.mark.behaviour("SP-08")
@pytest.mark.parametrize("max_rows", [1, 2, 3, 10, 1000])
def test_a_small_queue_is_read_beside_a_large_backlog(max_rows: int) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(4)]
    place, latest = Offsets(dict.fromkeys(queues, 0)), Offsets(dict.fromkeys(queues, 3) | {queues[1]: 10**6})
    for _ in range(12):
        place = prorate(place, latest, max_rows)
    assert all(place[queue] == 3 for queue in queues if queue != queues[1]), "3 rows, at worst each 4th batch"
    assert place.total() == 12 * max_rows


_ranges = st.lists(
    st.builds(
        lambda q, low, rows: QueueRange(q, low, low + rows), _queues, st.integers(0, 99), st.integers(0, 9000)
    ),
    max_size=12,
    unique_by=lambda r: r.queue,
)


@given(_ranges, st.integers(1, 9))
def test_a_plan_covers_everything_once_and_evenly(ranges: list[QueueRange], tasks: int) -> None:
    total = sum(r.rows for r in ranges)
    asked = task_count(total, 1, TaskLimits(tasks))
    assert task_count(total, tasks, TaskLimits()) <= asked <= max(1, min(tasks, total))
    tasks = task_count(total, tasks, TaskLimits())
    plans = plan(ranges, tasks)
    assert len(plans) <= tasks
    rows = [sum(r.rows for r in entries) for entries in plans]
    assert sum(rows) == total
    if plans:
        assert max(rows) - min(rows) <= 1
        assert len(plans) == 1 or min(rows) >= MIN_ROWS_PER_TASK // 2
    flat = [r for entries in plans for r in entries]
    for item in ranges:
        pieces = sorted((r.low, r.high) for r in flat if r.queue == item.queue)
        if item.rows:
            assert pieces[0][0] == item.low
            assert pieces[-1][1] == item.high
            assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
        else:
            assert not pieces
    assert plan(reversed(ranges), tasks) == plans


def test_large_tasks_are_divided() -> None:
    assert task_count(10_000, 2, TaskLimits(rows=1_000)) == 10
    assert task_count(10_000, 2, TaskLimits(size_bytes=100), 1_501) == 16
    assert task_count(10_000, 2, TaskLimits(3, rows=5_000, size_bytes=1 << 30), 1 << 20) == 3
    assert task_count(5, 2, TaskLimits(size_bytes=1), 1_000) == 5


def test_divided_tasks_fill_whole_rounds_of_the_cluster() -> None:
    assert task_count(500_000, 2, TaskLimits(size_bytes=256), 520) == 4
    assert task_count(10_000, 8, TaskLimits(rows=1_000)) == 16
    assert task_count(16_000, 8, TaskLimits(rows=2_000)) == 8
    # A given number of tasks counts as long as the limits allow it.
    assert task_count(500_000, 2, TaskLimits(3, size_bytes=256), 520) == 3
    assert task_count(500_000, 2, TaskLimits(3, size_bytes=100), 520) == 6
    # There are no more tasks than rows.
    assert task_count(7, 4, TaskLimits(rows=1)) == 7
