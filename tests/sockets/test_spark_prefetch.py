"""Ranges read over real sockets from brokers that break off, dawdle and mix up their answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.connections import close_connections
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import message_schema
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

QUEUE = MessageQueue("t", "broker-a", 0)
ROWS = 3000
BODY = b"x" * 2000
PATIENT_S = 60.0

Manner = Callable[[int, socket.socket, list[bytes]], bool]


class Broker:
    """Serves one queue. ``manner`` sends the answers to what came together; ``False`` ends the connection."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.connections = 0
        self.pulled = 0  # the highest offset that was asked for
        self.changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(self.connections, client))
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, client: socket.socket) -> None:
        decoder = FrameDecoder()
        with client:
            try:
                while data := client.recv(65536):
                    decoder.feed(data)
                    answers = [encode_frame(self._answer(command)) for command in decoder.commands()]
                    if answers and not self.manner(number, client, answers):
                        return
            except OSError:
                return

    def _answer(self, command: Command) -> Command:
        request = PullMessageRequest.from_ext(command.ext)
        low = request.queue_offset
        high = min(ROWS, low + min(request.max_msg_nums, 100))
        with self.changed:
            self.pulled = max(self.pulled, high)
            self.changed.notify_all()
        body = b"".join(encode_record(Record("t", BODY, b"", 0, queue_offset=n)) for n in range(low, high))
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=high, min_offset=0, max_offset=ROWS
        )
        return header.reply_to(command, code=0, body=body)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        close_connections()
        for thread in self._threads:
            thread.join(PATIENT_S)


class OneBroker(Brokers):
    """The cluster is known without a name server."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__((), timeout_ms)
        self._address = address

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        return QueueAddresses({QUEUE: self._address}, {}, frozenset({self._address}))


@pytest.fixture
def serve() -> Iterator[Callable[[Manner], Broker]]:
    made: list[Broker] = []

    def start(manner: Manner) -> Broker:
        made.append(Broker(manner))
        return made[-1]

    yield start
    for broker in made:
        broker.stop()


def reader(broker: Broker, *, timeout_ms: int = 10_000, **options: Any) -> RangeReader:
    chosen = ReadOptions(topics=("t",), batch_bytes=200_000, **options)
    return RangeReader(OneBroker(broker.address, timeout_ms), chosen)


def offsets(made: RangeReader) -> list[int]:
    maker = BatchMaker(message_schema(["queue_offset", "body"]))
    found: list[int] = []
    for batch in made.batches([QueueRange(QUEUE, 0, ROWS)], maker):
        assert set(batch.column(1).to_pylist()) == {BODY}
        found += batch.column(0).to_pylist()
    return found


def politely(number: int, client: socket.socket, answers: list[bytes]) -> bool:
    client.sendall(b"".join(answers))
    return True


def test_the_next_pulls_are_on_their_way_before_rows_are_decoded(serve: Callable[[Manner], Broker]) -> None:
    broker = serve(politely)
    ahead: list[int] = []

    class Watching(BatchMaker):
        decoded = 0

        def batch(self, *arguments: Any) -> Any:
            made = super().batch(*arguments)
            self.decoded += made.num_rows
            if self.decoded < ROWS:
                with broker.changed:
                    # Nobody reads meanwhile: what was asked for was asked for before.
                    assert broker.changed.wait_for(lambda: broker.pulled > self.decoded, PATIENT_S)
            ahead.append(broker.pulled - self.decoded)
            return made

    made = reader(broker)
    rows = sum(
        batch.num_rows
        for batch in made.batches([QueueRange(QUEUE, 0, ROWS)], Watching(message_schema(["queue_offset"])))
    )
    assert rows == ROWS
    assert max(ahead) >= 200
    assert broker.connections == 1
    assert offsets(reader(broker)) == list(range(ROWS))
    assert broker.connections == 1  # kept between tasks


def test_a_connection_that_breaks_within_an_answer(serve: Callable[[Manner], Broker]) -> None:
    def manner(number: int, client: socket.socket, answers: list[bytes]) -> bool:
        whole = b"".join(answers)
        # Each of the first ones breaks off later than the one before.
        client.sendall(whole if number > 4 else whole[: 50_000 * number])
        return number > 4

    broker = serve(manner)
    assert offsets(reader(broker)) == list(range(ROWS))
    assert broker.connections == 5


def test_answers_that_trickle_and_overtake_each_other(serve: Callable[[Manner], Broker]) -> None:
    def manner(number: int, client: socket.socket, answers: list[bytes]) -> bool:
        whole = b"".join(reversed(answers))
        for at in range(0, len(whole), 7001):
            client.sendall(whole[at : at + 7001])
        return True

    broker = serve(manner)
    assert offsets(reader(broker)) == list(range(ROWS))


def test_a_broker_that_answers_no_more_is_given_up(serve: Callable[[Manner], Broker]) -> None:
    def manner(number: int, client: socket.socket, answers: list[bytes]) -> bool:
        if number == 1:
            client.sendall(b"".join(answers)[:300_000])
        return True  # says nothing, and holds the connection

    broker = serve(manner)
    with pytest.raises(UnreachableError, match="answers missing"):
        offsets(reader(broker, timeout_ms=50, offset_timeout_ms=300))
    assert broker.connections > 1


def test_a_server_that_closes_while_spark_takes_its_time(serve: Callable[[Manner], Broker]) -> None:
    closed = threading.Event()

    def manner(number: int, client: socket.socket, answers: list[bytes]) -> bool:
        client.sendall(b"".join(answers))
        if number == 1 and broker.pulled > 500:
            closed.set()
            return False
        return True

    broker = serve(manner)
    batches = reader(broker, offset_timeout_ms=5000).batches(
        [QueueRange(QUEUE, 0, ROWS)], BatchMaker(message_schema(["queue_offset"]))
    )
    found = next(batches).column(0).to_pylist()
    assert closed.wait(PATIENT_S)
    for batch in batches:
        found += batch.column(0).to_pylist()
    assert found == list(range(ROWS))
    assert broker.connections == 2
