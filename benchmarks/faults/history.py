"""The sends, deliveries and events of one run, and their evaluation.

Pure functions; times are seconds since the start of the run. A message is identified by its role and number,
which form its body.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

# The broker's clock is this machine's, but a delay counts from the time at which the broker stored the
# message.
EARLY_S = 0.02
SENDING = ("default", "once", "ordered")
"""Roles without delays, whose messages are visible at once."""

BACKLOG_ROLES = ("backlog", "backlog-ordered", "restarting")
"""Groups that slowly read the backlog, in its order."""
AUDIT = "backlog-audit"
"""The group that reads the whole backlog at the end."""
IN_HAND = 64
"""The number of backlog messages that a group of Apache's clients may have at once, in any order."""


class Send(NamedTuple):
    """One send.

    Attributes:
        stored: whether the sender's answer says that the message is stored.
        wanted: whether consumers have to get the message; a transaction that was rolled back must not be
            delivered.
        delay_s: the requested delay, 0 for none.
        broker, queue_id, offset: where it was stored; for a delayed or half message, this is not the place
            where it is read.
    """

    role: str
    number: int
    begun_s: float
    ended_s: float
    stored: bool
    wanted: bool = True
    delay_s: float = 0.0
    broker: str = ""
    error: str = ""
    queue_id: int = -1
    offset: int = -1


class Receipt(NamedTuple):
    """One delivery."""

    role: str
    number: int
    at_s: float
    broker: str
    queue_id: int
    offset: int


class Event(NamedTuple):
    """An action on the cluster (``fault``), or an observation (``route``, ``leads``)."""

    at_s: float
    kind: str
    text: str


class Pull(NamedTuple):
    """A pull that reached the slave of the faulty group."""

    at_s: float
    topic: str
    group: str
    queue_id: int


