"""Send requests in flight: several per broker, while the caller builds the next ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from orbitmq.client.producer.budget import retryable_code
from orbitmq.errors import OrbitError, TopicNotFoundError
from orbitmq.message.batch import iter_batch
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import AUTO_CREATE_TOPIC
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.fencing import Fencing
from orbitmq.spark.write.metrics import SendMetrics
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import TransportError
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendBatchMessageRequest, SendMessageV2Request
from orbitmq.wire.refusals import error_of, refuses_user

DEFAULT_QUEUES = 4
# How long a broker that did not answer gets no sends, if other brokers accept them.
AVOIDED_S = 15.0
WAIT_S = 0.05

# Response codes of a stored message whose flush or replication is late.
_LATE = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
# FLOW_CONTROL is retried in addition to the codes that producers retry.
_ALSO_RETRIED = frozenset({ResponseCode.FLOW_CONTROL})


@dataclass(slots=True)
class SendRequest:
    """Messages of one topic that travel in one request.

    Attributes:
        items: the messages, encoded as the body of a batch.
        queue: the queue that must get them; ``None`` for any queue.
        alone: whether it is a single message that may not be part of a batch, or is too long for one.
        memory: the buffer of ``items``, reusable after a broker has accepted them.
    """

    topic: str
    items: bytes | memoryview
    count: int
    queue: MessageQueue | None = None
    alone: bool = False
    memory: memoryview | None = None


class Failure(NamedTuple):
    """A failed request.

    Attributes:
        address: the broker of the request; empty if none was chosen yet.
        lost: whether there was no answer, so that the messages may be stored.
        refused: the broker's answer, if another try would get the same answer.
    """

    request: SendRequest
    reason: str
    address: str = ""
    lost: bool = False
    refused: Command | None = None


class _Flight(NamedTuple):
    request: SendRequest
    queue: MessageQueue
    began: float


class _BrokerLink:
    """The connection to one broker and its requests in flight."""

    def __init__(self, address: str, timeout_ms: int, fencing: Fencing | None, identity: Identity) -> None:
        self.connection = BlockingConnection(address, timeout_ms=timeout_ms, identity=identity)
        if fencing is not None:
            try:
                fencing.bind(self.connection)
            except OrbitError:
                self.connection.close()
                raise
        self.flights: dict[int, _Flight] = {}


class Verdict(Enum):
    """The meaning of an answer for its request."""

    TAKEN = "taken"
    AGAIN = "again"
    REFUSED = "refused"


def verdict(code: int) -> Verdict:
    """Whether the messages are stored, may be sent again, or are refused for good."""
    if code == ResponseCode.SUCCESS or code in _LATE:
        return Verdict.TAKEN
    return Verdict.AGAIN if retryable_code(code, _ALSO_RETRIED) else Verdict.REFUSED


class InFlight:
    """Sends requests, to masters only. Not thread-safe.

    Args:
        metrics: counts the requests.
        first: the index of the first queue of a topic to use, so that tasks begin at different queues.
        fencing: registers the writer of these connections at brokers, so that a later writer can fence it.

    Attributes:
        failures: the failed requests; the caller removes them.
        spent: the buffers of requests that brokers have accepted; the caller removes them.
    """

    def __init__(
        self,
        brokers: Brokers,
        options: WriteOptions,
        metrics: SendMetrics,
        first: int,
        fencing: Fencing | None = None,
    ) -> None:
        self.failures: list[Failure] = []
        self.spent: list[memoryview] = []
        self._brokers = brokers
        self._options = options
        self._metrics = metrics
        self._next = first
        self._fencing = fencing
        self._clock = this_worker().clock
        self._lines: dict[str, _BrokerLink] = {}
        self._ordered: set[MessageQueue] = set()
        self._avoided: dict[str, float] = {}

    def send(self, request: SendRequest) -> None:
        """Send a request, after a wait while too many are in flight. A failed request is added to
        ``failures``.

        Raises:
            SinkStateError: a later attempt has taken over.
        """
        try:
            queue, address = self._choose(request)
            line = self._line(address)
        except (UnreachableError, TopicNotFoundError) as error:
            self.failures.append(Failure(request, str(error)))
            return
        while len(line.flights) >= self._depth(request) or (
            request.queue is not None and queue in self._ordered
        ):
            self._turn(address, WAIT_S)
            if self._lines.get(address) is not line:
                self.failures.append(Failure(request, f"{address} is away"))
                return
        if request.queue is not None and any(f.request.queue == queue for f in self.failures):
            # A new request must not overtake a failed one of the same queue, which is sent again later.
            self.failures.append(Failure(request, "an earlier send to its queue failed"))
            return
        body = None if request.alone else request.items
        number = line.connection.submit(self._command(queue, request), body)
        line.flights[number] = _Flight(request, queue, self._clock.monotonic())
        if request.queue is not None:
            self._ordered.add(queue)
        self._turn(address, 0.0)

    def drain(self) -> None:
        """Wait until no request is in flight."""
        while busy := [address for address, line in self._lines.items() if line.flights]:
            for address in busy:
                self._turn(address, WAIT_S if address == busy[-1] else 0.0)

    def close(self) -> None:
        """Close all connections, and give up the requests in flight."""
        for line in self._lines.values():
            line.connection.close()
        self._lines.clear()

    def _depth(self, request: SendRequest) -> int:
        small = request.alone and len(request.items) <= self._options.batch_bytes
        return self._options.pipeline * (16 if small else 1)

    def _choose(self, request: SendRequest) -> tuple[MessageQueue, str]:
        writable = self._brokers.route(request.topic).writable
        if request.queue is not None:
            if request.queue not in writable:
                raise UnreachableError(f"{request.queue} cannot be written now")
            return request.queue, writable[request.queue]
        if not writable:
            raise UnreachableError(f"topic {request.topic!r} has no queue that can be written now")
        queues = sorted(writable)
        now = self._clock.monotonic()
        depth = self._depth(request)
        for full_too in (False, True):
            for _ in queues:
                queue = queues[self._next % len(queues)]
                self._next += 1
                address = writable[queue]
                line = self._lines.get(address)
                is_free = line is None or len(line.flights) < depth
                if now >= self._avoided.get(address, 0.0) and (is_free or full_too):
                    return queue, address
        queue = queues[self._next % len(queues)]
        self._next += 1
        return queue, writable[queue]

    def _line(self, address: str) -> _BrokerLink:
        line = self._lines.get(address)
        if line is not None and not line.flights and not line.connection.usable:
            # The server may have closed the connection because it was idle for long.
            del self._lines[address]
            line = None
        if line is None:
            try:
                line = self._lines[address] = _BrokerLink(
                    address, self._options.request_timeout_ms, self._fencing, self._brokers.identity
                )
            except TransportError as error:
                self._avoid(address)
                raise UnreachableError(str(error)) from error
        return line

    def _turn(self, address: str, timeout_s: float) -> None:
        line = self._lines[address]
        try:
            answers = line.connection.poll(timeout_s)
        except TransportError as error:
            self._lose(address, str(error))
            return
        now = self._clock.monotonic()
        for number, answer in answers.items():
            flight = line.flights.pop(number, None)
            if flight is not None:
                self._metrics.took((now - flight.began) * 1000)
                self._judge(flight, answer, address)
        oldest = next(iter(line.flights.values()), None)
        if oldest is not None and now - oldest.began > self._options.request_timeout_ms / 1000:
            self._lose(address, f"{address} did not answer within {self._options.request_timeout_ms} ms")

    def _lose(self, address: str, reason: str) -> None:
        line = self._lines.pop(address)
        line.connection.close()
        self._avoid(address)
        for flight in line.flights.values():
            self._ordered.discard(flight.queue)
            self.failures.append(Failure(flight.request, reason, address, lost=True))

    def _avoid(self, address: str) -> None:
        self._avoided[address] = self._clock.monotonic() + AVOIDED_S

    def _judge(self, flight: _Flight, answer: Command, address: str) -> None:
        request = flight.request
        self._ordered.discard(flight.queue)
        found = verdict(answer.code)
        if found is Verdict.TAKEN:
            self._metrics.rows += request.count
            self._metrics.size_bytes += len(request.items)
            self._metrics.late_flushes += answer.code in _LATE
            if request.memory is not None:
                self.spent.append(request.memory)
            return
        if refuses_user(answer.code, answer.remark):
            fields = {"a": self._options.producer_group, "b": flight.queue.topic}
            asked = self._brokers.identity.command(RequestCode.SEND_BATCH_MESSAGE, fields)
            raise error_of(asked, answer, address)
        reason = f"{address} answers {answer.code}: {answer.remark}"
        refused = answer if found is Verdict.REFUSED else None
        self.failures.append(Failure(request, reason, address, refused=refused))

    def _command(self, queue: MessageQueue, request: SendRequest) -> Command:
        kind: type[SendMessageV2Request] = SendBatchMessageRequest
        properties, body = "", b""
        if request.alone:
            (item,) = iter_batch(request.items)
            kind, properties, body = SendMessageV2Request, item.properties.decode(), item.body
        header = kind(
            producer_group=self._options.producer_group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=this_worker().clock.now_ms(),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=not request.alone,
            broker_name=queue.broker_name,
        )
        return header.command(body)
