"""A cluster as one Spark process sees it: routes, offsets and answers over blocking connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import MASTER_ID, PERM_READ, PERM_WRITE
from orbitmq.runtime.system import SystemClock
from orbitmq.spark.errors import UnreachableError
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    SearchOffsetByTimestampRequest,
)
from orbitmq.wire.headers.route import GetRouteinfoByTopicRequest

# Requests that travel together; the answers of one round are in memory at once.
MAX_PIPELINE = 256
# Worker processes live long and a topic's brokers are few; more than this is a leak.
MAX_CONNECTIONS = 64

_BUSY_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)

# By process, since Spark forks: a connection must not be shared with a child.
_connections: dict[tuple[int, str], BlockingConnection] = {}


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Where the queues of a topic are.

    Attributes:
        readable: the address to read from, by queue: the master's, else that of the slave that is there.
        writable: the master's address, by queue; a slave takes no messages.
        masters: the addresses among them that are masters: only these can tell that something is gone.
    """

    readable: dict[MessageQueue, str]
    writable: dict[MessageQueue, str]
    masters: frozenset[str] = frozenset()


class Patience:
    """How long failures in a row are borne, with pauses that grow from 20 ms to half a second.

    The time begins with the first failure after a success, not when the object is made: what Spark does with
    rows meanwhile does not count.

    Args:
        limit_ms: how long to go on trying.
    """

    def __init__(self, limit_ms: int) -> None:
        self._clock = SystemClock()
        self._limit_s = limit_ms / 1000
        self._end: float | None = None
        self._pause_s = 0.02

    @property
    def is_over(self) -> bool:
        """Whether failures have lasted for the limit."""
        return self._end is not None and self._clock.monotonic() >= self._end

    def succeeded(self) -> None:
        """End the run of failures: the next one has the whole time again."""
        self._end = None
        self._pause_s = 0.02

    def pause(self) -> None:
        """Note a failure, and wait before the next try."""
        now = self._clock.monotonic()
        if self._end is None:
            self._end = now + self._limit_s
        time.sleep(max(0.0, min(self._pause_s, self._end - now)))
        self._pause_s = min(self._pause_s * 2, 0.5)


class Brokers:
    """Asks name servers and brokers. Not thread-safe; its connections are shared within the process.

    Args:
        name_servers: addresses, asked in order until one answers.
        timeout_ms: for one answer.
    """

    def __init__(self, name_servers: Sequence[str], timeout_ms: int) -> None:
        self._name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self._routes: dict[str, TopicRoute] = {}

    def ask(self, address: str, commands: Sequence[Command]) -> list[Command]:
        """The answers to ``commands``, which travel together, in their order; error codes included.

        Raises:
            UnreachableError: there was no answer to at least one; the connection is given up.
        """
        key = (os.getpid(), address)
        answers: list[Command] = []
        try:
            connection = _connections.get(key)
            if connection is None:
                if len(_connections) >= MAX_CONNECTIONS:
                    close_connections()
                connection = _connections[key] = BlockingConnection(address, timeout_ms=self._timeout_ms)
            for first in range(0, len(commands), MAX_PIPELINE):
                answers += connection.request_many(list(commands[first : first + MAX_PIPELINE]))
        except TransportError as error:
            broken = _connections.pop(key, None)
            if broken is not None:
                broken.close()
            raise UnreachableError(f"{address}: {error}") from error
        return answers

    def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """The queues of ``topic``, from the first name server that answers; remembered until refreshed.

        Raises:
            TopicNotFoundError: the name server does not know the topic.
            UnreachableError: no name server answers.
            BrokerError: it answered with another error.
        """
        known = self._routes.get(topic)
        if known is not None and not refresh:
            return known
        request = GetRouteinfoByTopicRequest(topic=topic, accept_standard_json_only=True)
        failures = []
        for address in self._name_servers:
            try:
                (answer,) = self.ask(address, [request.command()])
            except UnreachableError as error:
                failures.append(str(error))
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                raise TopicNotFoundError(topic, f"topic {topic!r} is not known to name server {address}")
            route = _topic_route(topic, TopicRouteData.decode(_checked(answer, address).body))
            self._routes[topic] = route
            return route
        raise UnreachableError(f"no name server answered: {'; '.join(failures)}")

    def readable(self, topics: Iterable[str], *, refresh: bool = False) -> dict[MessageQueue, str]:
        """The readable queues of all ``topics`` and whom to ask."""
        return {q: a for topic in topics for q, a in self.route(topic, refresh=refresh).readable.items()}

    def offsets(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> dict[MessageQueue, int]:
        """One offset per queue: the answers to ``request``, one round trip per broker.

        Raises:
            UnreachableError: a broker does not answer, or says that it is busy.
            BrokerError: a broker answered with another error.
        """
        found, error = self.offsets_where_possible(queues, request)
        if error is not None:
            raise error
        return found

    def offsets_where_possible(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> tuple[dict[MessageQueue, int], UnreachableError | None]:
        """:meth:`offsets` of the brokers that answer, and what was wrong with another one, if any."""
        found: dict[MessageQueue, int] = {}
        missing: UnreachableError | None = None
        for address, owned in by_address(queues).items():
            try:
                answers = self.ask(address, [request(queue) for queue in owned])
                for queue, answer in zip(owned, answers, strict=True):
                    found[queue] = GetMaxOffsetResponse.from_ext(_checked(answer, address).ext).offset
            except UnreachableError as error:
                missing = error
        return found, missing


def max_offset(queue: MessageQueue) -> Command:
    """Ask for the offset after the last message."""
    return GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).command()


def min_offset(queue: MessageQueue) -> Command:
    """Ask for the offset of the first message that is still there."""
    return GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).command()


def offset_at(queue: MessageQueue, timestamp_ms: int) -> Command:
    """Ask for the first offset stored at or after a time."""
    request = SearchOffsetByTimestampRequest(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type="LOWER"
    )
    return request.command()


def by_address(queues: dict[MessageQueue, str]) -> dict[str, list[MessageQueue]]:
    """The queues of each broker, both in sorted order."""
    owned: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        owned.setdefault(queues[queue], []).append(queue)
    return owned


def close_connections() -> None:
    """Close every connection of this process."""
    for key in [key for key in _connections if key[0] == os.getpid()]:
        _connections.pop(key).close()


def is_busy(code: int) -> bool:
    """Whether an answer says "later" and not "no"."""
    return code in _BUSY_CODES


def _checked(answer: Command, address: str) -> Command:
    if is_busy(answer.code):
        raise UnreachableError(f"{address} is busy: {answer.remark}")
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return answer


def _topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    nearest, masters = {}, {}
    for broker in data.broker_datas:
        if broker.broker_addrs:
            nearest[broker.broker_name] = broker.broker_addrs[min(broker.broker_addrs)]
        if MASTER_ID in broker.broker_addrs:
            masters[broker.broker_name] = broker.broker_addrs[MASTER_ID]
    route = TopicRoute({}, {}, frozenset(masters.values()))
    for entry in data.queue_datas:
        for table, addresses, bit, count in (
            (route.readable, nearest, PERM_READ, entry.read_queue_nums),
            (route.writable, masters, PERM_WRITE, entry.write_queue_nums),
        ):
            address = addresses.get(entry.broker_name)
            if address is not None and entry.perm & bit:
                for queue_id in range(count):
                    table[MessageQueue(topic, entry.broker_name, queue_id)] = address
    return route
