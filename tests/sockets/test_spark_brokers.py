"""The planner of a stream over real sockets: servers that close idle connections, one that says nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record, iter_records
from orbitmq.spark.cluster import connections
from orbitmq.spark.cluster.brokers import Brokers, max_offset
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.cluster.routes import forget_routes
from orbitmq.spark.errors import DataLossError, NotPermittedError, UnreachableError
from orbitmq.spark.options import Reading, read_options
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.read.reading import TaskPartition
from orbitmq.spark.read.stream import Stream
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers.offset import GetMaxOffsetResponse, GetMinOffsetResponse
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

Answer = Callable[[Command], Command | None]
A0, B0 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)
READ_AND_WRITE = 6


class Server:
    """Answers frames. ``None`` is no answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                decoder.feed(data)
                for command in decoder.commands():
                    answer = self._answer(command)
                    if answer is not None:
                        connection.sendall(encode_frame(answer))

    def close_connections(self) -> None:
        """As a server does with idle ones."""
        _close(self._open)
        self._open.clear()

    def close(self) -> None:
        _close([self._listener, *self._open])


def _close(sockets: list[socket.socket]) -> None:
    for opened in sockets:
        # close() alone does not end a socket on which another thread waits.
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)
        opened.close()


class Cluster:
    """A name server and two brokers with a queue each; broker-b answers as long as it is not silent."""

    def __init__(self, perm: int = READ_AND_WRITE) -> None:
        self.end = 5
        self.silent = False
        self.perm = perm
        self.role = "ASYNC_MASTER"
        self.deleted = False
        """The brokers do not have the topic any more."""
        self.routes_asked = 0
        self.broker_a = Server(self._offset)
        self.unanswered = 0
        """The number of requests to broker-b while it was silent."""
        self.broker_b = Server(self._offset_unless_silent)
        self.name_server = Server(self._route)

    def _offset_unless_silent(self, command: Command) -> Command | None:
        self.unanswered += self.silent
        return None if self.silent else self._offset(command)

    def _offset(self, command: Command) -> Command:
        if command.code == RequestCode.GET_MIN_OFFSET:
            return GetMinOffsetResponse(offset=0).reply_to(command)
        if command.code == RequestCode.GET_BROKER_CONFIG:
            # As RocketMQ writes it on Windows: nothing is escaped.
            return command.reply(body=f"storePathRootDir=C:\\users\nbrokerRole={self.role}\n".encode())
        if self.deleted:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, "the topic is gone")
        if command.code == RequestCode.PULL_MESSAGE:
            return self._messages(command)
        assert command.code == RequestCode.GET_MAX_OFFSET
        return GetMaxOffsetResponse(offset=self.end).reply_to(command)

    def _messages(self, command: Command) -> Command:
        low = PullMessageRequest.from_ext(command.ext).queue_offset
        body = b"".join(encode_record(Record("t", b"x", queue_offset=at)) for at in range(low, self.end))
        answer = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=self.end, min_offset=0, max_offset=self.end
        ).reply_to(command)
        answer.body = body
        return answer

    def stop_name_server(self, outage: str) -> None:
        """The name server goes away, freezes, or is started anew before a broker has registered."""
        if outage == "away":
            self.name_server.close()
        elif outage == "frozen":
            self.name_server._answer = lambda command: None
        else:
            self.name_server._answer = self._nothing_known

    def _nothing_known(self, command: Command) -> Command:
        if command.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return command.reply(body=TopicList(set()).encode())
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            known = {"broker-a": BrokerData("c", "broker-a", {})} if self.deleted else {}
            return command.reply(body=ClusterInfo(known).encode())
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no topic route info")

    def _route(self, command: Command) -> Command:
        self.routes_asked += command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        if command.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return command.reply(
                body=TopicList({"t", "t2", "%RETRY%t", "%DLQ%t", "TBW102", "SCHEDULE_TOPIC_XXXX"}).encode()
            )
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        servers = {"broker-a": self.broker_a, "broker-b": self.broker_b}
        queues = [QueueData(name, 1, 1, self.perm) for name in servers]
        brokers = [BrokerData("c", name, {0: server.address}) for name, server in servers.items()]
        return command.reply(body=TopicRouteData(queues, brokers).encode())

    def stream(self, **options: str) -> Stream:
        what = {} if "topicPattern" in options else {"topic": "t"}
        start = {"startingOffsets": "earliest"}
        given = {**what, **start, "nameServers": self.name_server.address, **options}
        return Stream(read_options(given, Reading.STREAM))

    def close(self) -> None:
        for server in (self.broker_a, self.broker_b, self.name_server):
            server.close()


