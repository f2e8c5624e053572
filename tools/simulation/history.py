"""The record of a run: messages sent and delivered, leaders, faults; and the trace for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf

from orbitmq.broker.role import TAKES_MESSAGES, Role
from orbitmq.errors import OrbitError
from orbitmq.message import property_names
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Buffer, Clock
from tools.simulation.excuses import Excuses
from tools.simulation.plan import group_of
from tools.simulation.traffic import REMADE

# A run with more lines than this is already wrong.
MOST_LINES = 20_000
# The time in seconds, the actor, the event.
Line = tuple[float, str, str]


class PlannedError(OrbitError):
    """A handler's planned failure, whose log line is no violation."""


@dataclass(slots=True)
class Sent:
    """One message of a producer.

    Attributes:
        kind: plain, ordered, delayed, timer or transaction.
        at_s: the time at which its send began.
        acked_s: the time of its answer SEND_OK; ``None`` without such an answer.
        queue: the queue in which it was stored.
        key: the key of an ordered message; messages of one key are in order.
        delay_s: its delay.
        commits: whether its transaction commits; ``None`` if it has no transaction.
        told_s: the time at which its producer ended the transaction, without a check.
        recall_s: the time at which its producer began to recall it.
        recalled_s: the time at which the recall was answered with success.
        asked: the times at which brokers checked the transaction, each with the broker's group.
        offset, place: its offset in the queue and its place in the group's log, from the producer's answer.
        digest: the digest of its body, keys, tag and property, see :func:`digest_of`.
    """

    body: bytes
    topic: str
    kind: str
    at_s: float
    acked_s: float | None = None
    queue: MessageQueue | None = None
    key: str = ""
    delay_s: float = 0.0
    commits: bool | None = None
    told_s: float | None = None
    recall_s: float | None = None
    recalled_s: float | None = None
    asked: list[tuple[float, str]] = field(default_factory=list)
    offset: int = -1
    place: int = -1
    digest: bytes = b""


# The property that every message of a run has.
PROPERTY = "colour"


def digest_of(body: Buffer, properties: Mapping[str, str]) -> bytes:
    """A digest of everything that a producer sets in a message."""
    digest = blake2b(body, digest_size=16)
    for name in (property_names.KEYS, property_names.TAGS, PROPERTY):
        digest.update(repr(properties.get(name)).encode())
    return digest.digest()


@dataclass(slots=True)
class Delivered:
    """One handling of a message.

    Attributes:
        member: the consumer; after a restart it counts as a different member.
        queue, offset: the place where it was stored. For a redelivery, that is a queue of the group's retry
            topic, with the topic's own name.
        again: whether this is a redelivery after a failure.
        ended_s: the end of the handling; ``None`` if it failed, or its process ended first.
        settling_s: for a popped message, the time from which it is no longer in flight, if its member's call
            arrives.
        done_s: the time at which a broker confirmed it as done.
    """

    body: bytes
    group: str
    member: str
    queue: MessageQueue
    offset: int
    at_s: float
    again: bool = False
    ended_s: float | None = None
    settling_s: float | None = None
    done_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dealt:
    """The messages of one queue that a member popped with one call, as bodies by offset.

    Attributes:
        again: redelivered messages; their offsets may be those of a retry topic.
        popped_s: the time at which the broker gave them out, by its clock.
    """

    at_s: float
    group: str
    member: str
    queue: MessageQueue
    bodies: dict[int, bytes]
    again: frozenset[int]
    popped_s: float = inf


@dataclass(slots=True)
class Moved:
    """A reset of one queue of a group by an operator; ``done_s``: the time at which its broker confirmed the
    reset.
    """

    at_s: float
    queue: MessageQueue
    to: int
    done_s: float | None = None


@dataclass(slots=True)
class Changed:
    """A change of a group's setting by an operator, which these brokers accepted."""

    at_s: float
    value: int
    brokers: list[str] = field(default_factory=list)
    done_s: float | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """A topic's permissions at a broker group that differ from those that an operator restored.

    Attributes:
        at_s: the time at which this was seen, with all masters leading again.
        given_s: the time at which all brokers had confirmed all permissions.
    """

    at_s: float
    given_s: float
    group: str
    topic: str
    perm: int


@dataclass(slots=True)
class Remade:
    """The deletion and new creation of a topic.

    Attributes:
        at_s: the time of the first request to delete it; no producer waits for an answer at that time.
        deleted_s: the time at which all groups had deleted it.
        made_s: the time at which all groups had it again, and producers continue.
    """

    at_s: float
    deleted_s: float = inf
    made_s: float = inf


