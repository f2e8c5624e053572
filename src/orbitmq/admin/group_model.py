"""Consumer groups as the operations return them: members, subscriptions, conflicts, lag, moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.admin.group_settings import GroupSettings
from orbitmq.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Member:
    """One connected consumer of a group."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group's subscription to a topic: the kind of expression (``TAG``, ``SQL92``) and the expression."""

    kind: str
    expression: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two members of a group with different subscriptions to a topic, so that each loses messages.

    Attributes:
        wanted, other_wanted: the two members' expressions; ``None`` for a member without a subscription to
            the topic.
    """

    topic: str
    client_id: str
    wanted: str | None
    other_client_id: str
    other_wanted: str | None


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group: its settings, members, subscriptions and conflicts.

    Attributes:
        settings: settings by broker name.
        members: members by client id; empty if the group is offline.
        subscriptions: subscriptions by topic.
        conflicts: members whose subscriptions to a topic contradict each other, as OrbitMQ's brokers report
            them.
        conflict_count: number of conflicts since the start of the brokers.
        consume_type, message_model: empty if the group is offline.
    """

    group: str
    settings: Mapping[str, GroupSettings]
    members: Sequence[Member]
    subscriptions: Mapping[str, Subscription]
    conflicts: Sequence[Conflict]
    conflict_count: int
    consume_type: str = ""
    message_model: str = ""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The lag of a group in one queue.

    Attributes:
        committed: the committed offset, which is the offset of the next message for the group.
        end: the offset of the next message to be stored.
        in_flight: messages that members have fetched or popped, but neither committed nor acknowledged.
            Fetched messages do not count while no member is online.
        age: age of the oldest unconsumed message in seconds, since it was stored; 0 if there is none.
        popped: the popped messages among ``in_flight``. They are below ``committed``, at which the next pop
            begins. ``None`` if the group does not pop the queue, or the broker is Apache's and does not
            report the number.
    """

    queue: MessageQueue
    committed: int
    end: int
    in_flight: int
    age: float
    popped: int | None = None

    @property
    def lag(self) -> int:
        """Number of unconsumed messages, those in flight included."""
        return max(0, self.end - self.committed) + (self.popped or 0)


@dataclass(frozen=True, slots=True)
class Move:
    """One queue of a reset.

    Attributes:
        before: the committed offset; ``None`` if the group has committed none.
        to: the new offset.
    """

    queue: MessageQueue
    before: int | None
    to: int
