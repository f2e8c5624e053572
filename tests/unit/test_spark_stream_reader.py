"""The guarantees of the stream reader's offsets, against a scripted cluster."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.spark import versions

if not versions.HAS_READ_LIMITS:
    pytest.skip("another version of PySpark: 4.2 or later", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.unit.spark_cluster import (
    A0,
    A1,
    B0,
    FIRST_MS,
    ScriptedCluster,
    at,
    begin,
    places,
    reader,
    rows_of,
    scripted,
)

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import RetryWindow
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import DataLossError, OffsetError, OptionError, UnreachableError
from orbitmq.spark.jobs.archive_source import ArchiveReader
from orbitmq.spark.options import Reading, read_options
from orbitmq.spark.read.partitions import CORES_VARIABLE
from orbitmq.spark.read.reading import TaskPartition
from orbitmq.spark.read.source import BatchReader
from orbitmq.spark.schema import message_schema
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    return scripted(monkeypatch)


def test_the_start_is_where_the_option_says(cluster: ScriptedCluster) -> None:
    assert places(reader().initialOffset()) == {A0: 0, A1: 10}
    assert places(reader(startingOffsets="latest").initialOffset()) == {A0: 100, A1: 60}
    by_time = reader(startingTimestamp=str(FIRST_MS + 42))
    assert places(by_time.initialOffset()) == {A0: 42, A1: 42}
    one_queue = reader(startingOffsetsByTimestamp=f'{{"t":{{"broker-a":{{"0":{FIRST_MS + 42}}}}}}}')
    assert places(one_queue.initialOffset()) == {A0: 42, A1: 10}
    ends = reader(startingOffsets='{"t":{"broker-a":{"0":-1,"1":-2}}}')
    assert places(ends.initialOffset()) == {A0: 100, A1: 10}
    cluster.group = {A0: 33}
    assert places(reader(startingOffsets="group", groupId="g").initialOffset()) == {A0: 33, A1: 10}
    named = reader(startingOffsets=Offsets({A0: 7}).text())
    assert places(named.initialOffset()) == {A0: 7, A1: 10}
    with pytest.raises(DataLossError, match=r"offset 3 of .* is gone, the first one left is 10"):
        begin(reader(startingOffsets=Offsets({A1: 3}).text()))
    lenient = reader(startingOffsets=Offsets({A1: 3}).text(), failOnDataLoss="false")
    assert places(lenient.initialOffset())[A1] == 10
    with pytest.raises(OffsetError, match="not a readable queue"):
        begin(reader(startingOffsets=Offsets({B0: 3}).text()))


@pytest.mark.behaviour("SP-02")
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_place_that_a_slave_has_not_got_yet_is_waited_for(cluster: ScriptedCluster, loss: str) -> None:
    cluster.slaves, cluster.group = {"broker-a:1"}, {A0: 120}
    for place in (
        {"startingOffsets": "group", "groupId": "g"},
        {"startingOffsets": Offsets({A0: 120}).text()},
    ):
        with pytest.raises(
            UnreachableError, match=r"a slave has not got offset 120 of .* yet, it ends at 100"
        ):
            begin(reader(failOnDataLoss=loss, **place))
    with pytest.raises(UnreachableError, match=r"a slave has not got offset 3 of .*, it begins at 10"):
        begin(reader(failOnDataLoss=loss, startingOffsets=Offsets({A1: 3}).text()))
    cluster.last[A0] = 130
    assert places(reader(startingOffsets="group", groupId="g").initialOffset())[A0] == 120


def test_a_time_after_the_last_message_is_a_mistake_unless_allowed(cluster: ScriptedCluster) -> None:
    assert places(reader(startingTimestamp=str(FIRST_MS + 70)).initialOffset()) == {A0: 70, A1: 60}
    late = str(FIRST_MS + 200)
    with pytest.raises(
        OffsetError, match=r"topic t has no message as new as startingTimestamp; .*Strategy=latest"
    ):
        begin(reader(startingTimestamp=late))
    allowed = reader(startingTimestamp=late, startingTimestampStrategy="latest")
    assert places(allowed.initialOffset()) == {A0: 100, A1: 60}


@pytest.mark.parametrize("told", [0, 10, 41, 42, 43, 59, 60, 99, 100, 1000])
def test_a_broker_that_finds_the_wrong_message_by_time_is_corrected(
    cluster: ScriptedCluster, told: int
) -> None:
    """RocketMQ 4.9 answers with the nearest message, or with the last one when all are older."""
    cluster.by_time = {A0: told, A1: told}
    for wanted, expected in ((42, {A0: 42, A1: 42}), (60, {A0: 60, A1: 60}), (-5, {A0: 0, A1: 10})):
        found = reader(startingTimestamp=str(FIRST_MS + wanted)).initialOffset()
        assert places(found) == expected


@pytest.mark.behaviour("SP-04")
@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.PULL_NOT_FOUND])
def test_a_busy_broker_is_no_message_too_old(cluster: ScriptedCluster, code: int) -> None:
    cluster.pull_failures = [Command(code, remark="later") for _ in range(3)]
    patient = reader(startingTimestamp=str(FIRST_MS + 42), offsetTimeout="10s")
    assert places(patient.initialOffset()) == {A0: 42, A1: 42}
    cluster.pull_failures = [Command(code, remark="later") for _ in range(1000)]
    with pytest.raises(UnreachableError, match=f"does not show offset .*: {code} later"):
        begin(reader(startingTimestamp=str(FIRST_MS + 42)))
    cluster.pull_failures = [Command(ResponseCode.NO_PERMISSION, remark="no")] * 9
    with pytest.raises(BrokerError, match="no"):
        begin(reader(startingTimestamp=str(FIRST_MS + 42)))


def test_topics_by_pattern_and_queues_by_number(cluster: ScriptedCluster) -> None:
    assert places(reader(topicPattern="t|u").initialOffset()) == {A0: 0, A1: 10}
    with pytest.raises(TopicNotFoundError, match="no topic has a name that matches topicPattern='x'"):
        begin(reader(topicPattern="x"))
    one = reader(assign='{"t":{"broker-a":[1]}}')
    assert places(one.latestOffset(one.initialOffset(), ReadAllAvailable())) == {A1: 60}
    with pytest.raises(OffsetError, match=r"option assign names .*broker-a.*7.*not a readable queue"):
        begin(reader(assign='{"t":{"broker-a":[7]}}'))


def test_a_batch_is_limited_in_bytes_by_a_sample(cluster: ScriptedCluster) -> None:
    cluster.last = {A0: 10_000, A1: 10_010}
    cluster.body_bytes = 4 << 20
    stream = reader()
    end = places(stream.latestOffset(at(), stream.getDefaultReadLimit()))
    assert 400 <= end[A0] + end[A1] - 10 <= 512  # 2 GiB of 4 MiB messages
    assert cluster.samples == 2
    everything = places(stream.latestOffset(at(), ReadAllAvailable()))
    assert everything == {A0: 10_000, A1: 10_010}
    small = reader(maxBytesPerTrigger="1k")
    end = places(small.latestOffset(at(), small.getDefaultReadLimit()))
    assert end[A0] + end[A1] - 10 == 1, "at least one row, however large"


def test_a_few_rows_are_not_sampled(cluster: ScriptedCluster) -> None:
    cluster.last = {A0: 10, A1: 20}
    stream = reader()
    stream.latestOffset(at(), stream.getDefaultReadLimit())
    assert cluster.samples == 0


def test_progress_is_published_when_a_batch_is_done(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stream = reader(groupId="g")
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert cluster.committed_offsets == [], "no batch is done"
    stream.latestOffset(end, stream.getDefaultReadLimit())
    assert cluster.committed_offsets == [("g", "0", "100"), ("g", "1", "60")]
    assert cluster.heartbeats == 1
    stream.latestOffset(end, stream.getDefaultReadLimit())
    assert len(cluster.committed_offsets) == 2, "nothing new"
    cluster.last[A1] = 61
    end = stream.latestOffset(end, stream.getDefaultReadLimit())
    cluster.refusal = ResponseCode.SYSTEM_BUSY
    assert places(stream.latestOffset(end, stream.getDefaultReadLimit()))[A1] == 61
    assert "the progress of group g is not published" in caplog.text
    cluster.refusal = ResponseCode.SUCCESS
    stream.latestOffset(end, stream.getDefaultReadLimit())
    assert cluster.committed_offsets[-1] == ("g", "1", "61")
    assert cluster.heartbeats == 1


def test_tasks_are_limited_in_bytes(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES_VARIABLE, "4")
    cluster.last = {A0: 1_000, A1: 1_010}
    cluster.body_bytes = 1 << 20
    stream = reader(maxBytesPerTask="100m")
    end = stream.latestOffset(at(), stream.getDefaultReadLimit())
    # 21 tasks would do; 24 are six rounds of the four cores, without idle ones.
    assert len(stream.partitions(at(), end)) == 24


def test_the_end_moves_on_and_never_back(cluster: ScriptedCluster) -> None:
    stream = reader()
    end = stream.latestOffset(at(), ReadAllAvailable())
    assert places(end) == {A0: 100, A1: 60}
    del cluster.last[A0]  # a queue that is gone keeps its offset
    cluster.last[A1] = 61
    assert places(stream.latestOffset(end, ReadAllAvailable())) == {A0: 100, A1: 61}


def test_a_queue_that_lost_its_end_is_loss(cluster: ScriptedCluster) -> None:
    end = reader().latestOffset(at(), ReadAllAvailable())
    cluster.last = {A0: 90, A1: 61}  # the topic was created again, or a failover lost ten messages
    with pytest.raises(DataLossError, match=r"t/broker-a/0 ends at 90, but was read up to 100"):
        reader().latestOffset(end, ReadAllAvailable())
    lenient = reader(failOnDataLoss="false")
    after = lenient.latestOffset(end, ReadAllAvailable())
    assert places(after) == {A0: 90, A1: 61}
    assert rows_of(lenient.partitions(end, after)) == {A1: (60, 61)}
    cluster.last[A0] = 95
    following = lenient.latestOffset(after, ReadAllAvailable())
    assert rows_of(lenient.partitions(after, following)) == {A0: (90, 95)}


@pytest.mark.behaviour("SP-10")
def test_an_archive_never_takes_an_offset_twice(cluster: ScriptedCluster) -> None:
    options = read_options(
        {"topic": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"}, Reading.STREAM
    )
    stream = ArchiveReader(options, {})
    end = stream.latestOffset(at(), ReadAllAvailable())
    cluster.last[A0] = 5
    with pytest.raises(DataLossError, match=r"ends at 5, but was read up to 100: .*; .*to another folder"):
        stream.latestOffset(end, ReadAllAvailable())


def test_a_slave_that_is_behind_has_lost_nothing(cluster: ScriptedCluster) -> None:
    end = reader().latestOffset(at(), ReadAllAvailable())
    cluster.slaves = {"broker-a:1"}
    cluster.last = {A0: 90, A1: 60}
    assert reader().latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.behaviour("SP-02")
def test_an_end_of_available_now_that_a_slave_told_is_no_loss(cluster: ScriptedCluster) -> None:
    cluster.slaves, cluster.last[A0] = {"broker-a:1"}, 90
    stream = reader(failOnDataLoss="false")
    stream.prepareForTriggerAvailableNow()
    cluster.slaves, cluster.last[A0] = set(), 130  # the master is back
    place = Offsets({A0: 100, A1: 60}).to_json()
    assert stream.latestOffset(place, ReadAllAvailable()) == place
    cluster.last[A0] = 95
    assert places(stream.latestOffset(place, ReadAllAvailable()))[A0] == 95, "now it is"


def test_a_batch_is_replayed_from_its_end_alone(cluster: ScriptedCluster) -> None:
    """Spark keeps only the ends, requests the first offsets again, and may run on a machine with
    other cores.
    """
    cluster.last[B0], cluster.first[B0] = 9000, 5
    first = reader(startingOffsets="latest", parallelism="3")
    start = first.initialOffset()
    cluster.last = {A0: 7000, A1: 8000, B0: 9001}
    end = first.latestOffset(start, ReadAllAvailable())
    planned = first.partitions(start, end)
    assert len(planned) == 3
    again = reader(startingOffsets="latest", parallelism="1")
    cluster.last = {A0: 7500, A1: 8000, B0: 9500}
    replayed = again.partitions(again.initialOffset(), json.loads(json.dumps(end)))
    assert [task.ranges for task in replayed] == [task.ranges for task in planned]
    # The end contains the start of a new queue, whatever is deleted by the time of the replay.
    new = MessageQueue("t", "broker-c", 0)
    cluster.first[new], cluster.last[new] = 20, 30
    following = first.latestOffset(end, ReadAllAvailable())
    cluster.first[new] = 29
    assert rows_of(reader().partitions(end, following))[new] == (20, 30)


def test_checkpoints_of_the_first_form_go_on(cluster: ScriptedCluster) -> None:
    old = Offsets({A0: 50}).to_json()
    assert old["v"] == 1
    end = reader().latestOffset(old, ReadAllAvailable())
    assert rows_of(reader().partitions(old, end)) == {A0: (50, 100), A1: (10, 60)}
    plain_end = Offsets({A0: 60, A1: 40}).to_json()
    assert rows_of(reader().partitions(old, plain_end)) == {A0: (50, 60), A1: (10, 40)}


def test_a_new_queue_is_read_from_its_first_message(cluster: ScriptedCluster) -> None:
    cluster.first[B0], cluster.last[B0] = 5, 9
    stream = reader()
    end = stream.latestOffset(at(), ReadMaxRows(72))
    assert sum(places(end).values()) - 15 == 72  # the starts are 0, 10 and 5
    planned = stream.partitions(at(), stream.latestOffset(at(), ReadAllAvailable()))
    ranges = [r for task in planned if isinstance(task, TaskPartition) for r in task.ranges]
    assert [(r.low, r.high) for r in ranges if r.queue == B0] == [(5, 9)]


def test_an_absent_cluster_is_waited_for_then_it_is_an_error(cluster: ScriptedCluster) -> None:
    stream = reader(offsetTimeout="1200ms")
    cluster.error = UnreachableError("cut")
    assert stream.latestOffset(at(), ReadAllAvailable()) == at()
    cluster.error = None
    assert places(stream.latestOffset(at(), ReadAllAvailable()))[A0] == 100
    cluster.error = UnreachableError("cut")
    assert stream.latestOffset(at(), ReadAllAvailable()) == at()
    with pytest.raises(UnreachableError):
        _ = [stream.latestOffset(at(), ReadAllAvailable()) for _ in range(100)]
    cluster.error = TopicNotFoundError("t", "the name server just started")
    assert reader().latestOffset(at(), ReadAllAvailable()) == at()


def test_failures_of_an_hour_ago_do_not_count(cluster: ScriptedCluster) -> None:
    stream = reader(offsetTimeout="300ms")
    for _ in range(12):
        cluster.error = UnreachableError("cut")
        assert stream.latestOffset(at(), ReadAllAvailable()) == at()
        RetryWindow(40).pause()
        cluster.error = None
        assert places(stream.latestOffset(at(), ReadAllAvailable()))[A0] == 100


def test_few_rows_wait_until_the_delay_is_over(cluster: ScriptedCluster) -> None:
    stream = reader(minRowsPerTrigger="500", maxTriggerDelay="60ms")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(500)
    assert stream.latestOffset(at(), limit) == at()
    deadline = 200
    while stream.latestOffset(at(), limit) == at() and deadline:
        deadline -= 1
        RetryWindow(20).pause()
    assert deadline, "the delay ended the wait"
    assert places(stream.latestOffset(at(), ReadAllAvailable())) == {A0: 100, A1: 60}
    assert reader(maxRowsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert reader().getDefaultReadLimit() == ReadMaxRows((1 << 63) - 1)


def test_available_now_ends_where_it_began(cluster: ScriptedCluster) -> None:
    stream = reader(minRowsPerTrigger="1000")
    stream.prepareForTriggerAvailableNow()
    cluster.last = {A0: 200, A1: 70, B0: 5}
    end = stream.latestOffset(at(), ReadMinRows(1000))
    assert places(end) == {A0: 100, A1: 60}
    assert stream.latestOffset(end, ReadMinRows(1000)) == end


def test_offsets_between_two_places_are_tasks(cluster: ScriptedCluster) -> None:
    stream = reader(parallelism="3")
    for rows in (9000, 30):
        assert len(stream.partitions(at(), Offsets({A0: rows, A1: 10}).to_json())) == 3
    assert stream.partitions(at(), at()) == []


def test_a_checkpoint_of_another_topic_or_version_is_refused(cluster: ScriptedCluster) -> None:
    other = Offsets({MessageQueue("payments", "broker-a", 0): 5}).to_json()
    text = (
        "the checkpoint is that of a query of payments, this one reads t: give it another checkpointLocation"
    )
    with pytest.raises(OffsetError, match=text):
        reader().latestOffset(other, ReadAllAvailable())
    with pytest.raises(OffsetError, match=text):
        reader().partitions(at(), other)
    with pytest.raises(OffsetError, match=r"this one reads topicPattern 't\|u'"):
        reader(topicPattern="t|u").latestOffset(other, ReadAllAvailable())
    # A restarted query may have more topics, or fewer.
    both = Offsets({MessageQueue("payments", "broker-a", 0): 5, A0: 100, A1: 60}).to_json()
    assert places(reader().latestOffset(both, ReadAllAvailable())) == places(both)
    with pytest.raises(OffsetError, match=r'offsets must be {"v":1,"t":{...}}, got {"logOffset": 3}'):
        reader().latestOffset({"logOffset": 3}, ReadAllAvailable())


def test_an_end_before_the_begin_of_a_batch_read_is_loss(cluster: ScriptedCluster) -> None:
    places_of = {
        "startingOffsets": '{"t":{"broker-a":{"0":50}}}', "endingOffsets": '{"t":{"broker-a":{"0":40}}}',
    }  # fmt: skip
    with pytest.raises(DataLossError, match=r"ends at 40, before the begin of the read at 50"):
        BatchReader(read_options({"topic": "t", **places_of}), message_schema()).partitions()


def test_the_expression_is_checked_before_anything_is_read(cluster: ScriptedCluster) -> None:
    """RocketMQ sends all messages, unfiltered, when it cannot parse the expression of a pull."""
    stream = reader(sql="price > 5")
    end = stream.latestOffset(at(), ReadAllAvailable())
    assert cluster.checked == []
    stream.partitions(at(), end)
    stream.partitions(at(), end)
    assert cluster.checked == ["broker-a:1"], "once"
    cluster.refusal, cluster.remark = ResponseCode.SUBSCRIPTION_PARSE_FAILED, "column 7"
    with pytest.raises(OptionError, match=r"option sql='price >': broker-a:1 cannot filter by it: column 7"):
        reader(sql="price >").partitions(at(), end)
    batch = BatchReader(read_options({"topic": "t", "sql": "price >"}), message_schema())
    with pytest.raises(OptionError, match="option sql='price >'"):
        batch.partitions()
    cluster.refusal = ResponseCode.SYSTEM_BUSY
    with pytest.raises(UnreachableError, match="broker-a:1 is busy: column 7"):
        reader(sql="price > 5").partitions(at(), end)


def test_a_restart_with_an_expression_waits_for_its_name_servers(cluster: ScriptedCluster) -> None:
    """Spark requests the tasks of the last batch first, before the reader knows the cluster."""
    cluster.last[B0], cluster.first[B0] = 5, 0
    end = reader().latestOffset(at(), ReadAllAvailable())
    away = UnreachableError("no name server gave an answer")
    just_started: list[Exception | set[str]] = [
        TopicNotFoundError("t", "not known"),
        {"broker-a"},
        {"broker-a"},
    ]
    cluster.routes = [away, away, *just_started]
    tasks = reader(sql="price > 5", offsetTimeout="10s").partitions(at(), end)
    assert rows_of(tasks)[B0] == (0, 5)
    assert cluster.checked == ["broker-a:1", "broker-b:1"]
    cluster.routes = [away] * 1000
    with pytest.raises(UnreachableError, match="no name server"):
        reader(sql="price > 5").partitions(at(), end)
    cluster.routes = [{"broker-a"}] * 1000
    with pytest.raises(UnreachableError, match=r"no broker serves t/broker-b/0"):
        reader(sql="price > 5").partitions(at(), end)