@pytest.fixture
def cluster_of() -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(perm: int = READ_AND_WRITE) -> Cluster:
        made.append(Cluster(perm))
        return made[-1]

    yield make
    connections.close_connections()
    forget_routes()
    for cluster in made:
        cluster.close()


def test_ten_triggers_with_servers_that_close_idle_connections(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of()
    stream = cluster.stream()
    at = stream.initial()
    for number in range(10):
        for server in (cluster.broker_a, cluster.broker_b, cluster.name_server):
            server.close_connections()
        cluster.end += 1
        at = stream.latest(at)
        assert dict(Offsets.from_json(at)) == {A0: cluster.end, B0: cluster.end}, number
    assert cluster.broker_a.connections >= 10, "each trigger found its connection closed"


def test_a_silent_broker_holds_up_no_trigger_for_long(cluster_of: Callable[..., Cluster]) -> None:
    """Both are asked at the same time, and the silent one then only now and again."""
    cluster = cluster_of()
    stream = cluster.stream(requestTimeout="3s")
    at = stream.latest(stream.initial())
    cluster.silent = True
    triggers = 12
    for _ in range(triggers):
        cluster.end += 1
        at = stream.latest(at)
        assert Offsets.from_json(at)[A0] == cluster.end
        assert Offsets.from_json(at)[B0] == 5
    # The first one waits for the time-out; while the broker is left alone the others do not.
    assert 1 <= cluster.unanswered <= triggers // 2
    cluster.silent = False
    deadline = time.monotonic() + 60
    while Offsets.from_json(at)[B0] == 5 and time.monotonic() < deadline:
        at = stream.latest(at)
    assert Offsets.from_json(at)[B0] == cluster.end


def test_a_topic_without_a_readable_queue_is_an_error(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of(perm=2)  # may be written only
    stream = cluster.stream(offsetTimeout="100ms")
    at = stream.initial()
    with pytest.raises(
        NotPermittedError, match=r"topic 't' can only be written: .*topic create t --queues 1"
    ):
        stream.latest(at)


@pytest.mark.behaviour("SP-02")
@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_a_slave_in_the_place_of_its_master_may_only_be_behind(
    cluster_of: Callable[..., Cluster], role: str
) -> None:
    """Name servers show it without write permission; so they show a master that is taken out of use."""
    cluster = cluster_of(perm=4)
    cluster.role = role
    stream = cluster.stream()
    at = stream.latest(stream.initial())
    cluster.end = 3
    if role == "SLAVE":
        assert stream.latest(at) == at, "what the master has is still to come"
    else:
        with pytest.raises(DataLossError, match="ends at 3, but was read up to 5"):
            stream.latest(at)


def test_all_brokers_are_asked_at_the_same_time(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of()
    meeting = threading.Barrier(2, timeout=60)

    def together(command: Command) -> Command:
        if command.code == RequestCode.GET_MAX_OFFSET:
            meeting.wait()
        return cluster._offset(command)

    cluster.broker_a._answer = cluster.broker_b._answer = together
    brokers = Brokers([cluster.name_server.address], 20_000)
    assert brokers.offsets(brokers.readable(["t"]), max_offset) == {A0: 5, B0: 5}


def test_a_pattern_finds_no_retry_dead_letter_or_system_topic(cluster_of: Callable[..., Cluster]) -> None:
    brokers = Brokers([cluster_of().name_server.address], 5_000)
    assert brokers.topics_like(".*") == ("t", "t2")
    assert brokers.topics_like("t") == ("t",), "whole names"


def rows_of(stream: Stream, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[MessageQueue, int]]:
    """The rows that the tasks of a batch read."""
    options = stream._options
    found = []
    for task in stream.tasks(start, end):
        assert isinstance(task, TaskPartition)
        brokers = Brokers(options.name_servers, options.request_timeout_ms, task.routes)
        for piece in RangeReader(brokers, options).pieces(task.ranges):
            found += [(piece.queue, record.queue_offset) for record in iter_records(bytes(piece.records))]
    return found


@pytest.mark.behaviour("SP-11")
@pytest.mark.parametrize("outage", ["away", "frozen", "empty"])
@pytest.mark.parametrize("topics", [{"topic": "t"}, {"topicPattern": "t"}], ids=["topic", "pattern"])
def test_known_routes_serve_without_name_servers(
    cluster_of: Callable[..., Cluster], outage: str, topics: dict[str, str]
) -> None:
    """Name servers of three kinds: none, one that does not answer, one that was restarted."""
    cluster = cluster_of()
    stream = cluster.stream(offsetTimeout="200ms", **topics)
    at = stream.latest(stream.initial())
    cluster.stop_name_server(outage)
    begin = time.monotonic()
    while time.monotonic() - begin < 1.5:  # seven times offsetTimeout
        cluster.end += 1
        end = stream.latest(at)
        assert dict(Offsets.from_json(end)) == {A0: cluster.end, B0: cluster.end}
        assert len(rows_of(stream, at, end)) == 2
        at = end
    asked = cluster.routes_asked
    cluster.name_server._answer = cluster._route
    cluster.end += 1
    at = stream.latest(at)
    assert len(rows_of(stream, stream.latest(at), at)) == 0
    assert outage != "empty" or cluster.routes_asked > asked, "name servers are asked all the same"


@pytest.mark.behaviour("SP-11")
def test_a_task_asks_no_name_server(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of()
    stream = cluster.stream()
    start = stream.latest(stream.initial())
    cluster.end += 3
    end = stream.latest(start)
    tasks = stream.tasks(start, end)
    asked = cluster.routes_asked
    for task in tasks:
        assert isinstance(task, TaskPartition)
        brokers = Brokers(stream._options.name_servers, 5_000, task.routes)
        assert sum(piece.rows for piece in RangeReader(brokers, stream._options).pieces(task.ranges)) > 0
    assert cluster.routes_asked == asked


@pytest.mark.behaviour("SP-11")
@pytest.mark.parametrize("outage", ["away", "empty"])
def test_a_known_route_serves_until_a_broker_refuses(cluster_of: Callable[..., Cluster], outage: str) -> None:
    cluster = cluster_of()
    stream = cluster.stream(offsetTimeout="200ms")
    at = stream.latest(stream.initial())
    cluster.stop_name_server(outage)
    cluster.deleted = True
    expected = "name server" if outage == "away" else "topic 't' is not known"

    def go_on() -> None:
        for _ in range(100):
            assert stream.latest(at) == at
            time.sleep(0.02)

    with pytest.raises(OrbitError, match=expected):
        go_on()


@pytest.mark.behaviour("SP-11")
@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_without_a_name_server_a_master_is_asked_whether_it_still_is_one(
    cluster_of: Callable[..., Cluster], role: str
) -> None:
    cluster = cluster_of()
    stream = cluster.stream()
    at = stream.latest(stream.initial())
    cluster.stop_name_server("away")
    cluster.role = role
    cluster.end = 3
    if role == "SLAVE":
        assert stream.latest(at) == at, "what the master has is still to come"
    else:
        with pytest.raises(DataLossError, match="ends at 3, but was read up to 5"):
            stream.latest(at)


@pytest.mark.behaviour("SP-11")
def test_a_sink_sends_by_the_route_that_its_process_or_its_driver_knew(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster = cluster_of()
    names = [cluster.name_server.address]
    driver = Brokers(names, 20_000)
    routes = {"t": driver.route("t")}
    cluster.stop_name_server("away")
    assert Brokers(names, 20_000).route("t", refresh=True) == routes["t"], "of this process"
    forget_routes()
    with pytest.raises(UnreachableError):
        Brokers(names, 20_000).route("t")
    assert Brokers(names, 20_000, routes).route("t", refresh=True) == routes["t"], "of the driver"