@dataclass(frozen=True, slots=True)
class Stored:
    """One record that a consumer can read at the end of a run.

    Attributes:
        place: its begin in the log of its broker group.
    """

    body: bytes
    broker: str
    topic: str
    queue_id: int
    offset: int
    place: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """The moment at which a broker continues the work of its group: a slave begins to act, or a master begins
    to serve.

    Attributes:
        end: the end of its log: the broker does not know later records of its predecessor.
    """

    at_s: float
    group: str
    end: int


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise.

    Attributes:
        checker: the checker that found it.
        body: the body of the message, if the violation is about one.
    """

    checker: str
    text: str
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


class History:
    """The record of one run; times are seconds of the true clock since all brokers served.

    Attributes:
        dealt: the pops of members.
        moves, changes: the actions of an operator.
        given: by topic, the time at which all brokers had confirmed all its permissions.
        withheld: the broker groups that lost restored permissions.
        committed: the commits of the moved group with their times, by broker group, topic@group and queue.
        remade: the deletions and new creations of a topic by an operator.
        settings: the settings changed by an operator, as the masters have them at the end.
        stored: the records at the end, by topic.
        retried: the messages in the retry topics of groups that pull, at the end, by group.
        dead: the dead letters at the end, by group.
        roles: the changes of roles: time, broker, role.
        takeovers: the moments at which slaves began to act.
        shorter: the moments at which a master began to accept messages with a log that is shorter than its
            group's had been: later records had not reached a disk.
        excuses: what the checkers excused.
        popping: the consumer groups whose members pop.
        log_ends: by broker group, the times and ends of its log: at each growth, and at each start with a
            shorter log.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zero_s = clock.monotonic()
        self.sent: dict[bytes, Sent] = {}
        self.delivered: list[Delivered] = []
        self.dealt: list[Dealt] = []
        self.moves: list[Moved] = []
        self.changes: list[Changed] = []
        self.committed: dict[tuple[str, str, int], list[tuple[float, int]]] = {}
        self.settings: dict[str, int] = {}
        self.given: dict[str, float] = {}
        self.withheld: list[Withheld] = []
        self.remade: list[Remade] = []
        self.by_group: dict[str, set[bytes]] = {}
        self._lines: list[tuple[float, str, str]] = []
        self.violations: list[Violation] = []
        self.stored: dict[str, list[Stored]] = {}
        self.retried: dict[str, list[Stored]] = {}
        self.dead: dict[str, set[bytes]] = {}
        self.roles: list[tuple[float, str, Role]] = []
        self.takeovers: list[Takeover] = []
        self.shorter: list[Takeover] = []
        self.log_ends: dict[str, list[tuple[float, int]]] = {}
        self.excuses = Excuses()
        self.popping: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def now_s(self) -> float:
        """Seconds since all servers served; negative before that."""
        return self._clock.monotonic() - self._zero_s

    def begin(self) -> None:
        """Set the zero of the times: all servers serve, load and faults begin."""
        self._zero_s = self._clock.monotonic()

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if len(self._lines) < MOST_LINES:
            self._lines.append((self._clock.monotonic(), who, what))

    def violate(self, checker: str, text: str, body: bytes = b"", *, once: str = "") -> None:
        """Record a broken promise. Of several with the same ``once``, only the first counts."""
        if once:
            if (checker, once) in self._told:
                return
            self._told.add((checker, once))
        self.violations.append(Violation(checker, text, body))
        self.note("CHECK", f"{checker}: {text}")

    @property
    def remaking(self) -> bool:
        """Whether a topic is being deleted and created again."""
        return bool(self.remade) and self.remade[-1].made_s == inf

    @property
    def remade_s(self) -> float:
        """The time from which the topic that is created again exists as it does at the end."""
        return self.remade[-1].made_s if self.remade else 0.0

    @property
    def deletes_s(self) -> float:
        """The time from which some brokers may have deleted the topic."""
        return self.remade[-1].at_s if self.remade else inf

    @property
    def read_before(self) -> dict[tuple[str, str, int], int]:
        """The highest offset of the deleted topic that a group got, by group, broker group and queue."""
        found: dict[tuple[str, str, int], int] = {}
        got = [(one.at_s, one.group, one.queue, one.offset) for one in self.delivered if not one.again]
        for each in self.dealt:
            got += [(each.at_s, each.group, each.queue, at) for at in each.bodies.keys() - each.again]
        for at_s, group, queue, offset in got:
            if self.remade and queue.topic == REMADE and at_s < self.remade_s:
                place = group, queue.broker_name, queue.queue_id
                found[place] = max(found.get(place, -1), offset)
        return found

    @property
    def reigns(self) -> Iterator[tuple[float, str]]:
        """The times at which a broker began to lead, or to serve as a possible leader."""
        return (
            (at_s, name)
            for at_s, name, role in self.roles
            if role in TAKES_MESSAGES or role is Role.ACTING_MASTER
        )

    def leads_again_s(self, group: str, since_s: float) -> float:
        """The time at which the master of a group leads again after ``since_s``."""
        return next(
            (at for at, name, role in self.roles if name == group and role is Role.MASTER and at >= since_s),
            inf,
        )

    def acted(self, group: str, since_s: float, until_s: float) -> tuple[str, ...]:
        """The slaves of a group that may have acted in this time, as far as the watch saw their roles."""
        last: dict[str, Role] = {}
        found: dict[str, None] = {}
        for at_s, name, role in self.roles:
            if group_of(name) != group or at_s > until_s:
                continue
            if at_s > since_s and last.get(name) is Role.ACTING_MASTER:
                found[name] = None
            last[name] = role
        found |= {name: None for name, role in last.items() if role is Role.ACTING_MASTER}
        return tuple(found)

    def led(self, group: str, at_s: float) -> bool:
        """Whether the master of a group led at this time and was not fenced, as far as it was running."""
        roles = [role for at, name, role in self.roles if name == group and at <= at_s]
        return not roles or roles[-1] is Role.MASTER

    def begins_shorter(self, began: Takeover) -> None:
        """A master begins to accept messages: records of its group's log after its end are lost."""
        looks = self.log_ends.get(began.group)
        if looks and began.end < looks[-1][1]:
            self.shorter.append(began)
            looks.append((began.at_s, began.end))

    def log_grew(self, group: str, end: int) -> None:
        """Record the end of a group's log, the highest one so far."""
        looks = self.log_ends.setdefault(group, [(self.now_s(), 0)])
        if end > looks[-1][1]:
            looks.append((self.now_s(), end))

    def forgot(
        self, group: str, known_s: float, place: int | None = None, *, until_s: float | None = None
    ) -> Takeover | None:
        """The first start of a master, after ``known_s``, whose log lacked a record that its group's log had;
        ``None`` if there was none.

        Args:
            known_s: the log had the record at this time.
            place: the record's place in the log; ``None`` if it is unknown, but was written by ``until_s``.
        """
        for each in self.shorter:
            if each.group != group or each.at_s < known_s:
                continue
            if place is not None and place >= each.end:
                return each
            if place is None and (until_s is None or self.second_of(group, each.end, each.at_s) <= until_s):
                return each
        return None

    def second_of(self, group: str, place: int, before_s: float = inf) -> float:
        """The time at which a group's log got the record at this place, or with ``before_s`` the record that
        it had there before that time; precise to one look of the watch.

        The records' own times are not used, since the plan sets wall clocks wrong.
        """
        looks = reversed(self.log_ends.get(group, []))
        return next((at_s for at_s, end in looks if end <= place and at_s < before_s), -inf)

    def seen_s(self, group: str, place: int) -> float:
        """The time at which the record at this place of a group's log was first seen: it was written
        by then.
        """
        seen_s = inf
        for at_s, end in reversed(self.log_ends.get(group, [])):
            if end <= place:
                break
            seen_s = at_s
        return seen_s

    def send(self, sent: Sent) -> Sent:
        self.sent[sent.body] = sent
        return sent

    def compare(self, body: bytes, whole: Buffer, properties: Mapping[str, str], where: str) -> None:
        """Check that a message is as its producer sent it."""
        sent = self.sent.get(body)
        if sent is None or sent.digest != digest_of(whole, properties):
            text = f"{body[:40].decode(errors='replace')} is not as it was sent, {where}"
            self.violate("messages are as they were sent", text, body, once=f"{body!r} {where}")

    def deliver(
        self, group: str, member: str, body: bytes, queue: MessageQueue, offset: int, *, again: bool
    ) -> Delivered:
        one = Delivered(body, group, member, queue, offset, self.now_s(), again)
        self.delivered.append(one)
        return one

    def done(self, one: Delivered) -> None:
        one.ended_s = self.now_s()
        self.by_group.setdefault(one.group, set()).add(one.body)

    def trace(self) -> list[Line]:
        """All lines in order, with all events of the messages that violations name."""
        lines = [(at - self._zero_s, who, what) for at, who, what in self._lines]
        for body in {violation.body: None for violation in self.violations if violation.body}:
            lines += self.story(body)
        return sorted(lines, key=lambda line: line[0])

    def story(self, body: bytes) -> Iterator[Line]:
        """All events of one message."""
        sent = self.sent.get(body)
        name = body.decode(errors="replace")
        if sent is not None:
            yield sent.at_s, "producer", f"sends {name} to {sent.topic}"
            if sent.acked_s is not None:
                yield sent.acked_s, "producer", f"{name} is acknowledged, stored in {_queue(sent.queue)}"
            if sent.recall_s is not None:
                yield sent.recall_s, "producer", f"takes {name} back"
            if sent.recalled_s is not None:
                yield sent.recalled_s, "producer", f"{name} is taken back"
            for asked_s, group in sent.asked:
                yield asked_s, "producer", f"is asked by {group} how {name} ended"
        for one in self.delivered:
            if one.body == body:
                again = ", again," if one.again else ""
                yield one.at_s, one.member, f"gets {name}{again} from {_queue(one.queue)} at {one.offset}"
        for records in self.stored.values():
            for record in records:
                if record.body == body:
                    place = f"{record.broker}:{record.queue_id} of {record.topic} at {record.offset}"
                    yield self.now_s(), "end", f"{name} is in {place}"
        for group, bodies in self.dead.items():
            if body in bodies:
                yield self.now_s(), "end", f"{name} is a dead letter of {group}"


def _queue(queue: MessageQueue | None) -> str:
    return "?" if queue is None else f"{queue.broker_name}:{queue.queue_id} of {queue.topic}"
