"""Streams beside a broker that does not respond, against a scripted cluster."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.spark import versions

if not versions.HAS_READ_LIMITS:
    pytest.skip("another version of PySpark: 4.2 or later", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable
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

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import RetryWindow
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import OffsetError, UnreachableError
from orbitmq.spark.read.stream_reader import StreamReader

U0 = MessageQueue("u", "broker-u", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    return scripted(monkeypatch)


def test_the_tasks_of_a_planned_batch_wait_for_a_silent_broker_while_another_one_answers(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.last[B0], cluster.first[B0] = 5, 2
    end = reader().latestOffset(at(), ReadAllAvailable())
    cluster.others_answer = True
    cluster.routes = [{"broker-a"}] * 30  # for several timeouts
    assert rows_of(reader(sql="price > 5").partitions(at(), end))[B0] == (2, 5)
    assert caplog.messages == ["a batch waits for broker-b: no broker serves t/broker-b/0"]
    caplog.clear()
    # The ends of an older release do not contain the start of a new queue.
    older = Offsets(places(end)).to_json()
    cluster.error = UnreachableError("broker-b:1 away")

    def another_answers(topics: Any, broker_name: str | None) -> bool:
        cluster.error = None  # broker-b is back
        return True

    monkeypatch.setattr(cluster, "another_answers", another_answers)
    assert rows_of(reader().partitions(at(), older))[B0] == (2, 5)
    assert caplog.messages == ["a batch waits for a broker that does not answer: broker-b:1 away"]


def test_one_broker_away_does_not_stop_the_others(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.first[B0], cluster.last[B0] = 0, 50
    stream = reader(offsetTimeout="1ms")
    cluster.away = {"broker-a:1"}
    end = at()
    for rows in range(50, 60):  # for any length of time
        cluster.last[B0] = rows
        end = stream.latestOffset(end, ReadAllAvailable())
        assert places(end) == {A0: 0, A1: 10, B0: rows}
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # one a minute
    assert "broker-a:1 away" in caplog.text
    cluster.away.clear()
    assert places(stream.latestOffset(end, ReadAllAvailable())) == {A0: 100, A1: 60, B0: 59}


def test_a_broker_that_the_name_servers_took_out_is_told_as_well(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.first[B0], cluster.last[B0] = 0, 50
    stream = reader()
    end = stream.latestOffset(at(), ReadAllAvailable())
    del cluster.last[B0]
    for rows in range(101, 105):
        cluster.last[A0] = rows
        end = stream.latestOffset(end, ReadAllAvailable())
        assert places(end) == {A0: rows, A1: 60, B0: 50}
    assert caplog.messages == [
        "some queues wait, the others go on: the name servers do not show broker-b any more"
    ]
    caplog.clear()
    reader().latestOffset(end, ReadAllAvailable())
    assert not caplog.messages, "who takes a broker out for good restarts the query"


@pytest.mark.behaviour("SP-09")
def test_a_queue_that_its_topic_lost_is_told(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stream = reader()
    end = stream.latestOffset(at(), ReadAllAvailable())
    del cluster.last[A1]
    cluster.last[A0] = 101
    after = stream.latestOffset(end, ReadAllAvailable())
    assert places(after) == {A0: 101, A1: 60}, "it keeps its place"
    assert f"{A1} is no queue of its topic any more" in caplog.text
    caplog.clear()
    assert reader().latestOffset(after, ReadAllAvailable()) == after
    assert not caplog.text, "a restart ends the warnings"


def test_a_topic_that_went_with_its_only_broker_waits_and_the_others_go_on(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Name servers drop a topic when they drop its last broker."""
    cluster.first[U0], cluster.last[U0] = 0, 50
    stream = reader(topic="t,u", offsetTimeout="1ms", groupId="g")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    cluster.unknown = {"u"}
    for rows in range(101, 105):  # for any length of time
        cluster.last[A0] = rows
        end = stream.latestOffset(end, ReadAllAvailable())
        assert places(end) == {A0: rows, A1: 60, U0: 50}
    assert ("g", "0", "103") in cluster.committed_offsets, "the group follows in the other topics"
    assert [text for text in caplog.messages if text.startswith("some queues")] == [
        "some queues wait, the others go on: u is unknown; the name servers do not show broker-u any more"
    ]
    new = MessageQueue("t", "broker-a", 2)
    cluster.first[new], cluster.last[new] = 3, 7
    before, end = end, stream.latestOffset(end, ReadAllAvailable())
    assert rows_of(stream.partitions(before, end)) == {new: (3, 7)}
    cluster.unknown.clear()
    cluster.last[U0] = 51
    assert places(stream.latestOffset(end, ReadAllAvailable()))[U0] == 51


