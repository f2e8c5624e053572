"""Routes of topics: from the name servers, or from memory while no name server answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orbitmq.client.core.inquiry import Inquiry, cluster_inquiry, route_inquiry, topics_inquiry
from orbitmq.client.core.routing import TopicRoute, topic_route
from orbitmq.errors import NameServerError, TopicNotFoundError
from orbitmq.message import reserved
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster import connections
from orbitmq.spark.errors import UnreachableError
from orbitmq.transport.identity import NOBODY, Identity

# How long to wait for name servers if a known route could serve instead.
KNOWN_ANSWER_MS = 2_000
# How long known routes serve before silent name servers get a request again.
NAME_SERVER_PAUSE_S = 2.0
# How long a known route serves after name servers answered that they do not have its topic. A restarted name
# server has no topic until its brokers have registered again, which they do twice a minute.
UNKNOWN_TOPIC_S = 60.0
# The routes that this process has received, for times when no name server answers. Keys: name servers and
# topic; the oldest entries are dropped first.
MAX_REMEMBERED = 10_000
_remembered: dict[tuple[tuple[str, ...], str], QueueAddresses] = {}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueAddresses:
    """The addresses of a topic's queues.

    Attributes:
        readable: for each queue the address to read from: the master's, else a slave's.
        writable: for each queue the master's address; slaves accept no messages.
        masters: the addresses that name servers list as masters; see
            :meth:`orbitmq.spark.cluster.brokers.Brokers.is_master`.
        may_read, may_write: whether the topic's permission at any broker allows it.
    """

    readable: dict[MessageQueue, str]
    writable: dict[MessageQueue, str]
    masters: frozenset[str] = frozenset()
    may_read: bool = True
    may_write: bool = True

    def of(self, queues: Iterable[MessageQueue]) -> QueueAddresses:
        """The part of the route for a process that reads some queues: their addresses, and one queue of each
        other broker, which shows whether that broker answers.
        """
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
            self.may_read,
            self.may_write,
        )

    def to_json(self) -> dict[str, Any]:
        """The route as JSON, for :meth:`from_json`."""
        return {
            "readable": [[*queue, at] for queue, at in sorted(self.readable.items())],
            "writable": [[*queue, at] for queue, at in sorted(self.writable.items())],
            "masters": sorted(self.masters),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueAddresses:
        """The route from the result of :meth:`to_json`.

        Raises:
            ValueError, KeyError, TypeError: the value is no route.
        """
        readable, writable = (
            {MessageQueue(topic, broker, queue_id): at for topic, broker, queue_id, at in value[name]}
            for name in ("readable", "writable")
        )
        return cls(readable, writable, frozenset(value["masters"]))


@dataclass(slots=True)
class _Known:
    """A known route, and how long it may be used.

    Attributes:
        is_fresh: whether the last request to the name servers returned this route.
        until: how long a route that is not fresh may be used, in monotonic seconds.
    """

    route: QueueAddresses
    is_fresh: bool = False
    until: float = float("inf")


def forget_routes() -> None:
    """Forget all routes of this process."""
    _remembered.clear()


class Routes:
    """Asks name servers for routes. Not thread-safe.

    Args:
        addresses: addresses of the name servers, which are asked in order until one answers.
        timeout_ms: time limit of one answer.
        known: routes of topics from another process of the query.
        identity: keys and TLS of the requests.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        timeout_ms: int,
        known: Mapping[str, QueueAddresses] | None = None,
        identity: Identity = NOBODY,
    ) -> None:
        self._identity = identity
        self._addresses = tuple(addresses)
        self._timeout_ms = timeout_ms
        self._known = {topic: _Known(route) for topic, route in (known or {}).items()}
        self._names: tuple[str, ...] | None = None
        self._asks_at = float("-inf")
        self._clock = this_worker().clock

    @property
    def servers(self) -> str:
        """The addresses of the name servers as text, for an option or a command."""
        return ";".join(self._addresses)

    def known(self) -> dict[str, QueueAddresses]:
        """The known routes, by topic."""
        return {topic: known.route for topic, known in self._known.items()}

    def is_fresh(self, topic: str) -> bool:
        """Whether the last request to the name servers returned the route of a topic."""
        return self._known[topic].is_fresh

    def refused(self, topic: str) -> None:
        """Note that a broker does not have the topic: a route that is not fresh must not be used any more."""
        known = self._known.get(topic)
        if known is not None and not known.is_fresh:
            known.until = float("-inf")

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        """The route of ``topic``, from the first name server that answers; remembered until refreshed.

        A known route is used while no name server answers. If the name servers do not have the topic, it is
        used for :data:`UNKNOWN_TOPIC_S`, unless the topic's broker does not have the topic, either.

        Raises:
            TopicNotFoundError: no name server that answers has the topic.
            UnreachableError: no name server returns a usable answer.
        """
        known = self._known.get(topic)
        if known is not None and not refresh:
            return known.route
        now = self._clock.monotonic()
        serves = known is not None and now < known.until
        if known is not None and serves and now < self._asks_at:
            known.is_fresh = False
            return known.route
        inquiry = route_inquiry(
            topic,
            self._addresses,
            now_ms=lambda: self._clock.monotonic() * 1000,
            timeout_ms=self._answer_ms(known=serves),
        )
        try:
            data = self._outcome(inquiry)
        except UnreachableError:
            remembered = _remembered.get((self._addresses, topic))
            if known is None and remembered is not None:
                known, serves = self._known.setdefault(topic, _Known(remembered)), True
            if known is None or not serves:
                raise
            known.is_fresh = False
            return known.route
        if data is not None:
            return self.learn(topic, queue_addresses(topic_route(topic, data)))
        if known is not None:
            known.is_fresh = False
            known.until = min(known.until, now + UNKNOWN_TOPIC_S)
            if now < known.until:
                return known.route
        if self._know_no_broker():
            raise UnreachableError(f"the name servers {self.servers} know no broker yet")
        raise TopicNotFoundError(
            topic, f"topic {topic!r} is not known to the name servers {self.servers}: {self._remedy(topic)}"
        )

    def learn(self, topic: str, route: QueueAddresses) -> QueueAddresses:
        """Remember a route that a name server returned."""
        self._known[topic] = _Known(route, is_fresh=True)
        _remembered.pop((self._addresses, topic), None)
        while len(_remembered) >= MAX_REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
        _remembered[self._addresses, topic] = route
        return route

    def of(self, queues: Iterable[MessageQueue]) -> dict[str, QueueAddresses]:
        """The known routes of the topics of ``queues``, for a process that reads those queues."""
        owned: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            owned.setdefault(queue.topic, []).append(queue)
        return {topic: self._known[topic].route.of(of) for topic, of in owned.items() if topic in self._known}

    def topics_like(self, pattern: str) -> tuple[str, ...]:
        """The topics whose whole name matches, sorted, without retry, dead letter and system topics.

        While no name server answers, the known names are used.

        Raises:
            UnreachableError: no name server returns a usable answer.
        """
        now = self._clock.monotonic()
        if self._names is None or now >= self._asks_at:
            inquiry = topics_inquiry(
                self._addresses,
                now_ms=lambda: self._clock.monotonic() * 1000,
                timeout_ms=self._answer_ms(known=self._names is not None),
            )
            try:
                found = self._outcome(inquiry)
            except UnreachableError:
                if self._names is None:
                    raise
            else:
                self._names = tuple(found.topic_list) if found is not None else ()
        # A restarted name server does not list every topic yet, so topics with a usable route are added.
        names = {*(self._names or ()), *(topic for topic, known in self._known.items() if now < known.until)}
        wanted = re.compile(pattern)
        return tuple(
            sorted(
                topic
                for topic in names
                if wanted.fullmatch(topic)
                and not topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
                and not reserved.is_own_topic(topic)
            )
        )

    def _answer_ms(self, *, known: bool) -> int:
        """How long to wait for name servers: shorter if a known route could serve instead."""
        return min(self._timeout_ms, KNOWN_ANSWER_MS) if known else self._timeout_ms

    def _outcome(self, inquiry: Inquiry[T]) -> T | None:
        """The name servers' answer; ``None`` if the ones that answer do not have the topic."""
        for address, timeout_ms in inquiry:
            try:
                (answer,) = connections.ask(address, [inquiry.command()], timeout_ms, identity=self._identity)
            except UnreachableError as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, answer)
        try:
            found = inquiry.result()
        except NameServerError as error:
            self._asks_at = self._clock.monotonic() + NAME_SERVER_PAUSE_S
            raise UnreachableError(f"{error}: are their addresses right?") from error
        self._asks_at = float("-inf")
        return found

    def _remedy(self, topic: str) -> str:
        for prefix, what in ((reserved.RETRY_PREFIX, "retried"), (reserved.DLQ_PREFIX, "given up")):
            if topic.startswith(prefix):
                return f"no message of group {topic.removeprefix(prefix)!r} was {what}, or its name is wrong"
        return f"create it with `orbitmq topic create {topic} -n '{self.servers}'`, or correct its name"

    def _know_no_broker(self) -> bool:
        """Whether no broker has registered: the name servers were just started and have no topics yet."""
        inquiry = cluster_inquiry(
            self._addresses,
            now_ms=lambda: self._clock.monotonic() * 1000,
            timeout_ms=self._answer_ms(known=True),
        )
        try:
            found = self._outcome(inquiry)
        except UnreachableError:
            return False
        return found is not None and not found.broker_addr_table


def queue_addresses(route: TopicRoute) -> QueueAddresses:
    """The addresses for reading and writing each queue, from the client's route."""
    readers = {name: found[0] for name in route.addresses if (found := route.reader(name)) is not None}
    masters = {name: address for name in route.addresses if (address := route.master(name)) is not None}
    return QueueAddresses(
        {queue: readers[queue.broker_name] for queue in route.subscribe if queue.broker_name in readers},
        {queue: masters[queue.broker_name] for queue in route.publish if queue.broker_name in masters},
        frozenset(masters.values()),
        any(share.perm & reserved.PERM_READ for share in route.brokers),
        any(share.perm & reserved.PERM_WRITE for share in route.brokers),
    )
