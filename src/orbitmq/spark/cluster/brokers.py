"""Routes and offsets of a cluster, for one Spark process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from orbitmq.client.core.identities import identity_of
from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message import reserved
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.side_by_side import side_by_side
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster import connections
from orbitmq.spark.cluster.connections import Conversation
from orbitmq.spark.cluster.routes import QueueAddresses, Routes
from orbitmq.spark.errors import NotPermittedError, UnreachableError
from orbitmq.transport.identity import Identity
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

# A broker that did not answer is asked again after 1 s, then 2 s, 4 s, and so on up to the longest pause.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0
# Pauses between the tries of one call.
FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 0.5
PROBE_TIMEOUT_MS = 2_000
SUBSCRIPTION_IN_HEADER = 4  # PullSysFlag: the filter travels with the request

T = TypeVar("T")

# The error of a topic that has no queues at present.
Missing: TypeAlias = UnreachableError | TopicNotFoundError

_BUSY_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
# Lines in the settings of a master.
_MASTER_LINES = frozenset({b"brokerRole=ASYNC_MASTER", b"brokerRole=SYNC_MASTER"})


class RetryWindow:
    """The time limit of consecutive failures, with pauses that grow from 20 ms to half a second.

    The time begins with the first failure after a success, not with the object's creation, so that the time
    for which Spark handles rows does not count.

    Args:
        limit_ms: the time limit.
    """

    def __init__(self, limit_ms: int) -> None:
        self._clock = this_worker().clock
        self._limit_s = limit_ms / 1000
        self._end: float | None = None
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S, this_worker().random)
        self._failures = 0

    @property
    def is_over(self) -> bool:
        """Whether the failures have lasted for the limit."""
        return self._end is not None and self._clock.monotonic() >= self._end

    @property
    def lasted_s(self) -> float:
        """Seconds since the first failure after the last success."""
        return 0.0 if self._end is None else self._clock.monotonic() - (self._end - self._limit_s)

    def succeeded(self) -> None:
        """Note a success: the next failure starts the limit anew."""
        self._end = None
        self._failures = 0

    def pause(self) -> None:
        """Note a failure, and wait before the next try."""
        now = self._clock.monotonic()
        if self._end is None:
            self._end = now + self._limit_s
        self._failures += 1
        this_worker().pause(max(0.0, min(self._backoff.pause_s(self._failures), self._end - now)))


class _Silence(NamedTuple):
    """A broker that did not answer: the error, and the end of the time without requests."""

    error: UnreachableError
    failures: int
    until: float


class Brokers:
    """Asks name servers and brokers. Not thread-safe; its connections are shared within the process.

    Args:
        name_servers: addresses, asked in order until one answers.
        timeout_ms: time limit of one answer.
        routes: routes of topics from another process of the query, which replace requests to name servers.
        identity: keys and TLS of the requests; those of the environment by default.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        timeout_ms: int,
        routes: Mapping[str, QueueAddresses] | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._timeout_ms = timeout_ms
        self.identity = identity_of({}, this_worker().host) if identity is None else identity
        self._routes = Routes(name_servers, timeout_ms, routes, self.identity)
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
        """The answers to ``commands``, which are sent together; see :func:`connections.ask`."""
        return connections.ask(
            address,
            commands,
            timeout_ms or self._timeout_ms,
            identity=self.identity,
            repeatable=repeatable,
        )

    def converse(self, address: str, allocate: Allocate = bytearray) -> Conversation:
        """A connection for many requests; see :class:`orbitmq.spark.cluster.connections.Conversation`."""
        return Conversation(address, self._timeout_ms, allocate, self.identity)

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        """The queues of ``topic``; see :meth:`Routes.route`."""
        return self._routes.route(topic, refresh=refresh)

    def routes_of(self, queues: Iterable[MessageQueue]) -> dict[str, QueueAddresses]:
        """The known routes of the topics of ``queues``, for a process that reads those queues."""
        return self._routes.of(queues)

    def topics_like(self, pattern: str) -> tuple[str, ...]:
        """The topics whose whole name matches ``pattern``; see :meth:`Routes.topics_like`."""
        return self._routes.topics_like(pattern)

    def readable(self, topics: Iterable[str], *, refresh: bool = False) -> dict[MessageQueue, str]:
        """The readable queues of all ``topics``, each with the address of its broker.

        Raises:
            UnreachableError: a topic has no readable queue, or no name server answers.
            TopicNotFoundError: the name servers do not have a topic.
            NotPermittedError: a topic can only be written.
        """
        wanted = tuple(topics)
        found, missing = self.readable_where_possible(wanted, refresh=refresh)
        for topic in wanted:
            self.check_may_read(topic)
        for error in missing.values():
            raise error
        return found

    def check_there(self, topic: str) -> None:
        """Ask a broker whether a topic exists, unless a name server has confirmed the known route.

        Raises:
            TopicNotFoundError: the broker does not have the topic.
        """
        route = self.route(topic)
        queue = min(route.readable, default=None)
        if queue is None or self._routes.is_fresh(topic):
            return
        address = route.readable[queue]
        try:
            self.offsets({queue: address}, max_offset)
        except UnreachableError:
            return
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise TopicNotFoundError(
                topic, f"topic {topic!r} is not there: {address} does not know it"
            ) from None

    def check_may_read(self, topic: str) -> None:
        """Check that the permission of a topic with a known route allows reading.

        Raises:
            NotPermittedError: it does not allow reading; the text has the command that changes the
                permission.
        """
        route = self._routes.known().get(topic)
        if route is not None and not route.readable and not route.may_read:
            raise NotPermittedError(self._permission_text(topic, route, "can only be written"))

    def check_may_write(self, topic: str) -> None:
        """Check that the permission of a topic allows writing. A topic with acting masters passes, since
        these refuse messages only for a while.

        Raises:
            NotPermittedError: no broker accepts messages, and one of them is a master.
            UnreachableError: no broker answers whether it is a master.
        """
        route = self.route(topic)
        if route.writable or route.may_write or not route.masters:
            return
        if any(self.is_master(topic, address) for address in sorted(route.masters)):
            raise NotPermittedError(self._permission_text(topic, route, "can only be read"))

    def _permission_text(self, topic: str, route: QueueAddresses, what: str) -> str:
        queues = 1 + max((queue.queue_id for queue in {*route.readable, *route.writable}), default=0)
        return (
            f"topic {topic!r} {what}: allow both with `orbitmq topic create {topic} --queues {queues} "
            f"--permission 6 -n '{self._routes.servers}'`"
        )

    def readable_where_possible(
        self, topics: Iterable[str], *, refresh: bool = False
    ) -> tuple[dict[MessageQueue, str], dict[str, Missing]]:
        """:meth:`readable` for the topics that have queues at present, and the errors of the other topics, by
        name.

        A topic has no queues if the name servers have removed all its brokers, because they were silent for
        too long.

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
        """Whether the broker at ``address`` is a master: messages of ``topic`` that a master lacks are lost.

        Name servers list an acting master in the place of a lost master, without write permission. A master
        without write permission looks the same, so such a broker is asked. A broker whose route no name
        server has confirmed is asked, too, since it may have become a slave meanwhile.

        Raises:
            UnreachableError: the broker does not answer.
        """
        route = self.route(topic)
        if address not in route.masters:
            return False
        if self._routes.is_fresh(topic) and address in route.writable.values():
            return True
        (answer,) = self.ask(address, [Command(RequestCode.GET_BROKER_CONFIG)])
        # The settings are not parsed as a Java properties file: RocketMQ escapes nothing, and Windows paths
        # have backslashes.
        return not _MASTER_LINES.isdisjoint(answer.body.splitlines())

    def another_answers(self, topics: Iterable[str], broker_name: str | None) -> bool:
        """Whether any broker in the routes of ``topics`` answers, apart from ``broker_name``.

        A busy broker does not count, nor does the broker of a topic that the name servers do not have. While
        no name server answers, the known routes are used.
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
            for topic, route in self._routes.known().items()
            for queue, address in route.readable.items()
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
        """One offset per queue: the answers to ``request``, one round trip per broker, all concurrently.

        Raises:
            UnreachableError: a broker does not answer, or is busy.
            BrokerError: a broker answered with another error.
        """
        found, failures = self.offsets_where_possible(queues, request)
        for failure in failures.values():
            raise failure
        return found

    def offsets_where_possible(
        self, queues: dict[MessageQueue, str], request: Callable[[MessageQueue], Command]
    ) -> tuple[dict[MessageQueue, int], dict[str, UnreachableError]]:
        """The :meth:`offsets` from brokers that answer, and the errors of the others by address.

        A broker that did not answer gets no requests for a while, so that it does not delay each call.
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
        """The committed offsets of a consumer group; queues without one are left out.

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
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                self._routes.refused(queue.topic)
        return {
            queue: GetMaxOffsetResponse.from_ext(_checked(answer, address).ext).offset
            for queue, answer in zip(owned, answers, strict=True)
        }


def max_offset(queue: MessageQueue) -> Command:
    """A request for the offset after the last message."""
    return GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).command()


def min_offset(queue: MessageQueue) -> Command:
    """A request for the offset of the first message that is still stored."""
    return GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id).command()


def offset_at(queue: MessageQueue, timestamp_ms: int) -> Command:
    """A request for the offset of the first message stored at or after a time."""
    request = SearchOffsetByTimestampRequest(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type="LOWER"
    )
    return request.command()


def committed_offset(queue: MessageQueue, group: str) -> Command:
    """A request for the offset that a consumer group has committed."""
    request = QueryConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    return request.command()


def messages_at(queue: MessageQueue, offset: int, count: int, group: str) -> Command:
    """A request for up to ``count`` messages from ``offset`` on, whatever their tags; the group's offset
    stays.
    """
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
    """The queues of each broker; both brokers and queues are sorted."""
    owned: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        owned.setdefault(queues[queue], []).append(queue)
    return owned


def is_busy(code: int) -> bool:
    """Whether the same request may succeed later, by the code of its answer."""
    return code in _BUSY_CODES


def _checked(answer: Command, address: str) -> Command:
    if is_busy(answer.code):
        raise UnreachableError(f"{address} is busy: {answer.remark}")
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return answer