def test_a_query_of_nothing_but_such_a_topic_fails_after_the_time_out(cluster: ScriptedCluster) -> None:
    cluster.first[U0], cluster.last[U0] = 0, 50
    stream = reader(topic="u", offsetTimeout="1ms")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    cluster.unknown = {"u"}
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(TopicNotFoundError, match="u is unknown"):
        stream.latestOffset(end, ReadAllAvailable())


def test_a_topic_that_is_not_there_is_an_error_when_a_query_begins(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.unknown = {"u"}
    with pytest.raises(TopicNotFoundError, match="u is unknown"):
        begin(reader(topic="t,u"))
    with pytest.raises(OffsetError, match=r"option assign names .*, which is not a readable queue"):
        begin(reader(assign='{"t":{"broker-a":[0],"broker-b":[0]}}'))
    # A run with availableNow leaves it to the next run.
    later = reader(topic="t,u")
    later.prepareForTriggerAvailableNow()
    assert places(later.latestOffset(at(), ReadAllAvailable())) == {A0: 100, A1: 60}
    some = reader(assign='{"t":{"broker-a":[0],"broker-b":[0]}}')
    some.prepareForTriggerAvailableNow()
    assert caplog.messages == [
        "queues of topic u are left to the next run (availableNow): u is unknown",
        "queues of topic t are left to the next run (availableNow): no broker serves t/broker-b/0",
    ]


def played_again(stream: StreamReader, end: dict[str, Any]) -> Any:
    """The call that Spark makes for a query whose first batch is planned but not committed."""
    return stream.partitions(stream.initialOffset(), end)


@pytest.mark.parametrize("place", ["earliest", "latest", '{"t":{"broker-a":{"0":7}}}'])
def test_a_first_batch_that_is_run_again_knows_its_topics(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The name servers dropped one topic with its broker, before the query committed a batch."""
    cluster.first[U0], cluster.last[U0] = 4, 50
    options = {"topic": "t,u", "startingOffsets": place}
    stream = reader(**options)
    start = stream.initialOffset()
    cluster.last |= {A0: 200, A1: 70, U0: 60}
    end = stream.latestOffset(start, ReadAllAvailable())
    planned = rows_of(stream.partitions(start, end))
    assert U0 in planned
    cluster.unknown = {"u"}
    again = reader(**options)
    assert rows_of(played_again(again, end)) == planned
    assert [text for text in caplog.messages if "u is unknown" in text] == [
        "the first batch is run again, its end says where it begins: u is unknown"
    ]
    cluster.last[A0] = 201
    assert places(again.latestOffset(end, ReadAllAvailable())) == {A0: 201, A1: 70, U0: 60}
    # Other problems at that time do not matter, since the batch does not need that broker.
    cluster.away = {"broker-a:1"}
    assert rows_of(played_again(reader(**options), end)) == planned


def test_a_first_batch_that_is_run_again_does_not_know_another_topic(cluster: ScriptedCluster) -> None:
    cluster.first[U0], cluster.last[U0] = 4, 50
    stream = reader()
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    cluster.unknown = {"u"}
    for _ in range(2):
        with pytest.raises(TopicNotFoundError, match="u is unknown"):
            played_again(reader(topic="t,u"), end)
    with pytest.raises(OffsetError, match=r"option assign names .*, which is not a readable queue"):
        played_again(reader(assign='{"t":{"broker-a":[0],"broker-b":[0]}}'), end)
    older = Offsets({A0: 100, A1: 60, U0: 50}).to_json()
    with pytest.raises(TopicNotFoundError, match="u is unknown"):
        # the end does not contain where the topic begins
        played_again(reader(topic="t,u", startingOffsets="latest"), older)


def test_a_batch_of_an_older_release_waits_for_its_queues_to_be_shown(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their first messages, which no offset names, must not be taken for lost."""
    cluster.first[U0], cluster.last[U0] = 40, 50
    older = Offsets({A0: 100, A1: 60, U0: 50}).to_json()
    cluster.unknown = {"u"}

    def another_answers(topics: Any, broker_name: str | None) -> bool:
        cluster.unknown.clear()
        return True

    monkeypatch.setattr(cluster, "another_answers", another_answers)
    assert rows_of(reader(topic="t,u").partitions(at(), older))[U0] == (40, 50)


def test_a_silent_broker_is_told_of_the_group_now_and_again(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request costs a request timeout, during which the others wait."""
    cluster.first[B0], cluster.last[B0] = 0, 50
    stream = reader(groupId="g")
    end = stream.latestOffset(at(), ReadAllAvailable())
    asked: list[str] = []
    answer = cluster.ask

    def ask(address: str, commands: Any) -> Any:
        asked.append(address)
        if address == "broker-b:1":
            raise UnreachableError("broker-b:1 away")
        return answer(address, commands)

    monkeypatch.setattr(cluster, "ask", ask)
    for rows in range(101, 105):
        cluster.last[A0] = rows
        end = stream.latestOffset(end, ReadAllAvailable())
    assert asked.count("broker-b:1") == 1
    assert cluster.committed_offsets[-1] == ("g", "0", "103")


def test_available_now_leaves_the_queues_of_a_silent_broker_to_the_next_run(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.first[B0], cluster.last[B0] = 0, 50
    cluster.away = {"broker-a:1"}
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    (text,) = caplog.messages
    assert text.startswith("broker-a does not answer, its queues are left to the next run (availableNow): ")
    cluster.away.clear()
    end = stream.latestOffset(at(), ReadAllAvailable())
    assert places(end) == {A0: 0, A1: 10, B0: 50}
    assert stream.latestOffset(end, ReadAllAvailable()) == end, "the run is over"
    following = reader()
    following.prepareForTriggerAvailableNow()
    assert places(following.latestOffset(end, ReadAllAvailable())) == {A0: 100, A1: 60, B0: 50}
    cluster.away = {"broker-a:1", "broker-b:1"}
    with pytest.raises(UnreachableError, match="away"):
        reader().prepareForTriggerAvailableNow()


@pytest.mark.behaviour("SP-09")
def test_available_now_names_a_broker_that_nobody_shows(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    place = Offsets({A0: 0, A1: 10, B0: 5}).to_json()
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    for _ in range(2):
        place = stream.latestOffset(place, ReadAllAvailable())
    assert places(place) == {A0: 100, A1: 60, B0: 5}
    told = "the name servers do not show broker-b, its queues are left to the next run (availableNow)"
    assert caplog.messages == [told]


@pytest.mark.behaviour("SP-07")
def test_available_now_does_not_end_while_a_new_queue_is_silent(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.first[B0], cluster.last[B0] = 7, 50
    for away in ({"broker-b:1"}, {"broker-a:1", "broker-b:1"}):
        stream = reader()
        stream.prepareForTriggerAvailableNow()
        cluster.away = set(away)
        with monkeypatch.context() as patch:
            patch.setattr(RetryWindow, "pause", lambda _: cluster.away.clear())
            end = stream.latestOffset(at(), ReadAllAvailable())
        assert rows_of(stream.partitions(at(), end))[B0] == (7, 50), "it came back meanwhile"
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    cluster.error = UnreachableError("no name server")
    with pytest.raises(UnreachableError, match="no name server"):
        stream.latestOffset(at(), ReadAllAvailable())


def test_a_first_start_at_the_first_messages_does_without_a_silent_broker(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.first[B0], cluster.last[B0] = 7, 50
    cluster.away = {"broker-b:1"}
    stream = reader()
    start = stream.initialOffset()
    assert places(start) == {A0: 0, A1: 10}
    assert "broker-b does not answer, its queues are read from their first message on" in caplog.text
    end = stream.latestOffset(start, ReadAllAvailable())
    assert places(end) == {A0: 100, A1: 60}
    cluster.away.clear()
    after = stream.latestOffset(end, ReadAllAvailable())
    assert rows_of(stream.partitions(end, after)) == {B0: (7, 50)}
    # A restart repeats the first batch when the broker responds: it is the same batch.
    again = reader()
    assert rows_of(again.partitions(again.initialOffset(), end)) == {A0: (0, 100), A1: (10, 60)}
    cluster.away = {"broker-a:1", "broker-b:1"}
    with pytest.raises(UnreachableError, match="away"):
        begin(reader())


@pytest.mark.parametrize("place", [{"startingOffsets": "latest"}, {"startingTimestamp": str(FIRST_MS + 20)}])
def test_any_other_first_start_needs_every_broker(cluster: ScriptedCluster, place: dict[str, str]) -> None:
    cluster.first[B0], cluster.last[B0] = 7, 50
    cluster.away = {"broker-b:1"}
    with pytest.raises(UnreachableError, match="broker-b:1 away"):
        begin(reader(**place))
