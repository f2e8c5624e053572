"""The reasons why a group is behind, from its members, its lag, and the report of the member that reads the
worst queue. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orbitmq.admin.group_model import GroupDetails, Member, QueueLag
from orbitmq.wording import counted

BROADCASTING = "BROADCASTING"
POPPING = "CONSUME_POP"
LagKind = Literal["off", "offline", "conflict", "in flight", "one queue", "few members", "few queues"]


@dataclass(frozen=True, slots=True)
class LagCause:
    """One reason for a lag, as a kind for programs and in words."""

    kind: LagKind
    text: str


@dataclass(frozen=True, slots=True)
class LagReport:
    """How far a group is behind, and why.

    Attributes:
        details: the group's settings, members, subscriptions and conflicts.
        lag: number of unconsumed messages.
        in_flight: the messages among them that members have fetched or popped.
        age: age of the oldest of them in seconds, since it was stored.
        worst: the queue with the largest lag; ``None`` if the group is not behind.
        causes: the reasons found; empty if the group is not behind, or no reason is known.
    """

    details: GroupDetails
    lag: int
    in_flight: int
    age: float
    worst: QueueLag | None
    causes: Sequence[LagCause]

    @property
    def text(self) -> str:
        """The report as sentences."""
        if not self.lag:
            return f"{self.details.group} is not behind."
        begin = f"{self.details.group} is {self.lag:,} behind, {self.age:,.0f} s."
        return " ".join([begin, *(f"{one.text[0].upper()}{one.text[1:]}." for one in self.causes)])


@dataclass(frozen=True, slots=True)
class Holder:
    """The member that reads the worst queue.

    Attributes:
        in_hand: messages of the queue that the member has fetched and not finished.
        done: whether the member has finished all messages and only its commit is missing.
        moved: whether the member finished a message while it was observed.
        watched: duration of the observation in seconds.
    """

    member: Member
    in_hand: int
    done: bool
    moved: bool
    watched: float


def worst_of(lags: Sequence[QueueLag]) -> QueueLag | None:
    """The queue with the largest lag; ``None`` if no queue has a lag."""
    return max((one for one in lags if one.lag), key=lambda one: one.lag, default=None)


def report(
    details: GroupDetails, lags: Sequence[QueueLag], holder: Holder | None, *, unread: bool
) -> LagReport:
    """The lag report of a group.

    Args:
        lags: the lag of all queues that the group reads.
        holder: the member that reads the worst queue; ``None`` if it is not known.
        unread: no member reads the worst queue, by the reports of all members.
    """
    total, worst = sum(one.lag for one in lags), worst_of(lags)
    age = max((one.age for one in lags), default=0.0)
    in_flight, popped = sum(one.in_flight for one in lags), sum(one.popped or 0 for one in lags)
    causes: list[LagCause] = []
    if worst is not None:
        causes = _of_group(details)
        if popped:
            causes.append(LagCause("in flight", f"{popped:,} of them are popped and not acknowledged"))
        causes += _of_queues(details, lags, worst, holder, unread=unread)
    return LagReport(details, total, in_flight, age, worst, causes)


def _of_group(details: GroupDetails) -> list[LagCause]:
    causes: list[LagCause] = []
    off = [broker for broker, settings in details.settings.items() if not settings.consume]
    if off:
        causes.append(LagCause("off", f"consuming is switched off on {', '.join(off)}"))
    if not details.members:
        causes.append(LagCause("offline", "no member is online"))
        return causes
    if details.conflicts:
        topics = ", ".join(sorted({one.topic for one in details.conflicts}))
        text = f"members want different messages of {topics}, and each loses some"
        causes.append(LagCause("conflict", text))
    return causes


def _of_queues(
    details: GroupDetails, lags: Sequence[QueueLag], worst: QueueLag, holder: Holder | None, *, unread: bool
) -> list[LagCause]:
    total, topic = sum(one.lag for one in lags), worst.queue.topic
    if not details.members:
        return []
    if worst.lag * 2 > total:
        place = f"{topic}, queue {worst.queue.broker_name}:{worst.queue.queue_id}"
        text = f"{worst.lag:,} of them in {place}{_held(holder, unread=unread)}"
        return [LagCause("one queue", text)]
    if details.consume_type == POPPING or worst.popped is not None:
        return []  # members that pop share all queues, so their numbers do not matter
    queues, members = sum(one.queue.topic == topic for one in lags), len(details.members)
    if members < queues:
        more = queues - members
        shared = f"the {counted(queues, 'queue')} of {topic} are shared by {counted(members, 'member')}"
        return [LagCause("few members", f"{shared}: up to {more} more can help")]
    each = f"each of the {counted(queues, 'queue')} of {topic} has a member of its own"
    return [LagCause("few queues", f"{each}: more members do not help, more queues do")]


def _held(holder: Holder | None, *, unread: bool) -> str:
    if unread:
        return ", which no member reads"
    if holder is None:
        return ""
    member = holder.member
    host = member.address.rpartition(":")[0]
    who = member.client_id if host in member.client_id else f"{member.client_id} at {host}"
    if holder.done:
        return f", which its member {who} has done and commits soon"
    if not holder.in_hand:
        return f", whose member {who} has none of them in hand"
    if holder.moved:
        return f", whose member {who} has {holder.in_hand:,} in hand and works on them"
    return f", whose member {who} has {holder.in_hand:,} in hand and finished none in {holder.watched:g} s"
