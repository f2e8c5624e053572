"""The subscriptions of a consumer group's members, and where they contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from orbitmq.message.reserved import RETRY_PREFIX, TAG
from orbitmq.wire.bodies.client import SubscriptionData

# Topic, kind of expression and expression for each topic of a member: equal for equal subscriptions.
SubscriptionSet: TypeAlias = frozenset[tuple[str, str, object]]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two members of a group that subscribe to different messages of a topic, so that each misses some.

    Attributes:
        wanted, other_wanted: their expressions, ``None``: that member does not subscribe to the topic.
    """

    topic: str
    client_id: str
    wanted: str | None
    other_client_id: str
    other_wanted: str | None

    def __str__(self) -> str:
        return (
            f"topic {self.topic}: client {self.client_id} {_subscription_text(self.wanted)}, "
            f"client {self.other_client_id} {_subscription_text(self.other_wanted)}"
        )


@dataclass(slots=True)
class HeartbeatEffect:
    """The effect of a heartbeat: whether topics or expressions changed, and a new conflict, if any."""

    topics: bool
    expressions: bool
    conflict: Conflict | None


@dataclass(slots=True)
class _Member:
    client_id: str
    subscription_set: SubscriptionSet
    expressions: dict[str, str]


@dataclass(slots=True)
class Subscriptions:
    """The subscriptions of one group.

    Attributes:
        table: by topic, the newest version of the subscription that a member sent. A topic stays while any
            member subscribes to it.
    """

    table: dict[str, SubscriptionData] = field(default_factory=dict)
    _members: dict[object, _Member] = field(default_factory=dict)
    # Members by their subscriptions: more than one entry is a conflict.
    _by_subscription_set: dict[SubscriptionSet, dict[object, None]] = field(default_factory=dict)

    def conflict_of(
        self, member: object, client_id: str, data: Iterable[SubscriptionData]
    ) -> Conflict | None:
        """How these subscriptions would contradict those of another member; ``None``: they would not."""
        return self._conflict(member, _member(client_id, data))

    def apply_heartbeat(
        self, member: object, client_id: str, data: Iterable[SubscriptionData]
    ) -> HeartbeatEffect:
        """Take over the subscriptions of a member's heartbeat."""
        data = list(data)
        current = _member(client_id, data)
        before = self._members.get(member)
        conflict = None
        if before is None or before.subscription_set != current.subscription_set:
            conflict = self._conflict(member, current)
            self._leave(member)
            self._by_subscription_set.setdefault(current.subscription_set, {})[member] = None
        self._share(current)
        self._members[member] = current
        known = set(self.table)
        expressions = False
        for new in data:
            old = self.table.get(new.topic)
            if old is None or new.sub_version > old.sub_version:
                expressions |= old is not None and old.sub_string != new.sub_string
                self.table[new.topic] = new
        self._drop_unwanted()
        return HeartbeatEffect(known != set(self.table), expressions, conflict)

    def forget(self, member: object) -> None:
        """Remove a member that has left."""
        if member in self._members:
            self._leave(member)
            del self._members[member]
            self._drop_unwanted()

    def conflicts(self) -> list[Conflict]:
        """The contradictions by topic: between the largest set of equal members and each other set."""
        groups = sorted(
            (m for subscription_set, m in self._by_subscription_set.items() if subscription_set),
            key=len,
            reverse=True,
        )
        of_each = [self._members[next(iter(members))] for members in groups]
        return [conflict for other in of_each[1:] for conflict in _differences(of_each[0], other)]

    def _conflict(self, member: object, current: _Member) -> Conflict | None:
        for subscription_set, members in self._by_subscription_set.items():
            # A member without subscriptions contradicts no other: consumers start before they subscribe.
            if subscription_set and current.subscription_set and subscription_set != current.subscription_set:
                other = next((one for one in members if one != member), None)
                if other is not None:
                    return _differences(current, self._members[other])[0]
        return None

    def _share(self, current: _Member) -> None:
        """Share the objects of equal subscriptions: ten thousand members of a group may have the same one."""
        alike = next(iter(self._by_subscription_set[current.subscription_set]))
        known = self._members.get(alike)
        if known is not None and known.subscription_set == current.subscription_set:
            current.subscription_set = known.subscription_set
            if known.expressions == current.expressions:
                current.expressions = known.expressions

    def _leave(self, member: object) -> None:
        before = self._members.get(member)
        if before is not None:
            alike = self._by_subscription_set[before.subscription_set]
            del alike[member]
            if not alike:
                del self._by_subscription_set[before.subscription_set]

    def _drop_unwanted(self) -> None:
        for topic in [t for t in self.table if not any(t in m.expressions for m in self._members.values())]:
            del self.table[topic]


def _member(client_id: str, data: Iterable[SubscriptionData]) -> _Member:
    data = list(data)
    # The group's retry topic is not compared: members in clustering have it, members in broadcasting do not.
    compared = [one for one in data if not one.topic.startswith(RETRY_PREFIX)]
    subscription_set = frozenset(
        (one.topic, one.expression_type or TAG, _comparable_expression(one)) for one in compared
    )
    return _Member(client_id, subscription_set, {one.topic: one.sub_string for one in data})


def _comparable_expression(data: SubscriptionData) -> object:
    """A subscription's expression for comparisons: the order of its tags does not count."""
    return frozenset(data.tags_set) if data.tags_set else data.sub_string


def _differences(one: _Member, other: _Member) -> list[Conflict]:
    topics = sorted({topic for topic, _, _ in one.subscription_set ^ other.subscription_set})
    return [
        Conflict(
            topic, one.client_id, one.expressions.get(topic), other.client_id, other.expressions.get(topic)
        )
        for topic in topics
    ]


def _subscription_text(expression: str | None) -> str:
    return "does not subscribe" if expression is None else f"wants {expression!r}"
