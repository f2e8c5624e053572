"""Consumer groups as the operations show them: members, subscriptions, conflicts, lag, moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.admin.group_settings import GroupSettings
from orbitmq.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group that is online."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group reads of a topic: the kind of expression (``TAG``, ``SQL92``) and the expression."""

    kind: str
    expression: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two members of a group that want different messages of a topic, so that each loses messages.

    Attributes:
        wanted, other_wanted: their expressions; ``None``: the member does not subscribe to the topic.
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
        settings: by broker name.
        members: by client id; none: the group is offline.
        subscriptions: by topic.
        conflicts: members whose subscriptions to a topic contradict each other, as OrbitMQ's brokers report
            them.
        conflict_count: number of conflicts since the brokers started.
        consume_type, message_model: empty when the group is offline.
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
        committed: the committed offset, that of the next message for the group.
        end: the offset of the next message to be stored.
        in_flight: messages that members have fetched or popped, and neither committed nor acknowledged. What
            was fetched is not in flight any more when no member is online.
        age: seconds since the oldest unconsumed message was stored; 0: there is none.
        popped: those of ``in_flight`` that were popped: they are below ``committed``, where the next pop
            begins; ``None``: the group does not pop the queue, or the broker is RocketMQ's and does not tell.
    """

    queue: MessageQueue
    committed: int
    end: int
    in_flight: int
    age: float
    popped: int | None = None

    @property
    def lag(self) -> int:
        """Messages that are not consumed, those in flight included."""
        return max(0, self.end - self.committed) + (self.popped or 0)


@dataclass(frozen=True, slots=True)
class Move:
    """One queue of a reset.

    Attributes:
        before: the committed offset, ``None``: the group had committed nothing.
        to: the offset that the group is moved to.
    """

    queue: MessageQueue
    before: int | None
    to: int
