"""Events between the parts of one broker: typed, on one bus.

An event is published within the call that made the change, so a listener may rely on the change and must not
take long. If a listener fails, all others still get the event, in the order in which they subscribed; then
the first failure is raised to the publisher, and later ones are logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orbitmq.runtime.listeners import call_all
from orbitmq.store import MessageFilter
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import SetMessageRequestModeRequestBody
from orbitmq.wire.bodies.topic import TopicConfig

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import ConsumerGroup
    from orbitmq.broker.delay.delivered import LoggedDelivery
    from orbitmq.transport.server import ServerConnection

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic was made or changed; ``config`` is ``None`` for a deleted one."""

    topic: str
    config: TopicConfig | None


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A subscription group, or its forbidden topics, changed; ``config`` is ``None`` for a deleted group."""

    group: str
    config: SubscriptionGroupConfig | None


@dataclass(frozen=True, slots=True)
class RequestModeSet:
    """An administrator chose pulls or pops for a group in a topic."""

    mode: SetMessageRequestModeRequestBody


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Members or subscriptions of a consumer group changed; ``state`` is ``None`` after the last member."""

    group: str
    state: ConsumerGroup | None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A client's connection has closed."""

    connection: ServerConnection


@dataclass(frozen=True, slots=True)
class RightsChanged:
    """A user or the rules of a user changed; ``user`` may have lost a right."""

    user: str


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    """An administrator reset a group's offsets in a topic."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class ResetDone:
    """A group reads from the offset that an administrator moved it to, so its reset is done."""


@dataclass(frozen=True, slots=True)
class SlaveLagChanged:
    """A slave began to lack changes of its master, or has them all again."""


@dataclass(frozen=True, slots=True)
class MasterNamed:
    """A name server named the master to this slave (row NR-14).

    Attributes:
        ha_address: the master's address for its followers.
        address: the master's address for clients.
    """

    ha_address: str
    address: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Settings of the running broker changed; ``keys`` are RocketMQ's names of them."""

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """The quotas changed; ``topics`` are the topics that have a quota."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class TableSaved:
    """The last changes of these keys are on disk; ``table`` is the table's name in the change feed."""

    table: str
    keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The tables hold everything that an earlier run left in their files and in the journal."""


@dataclass(frozen=True, slots=True)
class DeliveriesLost:
    """The end of the log is about to be set aside; ``deliveries`` are the delayed messages delivered there.

    Published once for each part of that end, in the order of the log.
    """

    deliveries: Sequence[LoggedDelivery]


@dataclass(frozen=True, slots=True)
class CutAhead:
    """The log is about to be cut at ``end``, where a record begins; the part behind can still be read."""

    end: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """The end of the log was set aside: another broker has other messages there, or none.

    Notes about offsets behind ``end`` do not hold for the messages that will be stored there.
    """

    end: int


@dataclass(frozen=True, slots=True)
class TablesReceived:
    """All tables of another broker of OrbitMQ were received and applied here.

    Attributes:
        all_locks: the tables have every queue lock that a client relies on.
    """

    all_locks: bool = False


@dataclass(frozen=True, slots=True)
class PullPermitted:
    """A group's pull of a topic passed all checks.

    Attributes:
        filter: which messages the pull takes.
        registered: ``filter`` and ``version`` come from the group's heartbeats; otherwise the request
            brought its own expression.
        tags: that expression, if it is one of tags.
    """

    group: str
    topic: str
    filter: MessageFilter
    registered: bool
    version: int
    tags: str | None = None


# Called with topic, queue id and the offset behind the newest readable message.
Arrival: TypeAlias = Callable[[str, int, int], object]


class Events:
    """The bus of one broker."""

    def __init__(self) -> None:
        self._listeners: dict[type, list[Callable[[Any], object]]] = {}
        self._every_arrival: tuple[Arrival, ...] = ()
        self._arrivals: dict[str, tuple[Arrival, ...]] = {}

    def subscribe(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call ``listener`` with each event of class ``kind``."""
        self._listeners.setdefault(kind, []).append(listener)

    def publish(self, event: object) -> None:
        """Call all listeners of the event's class.

        Raises:
            Exception: the first failure of a listener, after all listeners were called.
        """
        listeners = self._listeners.get(type(event))
        if listeners:
            call_all(listeners, event)

    # Arrivals have no event objects: they are too frequent, and held pulls wait for them.

    def on_messages_arrived(self, listener: Arrival, *, topic: str | None = None) -> None:
        """Call ``listener`` when a watched queue has new messages: of any topic, or only of ``topic``."""
        if topic is None:
            self._every_arrival += (listener,)
            self._arrivals = {name: (*known, listener) for name, known in self._arrivals.items()}
        else:
            self._arrivals[topic] = (*self._arrivals.get(topic, self._every_arrival), listener)

    def messages_arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Call the listeners of arrivals: messages below ``max_offset`` can be read.

        Raises:
            Exception: as :meth:`publish`.
        """
        listeners = self._arrivals.get(topic, self._every_arrival)
        if len(listeners) == 1:
            listeners[0](topic, queue_id, max_offset)
        else:
            call_all(listeners, topic, queue_id, max_offset)
