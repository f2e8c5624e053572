"""A cluster as one Spark process sees it: routes and offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from orbitmq.client.core.inquiry import Inquiry, route_inquiry, topics_inquiry
from orbitmq.client.core.routing import TopicRoute, topic_route
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError
from orbitmq.message import reserved
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.side_by_side import side_by_side
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster import connections
from orbitmq.spark.cluster.connections import Conversation
from orbitmq.spark.errors import UnreachableError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.connection import Allocate
from orbitmq.wire.headers.offset import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetByTimestampRequest,
)
from orbitmq.wire.headers.pull import PullMessageRequest

# A broker that did not answer is asked again after 1 s, then 2, 4 ...; each time for no longer than this.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0
# Between tries of one call.
FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 0.5
PROBE_TIMEOUT_MS = 2_000
# Name servers that did not answer are asked again after this, while the routes that are known serve.
NAME_SERVER_PAUSE_S = 2.0
# A known route serves for so long after name servers said that they do not know its topic. One that was
# started anew knows each topic again when its brokers have registered, which they do twice a minute.
UNKNOWN_TOPIC_S = 60.0
# Routes that name servers gave to this process, for the times when none of them answers. By name servers and
# topic; the oldest go first.
MAX_REMEMBERED = 10_000
_remembered: dict[tuple[tuple[str, ...], str], QueueAddresses] = {}
SUBSCRIPTION_IN_HEADER = 4  # PullSysFlag: the filter travels with the request

T = TypeVar("T")

# What is wrong with a topic that has no queues now.
Missing: TypeAlias = UnreachableError | TopicNotFoundError

_BUSY_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
# In the settings of a master.
_MASTER_LINES = frozenset({b"brokerRole=ASYNC_MASTER", b"brokerRole=SYNC_MASTER"})


@dataclass(frozen=True, slots=True)
class QueueAddresses:
    """Where the queues of a topic are.

    Attributes:
        readable: the address to read from, by queue: the master's, else that of the slave that is there.
        writable: the master's address, by queue; a slave takes no messages.
        masters: the addresses among them in the place of a master; see :meth:`Brokers.is_master`.
    """

    readable: dict[MessageQueue, str]
    writable: dict[MessageQueue, str]
    masters: frozenset[str] = frozenset()

    def of(self, queues: Iterable[MessageQueue]) -> QueueAddresses:
        """What somebody needs who reads some queues: their addresses, and one queue of each other broker, by
        which that broker can be asked whether it answers."""
        wanted = set(queues)
        shown = {queue.broker_name for queue in wanted}
        for queue in sorted(self.readable):
            if queue.broker_name not in shown:
                shown.add(queue.broker_name)
                wanted.add(queue)
        return QueueAddresses(
            {queue: at for queue, at in self.readable.items() if queue in wanted},
            {queue: at for queue, at in self.writable.items() if queue in wanted},
            self.masters,
        )


@dataclass(slots=True)
class _Known:
    """A route, and whether it may still be used.

    Attributes:
        is_fresh: a name server gave this route when it was asked last.
        until: by the monotonic clock, when the route has served for long enough without being fresh.
    """

    route: QueueAddresses
    is_fresh: bool = False
    until: float = float("inf")


class Patience:
    """How long failures in a row are borne, with pauses that grow from 20 ms to half a second.

    The time begins with the first failure after a success, not when the object is made: what Spark does with
    rows meanwhile does not count.

    Args:
        limit_ms: how long to go on trying.
    """

    def __init__(self, limit_ms: int) -> None:
        self._clock = this_worker().clock
        self._limit_s = limit_ms / 1000
        self._end: float | None = None
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S, this_worker().random)
        self._failures = 0

    @property
    def is_over(self) -> bool:
        """Whether failures have lasted for the limit."""
        return self._end is not None and self._clock.monotonic() >= self._end

    @property
    def lasted_s(self) -> float:
        """For how long there have been failures only."""
        return 0.0 if self._end is None else self._clock.monotonic() - (self._end - self._limit_s)

    def succeeded(self) -> None:
        """End the run of failures: the next one has the whole time again."""
        self._end = None
        self._failures = 0

    def pause(self) -> None:
        """Note a failure, and wait before the next try."""
        now = self._clock.monotonic()
        if self._end is None:
            self._end = now + self._limit_s
        self._failures += 1
        this_worker().pause(max(0.0, min(self._backoff.pause_s(self._failures), self._end - now)))


def forget_routes() -> None:
    """Forget the routes that this process remembers."""
    _remembered.clear()


class _Silence(NamedTuple):
    """A broker that did not answer: what was wrong, and until when it is left alone."""

    error: UnreachableError
    failures: int
    until: float


class Brokers:
    """Asks name servers and brokers. Not thread-safe; its connections are shared within the process.

    Args:
        name_servers: addresses, asked in order until one answers.
        timeout_ms: for one answer.
        routes: of topics, as another process of the query knew them: name servers need not be asked.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        timeout_ms: int,
        routes: Mapping[str, QueueAddresses] | None = None,
    ) -> None:
        self._name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self._known = {topic: _Known(route) for topic, route in (routes or {}).items()}
        self._names: tuple[str, ...] | None = None
        self._asks_names_at = float("-inf")
        self._silent: dict[str, _Silence] = {}
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, this_worker().random)
        self._clock = this_worker().clock

    def ask(
        self,
        address: str,
        commands: Sequence[Command],
        *,
        timeout_ms: int | None = None,
        repeatable: bool = True,
    ) -> list[Command]:
        """The answers to ``commands``, which travel together; see :func:`connections.ask`."""
        return connections.ask(address, commands, timeout_ms or self._timeout_ms, repeatable=repeatable)

    def converse(self, address: str, allocate: Allocate = bytearray) -> Conversation:
        """A connection for many requests; see :class:`orbitmq.spark.cluster.connections.Conversation`."""
        return Conversation(address, self._timeout_ms, allocate)

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        """The queues of ``topic``, from the first name server that answers; remembered until refreshed.

        A known route serves while no name server answers, and for :data:`UNKNOWN_TOPIC_S` when they do not
        know the topic (any more, or yet), unless its broker says that there is no such topic.

        Raises:
            TopicNotFoundError: no name server that answers knows the topic.
            UnreachableError: no name server gives a usable answer.
        """
        known = self._known.get(topic)
        if known is not None and not refresh:
            return known.route
        now = self._clock.monotonic()
        serves = known is not None and now < known.until
        if known is not None and serves and now < self._asks_names_at:
            known.is_fresh = False
            return known.route
        inquiry = route_inquiry(
            topic,
            self._name_servers,
            now_ms=lambda: self._clock.monotonic() * 1000,
            timeout_ms=self._names_timeout_ms(known=serves),
        )
        try:
            data = self._outcome(inquiry)
        except UnreachableError:
            remembered = _remembered.get((self._name_servers, topic))
            if known is None and remembered is not None:
                known, serves = self._known.setdefault(topic, _Known(remembered)), True
            if known is None or not serves:
                raise
            known.is_fresh = False
            return known.route
        if data is not None:
            return self._learn(topic, queue_addresses(topic_route(topic, data)))
        if known is not None:
            known.is_fresh = False
            known.until = min(known.until, now + UNKNOWN_TOPIC_S)
            if now < known.until:
                return known.route
        servers = ";".join(self._name_servers)
        raise TopicNotFoundError(topic, f"topic {topic!r} is not known to the name servers {servers}")

    def _learn(self, topic: str, route: QueueAddresses) -> QueueAddresses:
        self._known[topic] = _Known(route, is_fresh=True)
        _remembered.pop((self._name_servers, topic), None)
        while len(_remembered) >= MAX_REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
        _remembered[self._name_servers, topic] = route
        return route

    def routes_of(self, queues: Iterable[MessageQueue]) -> dict[str, QueueAddresses]:
        """What is known of the topics of ``queues``, for a process that reads those queues."""
        owned: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            owned.setdefault(queue.topic, []).append(queue)
        return {topic: self._known[topic].route.of(of) for topic, of in owned.items() if topic in self._known}

    def topics_like(self, pattern: str) -> tuple[str, ...]:
        """The topics whose whole name matches, sorted; retry, dead letter and system topics only by name.

        Names that are known serve as known routes do.

        Raises:
            UnreachableError: no name server gives a usable answer.
        """
        now = self._clock.monotonic()
        if self._names is None or now >= self._asks_names_at:
            inquiry = topics_inquiry(
                self._name_servers,
                now_ms=lambda: self._clock.monotonic() * 1000,
                timeout_ms=self._names_timeout_ms(known=self._names is not None),
            )
            try:
                found = self._outcome(inquiry)
            except UnreachableError:
                if self._names is None:
                    raise
            else:
                self._names = tuple(found.topic_list) if found is not None else ()
        # A name server that was started anew does not list every topic yet.
        names = {*(self._names or ()), *(topic for topic, known in self._known.items() if now < known.until)}
        wanted = re.compile(pattern)
        return tuple(
            sorted(
                topic
                for topic in names
                if wanted.fullmatch(topic)
                and not topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
                and not reserved.is_system_topic(topic)
            )
        )

    def _names_timeout_ms(self, *, known: bool) -> int:
        """How long to wait for name servers: not for long where what is known serves without them."""
        return min(self._timeout_ms, PROBE_TIMEOUT_MS) if known else self._timeout_ms

    def _outcome(self, inquiry: Inquiry[T]) -> T | None:
        """What the name servers say; ``None``: those that answer do not know it."""
        for address, timeout_ms in inquiry:
            try:
                (answer,) = self.ask(address, [inquiry.command()], timeout_ms=timeout_ms)
            except UnreachableError as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, answer)
        try:
            found = inquiry.result()
        except NameServerError as error:
            self._asks_names_at = self._clock.monotonic() + NAME_SERVER_PAUSE_S
            raise UnreachableError(str(error)) from error
        self._asks_names_at = float("-inf")
        return found

    def readable(self, topics: Iterable[str], *, refresh: bool = False) -> dict[MessageQueue, str]:
        """The readable queues of all ``topics`` and whom to ask.

        Raises:
            UnreachableError: a topic has no readable queue, or no name server answers.
            TopicNotFoundError: the name server does not know a topic.
        """
        found, missing = self.readable_where_possible(topics, refresh=refresh)
        for error in missing.values():
            raise error
        return found

    def readable_where_possible(
        self, topics: Iterable[str], *, refresh: bool = False
    ) -> tuple[dict[MessageQueue, str], dict[str, Missing]]:
        """:meth:`readable` of the topics that have queues now, and what is wrong with the others, by name.

        A topic is not there when all of its brokers have been silent for so long that the name servers took
        them out.

        Raises:
            UnreachableError: no name server answers.
        """
        found: dict[MessageQueue, str] = {}
        missing: dict[str, Missing] = {}
        for topic in topics:
            try:
                route = self.route(topic, refresh=refresh)
            except TopicNotFoundError as error:
                missing[topic] = error
                continue
            if not route.readable:
                missing[topic] = UnreachableError(f"topic {topic!r} has no queue that can be read now")
            found |= route.readable
        return found, missing

    def is_master(self, topic: str, address: str) -> bool:
        """Whether the broker at ``address`` is a master, so that what it lacks of ``topic`` is gone.

        Name servers show a slave that acts for a lost master in its place, without write permission. They
        show a master whose write permission somebody took away in the same way, so such a one is asked. So is
        any whose route no name server has confirmed: it may have become a slave meanwhile.

        Raises:
            UnreachableError: it does not answer.
        """
        route = self.route(topic)
        if address not in route.masters:
            return False
        if self._known[topic].is_fresh and address in route.writable.values():
            return True
        (answer,) = self.ask(address, [Command(RequestCode.GET_BROKER_CONFIG)])
        # Not read as properties: RocketMQ escapes nothing, and a path of Windows is none.
        return not _MASTER_LINES.isdisjoint(answer.body.splitlines())

    def another_answers(self, topics: Iterable[str], broker_name: str | None) -> bool:
        """Whether a broker beside ``broker_name`` answers, of those that the routes of ``topics`` name.

        A busy one does not count, nor one for a topic that the name servers do not know any more. Routes that
        are known count while no name server answers.
        """
        gone: set[str] = set()
        for topic in topics:
            try:
                self.route(topic, refresh=True)
            except TopicNotFoundError:
                gone.add(topic)
            except UnreachableError:
                break
        others = {
            address: queue
            for topic, known in self._known.items()
            for queue, address in known.route.readable.items()
            if topic not in gone and queue.broker_name != broker_name
        }
        answers = side_by_side([partial(self._answers, *other) for other in others.items()])
        return any(answer is True for answer in answers)

    def _answers(self, address: str, queue: MessageQueue) -> bool:
        timeout_ms = min(self._timeout_ms, PROBE_TIMEOUT_MS)
        (answer,) = self.ask(address, [max_offset(queue)], timeout_ms=timeout_ms)
        return not is_busy(answer.code)

    def offsets(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> dict[MessageQueue, int]:
        """One offset per queue: the answers to ``request``, one round trip per broker, all side by side.

        Raises:
            UnreachableError: a broker does not answer, or says that it is busy.
            BrokerError: a broker answered with another error.
        """
        found, failures = self.offsets_where_possible(queues, request)
        for failure in failures.values():
            raise failure
        return found

    def offsets_where_possible(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> tuple[dict[MessageQueue, int], dict[str, UnreachableError]]:
        """:meth:`offsets` of the brokers that answer, and what is wrong with the others, by address.

        A broker that did not answer is left alone for a while, so that it does not hold up each call.
        """
        owners = by_address(queues)
        now = self._clock.monotonic()
        failures = {
            address: silence.error
            for address, silence in self._silent.items()
            if address in owners and now < silence.until
        }
        asked = [address for address in owners if address not in failures]
        outcomes = side_by_side([partial(self._offsets_of, a, owners[a], request) for a in asked])
        found: dict[MessageQueue, int] = {}
        for address, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, UnreachableError):
                failures[address] = outcome
                self._note_silence(address, outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                self._silent.pop(address, None)
                found |= outcome
        return found, failures

    def committed(self, group: str, queues: dict[MessageQueue, str]) -> dict[MessageQueue, int]:
        """Where a consumer group stands; queues in which it has committed nothing are left out.

        Raises:
            UnreachableError, BrokerError: as with :meth:`offsets`.
        """
        found: dict[MessageQueue, int] = {}
        for address, owned in by_address(queues).items():
            requests = [committed_offset(queue, group) for queue in owned]
            for queue, answer in zip(owned, self.ask(address, requests), strict=True):
                if answer.code != ResponseCode.QUERY_NOT_FOUND:
                    found[queue] = QueryConsumerOffsetResponse.from_ext(_checked(answer, address).ext).offset
        return found

    def _note_silence(self, address: str, error: UnreachableError) -> None:
        before = self._silent.get(address)
        failures = before.failures + 1 if before else 1
        until = self._clock.monotonic() + self._backoff.pause_s(failures)
        self._silent[address] = _Silence(error, failures, until)

    def _offsets_of(
        self, address: str, owned: list[MessageQueue], request: Callable[[MessageQueue], Command]
    ) -> dict[MessageQueue, int]:
        timeout_ms = min(self._timeout_ms, PROBE_TIMEOUT_MS) if address in self._silent else self._timeout_ms
        answers = self.ask(address, [request(queue) for queue in owned], timeout_ms=timeout_ms)
        for queue, answer in zip(owned, answers, strict=True):
            known = self._known.get(queue.topic)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST and known is not None and not known.is_fresh:
                known.until = float("-inf")
        return {
            queue: GetMaxOffsetResponse.from_ext(_checked(answer, address).ext).offset
            for queue, answer in zip(owned, answers, strict=True)
        }


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


def committed_offset(queue: MessageQueue, group: str) -> Command:
    """Ask for the offset that a consumer group has committed."""
    request = QueryConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    return request.command()


def messages_at(queue: MessageQueue, offset: int, count: int, group: str) -> Command:
    """Ask for up to ``count`` messages from ``offset`` on, whatever their tags; the group's place stays."""
    request = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=SUBSCRIPTION_IN_HEADER,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type=reserved.TAG,
    )
    return request.command()


def by_address(queues: dict[MessageQueue, str]) -> dict[str, list[MessageQueue]]:
    """The queues of each broker, both in sorted order."""
    owned: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        owned.setdefault(queues[queue], []).append(queue)
    return owned


def is_busy(code: int) -> bool:
    """Whether an answer says "later" and not "no"."""
    return code in _BUSY_CODES


def _checked(answer: Command, address: str) -> Command:
    if is_busy(answer.code):
        raise UnreachableError(f"{address} is busy: {answer.remark}")
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return answer


def queue_addresses(route: TopicRoute) -> QueueAddresses:
    """Where to read and write each queue, by the route that all clients use."""
    readers = {name: found[0] for name in route.addresses if (found := route.reader(name)) is not None}
    masters = {name: address for name in route.addresses if (address := route.master(name)) is not None}
    return QueueAddresses(
        {queue: readers[queue.broker_name] for queue in route.subscribe if queue.broker_name in readers},
        {queue: masters[queue.broker_name] for queue in route.publish if queue.broker_name in masters},
        frozenset(masters.values()),
    )