@dataclass
class History:
    """One run.

    Attributes:
        checks: transaction checks: number of the transaction, time.
        committed: the offset of the backlog that each role had committed shortly before the fault.
        pulls: pulls at the slave; only in runs with a relay.
    """

    sends: list[Send] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    checks: list[tuple[int, float]] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    pulls: list[Pull] = field(default_factory=list)

    def of(self, role: str) -> list[Send]:
        return [send for send in self.sends if send.role == role]

    def got(self, role: str) -> list[Receipt]:
        return [receipt for receipt in self.receipts if receipt.role == role]

    def first(self, kind: str, text: str, after_s: float = 0.0) -> float | None:
        """The time at which an event with this beginning was first seen at or after ``after_s``."""
        found = (e.at_s for e in self.events if e.kind == kind and e.text.startswith(text))
        return next((at for at in found if at >= after_s), None)

    # -- promises --------------------------------------------------------------------------------------

    def lost(self) -> list[Send]:
        """The acknowledged messages that were never delivered."""
        seen = {(receipt.role, receipt.number) for receipt in self.receipts}
        return [s for s in self.sends if s.stored and s.wanted and (s.role, s.number) not in seen]

    def passed_over(self) -> list[Send]:
        """Messages of the backlog that a group never got although it got later ones, while groups read in
        order.
        """
        found = []
        for role in BACKLOG_ROLES:
            seen = {receipt.number for receipt in self.got(role)}
            end = max(seen, default=0) - IN_HAND
            found += [
                send._replace(role=role)
                for send in self.of(AUDIT)
                if send.stored and send.number < end and send.number not in seen
            ]
        return found

    def unwanted(self) -> list[Receipt]:
        """The deliveries of messages that were rolled back."""
        never = {(send.role, send.number) for send in self.sends if not send.wanted}
        return [receipt for receipt in self.receipts if (receipt.role, receipt.number) in never]

    def early(self) -> list[Receipt]:
        """The deliveries before their time."""
        due = {(s.role, s.number): s.begun_s + s.delay_s - EARLY_S for s in self.sends if s.delay_s}
        return [r for r in self.receipts if r.at_s < due.get((r.role, r.number), 0.0)]

    def disorder(self, role: str) -> list[Receipt]:
        """First deliveries of a queue's messages that came after a later message of the queue."""
        seen: set[tuple[str, int, int]] = set()
        highest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        wrong = []
        for receipt in self.got(role):
            place = (receipt.broker, receipt.queue_id)
            if (*place, receipt.offset) in seen:
                continue
            seen.add((*place, receipt.offset))
            if receipt.offset < highest[place]:
                wrong.append(receipt)
            highest[place] = max(highest[place], receipt.offset)
        return wrong

    # -- costs -----------------------------------------------------------------------------------------

    def repeated(self, role: str) -> int:
        """Number of repeated deliveries, in addition to the first of each message."""
        counts = Counter(receipt.number for receipt in self.got(role))
        return sum(count - 1 for count in counts.values())

    def repeated_committed(self) -> int:
        """Number of messages of the backlog that were delivered again although they had been committed before
        the fault.
        """
        count = 0
        for role, committed in self.committed.items():
            seen: set[int] = set()
            for receipt in self.got(role):
                count += receipt.offset < committed and receipt.number in seen
                seen.add(receipt.number)
        return count

    def repeated_pending(self, role: str, fault_s: float) -> int:
        """Number of repeated deliveries of delayed messages that were pending at the fault."""
        pending = {
            send.number for send in self.of(role) if send.begun_s < fault_s <= send.ended_s + send.delay_s
        }
        counts = Counter(receipt.number for receipt in self.got(role) if receipt.number in pending)
        return sum(count - 1 for count in counts.values())

    def failed(self, role: str, start_s: float, end_s: float) -> list[Send]:
        """Sends between two times that ended without the answer that the message is stored."""
        return [s for s in self.of(role) if not s.stored and start_s <= s.begun_s < end_s]

    def failing_s(self, role: str, fault_s: float, end_s: float) -> float:
        """How long after the fault sends still failed, for sends begun before ``end_s``."""
        return max((s.ended_s - fault_s for s in self.failed(role, fault_s - 3, end_s)), default=0.0)

    def longest_gap(self, role: str, start_s: float, end_s: float) -> float:
        """The longest time between two successful sends."""
        return longest_gap((s.ended_s for s in self.of(role) if s.stored), start_s, end_s)

    def standstill(self, role: str, start_s: float, end_s: float) -> float:
        """The longest time between two deliveries."""
        return longest_gap((receipt.at_s for receipt in self.got(role)), start_s, end_s)

    def late(self, role: str, start_s: float, end_s: float) -> list[float]:
        """How late the delayed messages due between two times were, sorted; without messages that were never
        delivered.
        """
        first: dict[int, float] = {}
        for receipt in self.got(role):
            first.setdefault(receipt.number, receipt.at_s)
        return sorted(
            max(0.0, first[send.number] - send.ended_s - send.delay_s)
            for send in self.of(role)
            if send.stored and send.number in first and start_s <= send.ended_s + send.delay_s < end_s
        )

    def slowest(self, broker: str, start_s: float, end_s: float) -> float:
        """The longest duration of a send that was stored at a broker, out of those begun between two
        times.
        """
        return max(
            (s.ended_s - s.begun_s for s in self._stored_at(broker, SENDING, start_s) if s.begun_s < end_s),
            default=0.0,
        )

    def first_stored(self, role: str, broker: str, start_s: float) -> float | None:
        """The end of the first send of a role, begun after ``start_s``, that was stored at a broker."""
        return min((s.ended_s for s in self._stored_at(broker, (role,), start_s)), default=None)

    def _stored_at(self, broker: str, roles: Sequence[str], start_s: float) -> Iterable[Send]:
        for send in self.sends:
            if send.stored and send.broker == broker and send.role in roles and send.begun_s >= start_s:
                yield send

    def most_pulls(self, topics: Sequence[str], start_s: float, end_s: float) -> int:
        """The most pulls that one queue of these topics got."""
        counts = Counter((p.topic, p.queue_id) for p in self.pulls if start_s <= p.at_s < end_s)
        return max((n for (topic, _), n in counts.items() if topic in topics), default=0)

    def first_check(self, start_s: float) -> float | None:
        """Seconds from the send of the first open transaction after ``start_s`` to its check."""
        begun = {send.number: send.begun_s for send in self.of("transaction")}
        waits = [at - begun[number] for number, at in self.checks if begun.get(number, -1.0) >= start_s]
        return waits[0] if waits else None

    def checked_twice(self) -> int:
        """Number of checks of transactions that had been checked before."""
        return sum(count - 1 for count in Counter(number for number, _ in self.checks).values())


def longest_gap(times: Iterable[float], start_s: float, end_s: float) -> float:
    """The longest interval between ``start_s`` and ``end_s`` that contains none of ``times``."""
    inside = sorted(at for at in times if start_s <= at <= end_s)
    marks = [start_s, *inside, end_s]
    return max(after - before for before, after in pairwise(marks))


def middle(values: list[float]) -> float:
    """The median of sorted values, 0 if there are none."""
    return values[len(values) // 2] if values else 0.0
