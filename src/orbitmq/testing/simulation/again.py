"""Judges what happened twice at the end of a run: deliveries, and questions about transactions.

A delivery comes again only for what one broker did and the other one of its group did not know when it went
on with the work (docs/high-availability.md, decision 18), or when an answer of another broker got lost on its
way.
A fault somewhere else, or some time before, excuses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from orbitmq.broker.role import Role
from orbitmq.testing.simulation.forgotten import ANSWER_S, LOOK_S, REGISTERED_S, forgotten
from orbitmq.testing.simulation.history import History, Sent, Stored
from orbitmq.testing.simulation.load import PRODUCERS
from orbitmq.testing.simulation.plan import GROUPS, ROLLS_S, SLOWEST_LINK_S, Fault, Kind, Plan, group_of
from orbitmq.testing.simulation.traffic import LATER, TOPICS, TRADES

MOST_ASKED = 15

# What can let an answer come late or never.
_LOSES_ANSWERS = frozenset(Kind) - {Kind.CLOCK, Kind.NAME_SERVER}


def twice(plan: Plan, history: History) -> None:
    """A message that was sent once is stored once, but for what a fault took from the replicas."""
    for topic in TOPICS:
        found: dict[bytes, list[Stored]] = defaultdict(list)
        for record in history.stored.get(topic, ()):
            found[record.body].append(record)
        for body, records in found.items():
            if len(records) < 2:
                continue
            if topic in (LATER, TRADES) and _may_be_twice(plan, history, history.sent[body], records):
                continue
            places = ", ".join(f"{r.broker}:{r.queue_id} at {r.offset}" for r in records)
            history.violate("nothing is stored twice", f"{body.decode()} of {topic} is in {places}", body)


def _may_be_twice(plan: Plan, history: History, sent: Sent, records: list[Stored]) -> bool:
    # Of a send that was not answered nobody knows where the message is.
    homes = GROUPS if sent.queue is None else (sent.queue.broker_name,)
    return any(_explained(plan, history, sent, home, records) for home in homes)


def _explained(plan: Plan, history: History, sent: Sent, home: str, records: list[Stored]) -> bool:
    """Whether a message of this group may have been delivered to these places.

    Its master delivers into its own log, and knows from it what it has delivered: never twice. Each delivery
    to the other group is an acting slave's.
    """
    own = sorted(
        (record for record in records if record.broker == home),
        key=lambda record: history.second_of(home, record.place),
    )
    # By the broker's clock: what its sender's makes a shorter wait (seed 2191).
    rolled = plan.mode.rolls and sent.kind == "timer" and sent.delay_s >= ROLLS_S - plan.wrong_s
    back = own[1:]
    if back and not ((rolled or sent.kind == "trade") and _came_back(history, home, back)):
        return False
    # Since when it may be there, and when it was.
    away = sorted(
        (history.second_of(record.broker, record.place), history.seen_s(record.broker, record.place))
        for record in records
        if record.broker != home or record in back
    )
    if not away:
        return False

    def brought_s(at_s: float) -> float:
        # A transaction is stored when it has ended there; it was brought there before. So is a long timer.
        return _handed_on_s(history, home, at_s) if rolled or sent.kind == "trade" else at_s

    first_s, first_by_s = away[0]
    if own and not (
        _lacked(history, own[0])
        or (rolled and _lacked_some(history, home, first_s))
        or forgotten(plan, history, home, brought_s(first_s), first_by_s, history.seen_s(home, own[0].place))
        or _unanswered(plan, home, brought_s(first_s), first_s)
    ):
        return False
    return all(
        _unanswered(plan, home, brought_s(one_s), one_s)
        or forgotten(plan, history, home, brought_s(one_s), by_s, other_by_s)
        or (rolled and _lacked_some(history, home, one_s))
        for (one_s, by_s), (_, other_by_s) in pairwise(away)
    )


def _came_back(history: History, home: str, records: list[Stored]) -> bool:
    """Whether what a slave had brought to the other group waited there when a slave of that one acted.

    It goes on to its home then (seed 20030).
    """
    acts = [(at_s, group_of(name)) for at_s, name, role in history.roles if role is Role.ACTING_MASTER]
    brought_s = min((at_s for at_s, group in acts if group == home), default=inf)
    back_s = min((at_s for at_s, group in acts if group != home and at_s > brought_s), default=inf)
    return all(back_s <= history.seen_s(home, record.place) for record in records)


def _lacked(history: History, record: Stored) -> bool:
    """Whether a slave that began to act did not have what its master had delivered."""
    at_s = history.second_of(record.broker, record.place)
    return any(
        one.group == record.broker and one.end <= record.place and at_s <= one.at_s + LOOK_S
        for one in history.takeovers
    )


def _lacked_some(history: History, home: str, by_s: float) -> bool:
    """Whether a slave that acted by then began without the end of its master's log.

    The master may have stored a long timer there once more, and delivered it when it was back (seed 5943).
    """
    for one in history.takeovers:
        if one.group == home and one.at_s <= by_s + ANSWER_S:
            back_s = history.leads_again_s(home, one.at_s)
            ends = (end for at_s, end in history.log_ends.get(home, ()) if at_s <= back_s)
            if max(ends, default=0) > one.end:
                return True
    return False


def _handed_on_s(history: History, home: str, by_s: float) -> float:
    """Since when an acting slave may have handed on what waited in the other group, too, until ``by_s``."""
    began_s = (take.at_s for take in history.takeovers if take.group == home and take.at_s <= by_s)
    return max(began_s, default=by_s)


def _unanswered(plan: Plan, home: str, since_s: float, at_s: float) -> bool:
    """Whether an acting slave may not have heard that the other group got its message in this time."""
    (other,) = set(GROUPS) - {home}
    machines = {*plan.mode.slaves(home), other, *plan.mode.slaves(other)}
    return any(machines & set(fault.machines) for fault in _around(plan, since_s - LOOK_S, at_s + ANSWER_S))


def _around(plan: Plan, begin_s: float, end_s: float) -> Iterator[Fault]:
    """The faults in this time that can lose or delay answers."""
    for fault in plan.faults:
        on_its_way_s = SLOWEST_LINK_S if fault.kind in (Kind.SLOW_LINK, Kind.FLAKY_LINK) else 0.0
        over_s = fault.end_s + on_its_way_s
        if fault.kind in _LOSES_ANSWERS and fault.at_s <= end_s and begin_s <= over_s:
            yield fault


# ---- transactions


def transactions(plan: Plan, history: History) -> None:
    """What was rolled back is nowhere; whose end is known is not asked for."""
    stored = {record.body for record in history.stored.get(TRADES, ())}
    for sent in history.sent.values():
        if sent.kind != "trade":
            continue
        if sent.commits is False and sent.body in stored:
            text = f"{sent.body.decode()} was rolled back and is in topic {TRADES}"
            history.violate("each half message ends once", text, sent.body)
        for one, other in pairwise(_known(sent)):
            if other in sent.asked and not _may_be_asked_again(plan, history, sent, one, other):
                text = f"{sent.body.decode()} is asked for at {other[0]:.3f} s, though its end was told"
                history.violate("each half message is asked for once", text, sent.body)
        if len(sent.asked) > MOST_ASKED:
            text = f"{sent.body.decode()} is asked for {len(sent.asked)} times"
            history.violate("everything is bounded", text, sent.body)


def _known(sent: Sent) -> list[tuple[float, str]]:
    """When which group was told how a transaction ended, asked or not."""
    if sent.told_s is None or sent.queue is None:
        return sent.asked
    # A broker that waits long for its replicas asks before it answers the sender.
    return sorted([(sent.told_s, sent.queue.broker_name), *sent.asked])


def _not_shown(plan: Plan, at_s: float) -> bool:
    """Whether a name server may not have shown a broker then that had not registered again (seed 7177)."""
    return any(
        fault.kind is Kind.NAME_SERVER and fault.at_s <= at_s <= fault.end_s + REGISTERED_S
        for fault in plan.faults
    )


def _may_be_asked_again(
    plan: Plan, history: History, sent: Sent, one: tuple[float, str], other: tuple[float, str]
) -> bool:
    """Whether who asks the second time may not know what was told the first time."""
    told_s, group = one
    if _not_shown(plan, told_s):
        return True
    machines = {PRODUCERS, group, *plan.mode.slaves(group)}
    if not (history.led(group, told_s) and history.led(group, told_s + ANSWER_S)):
        # A master without the right to lead ends no transaction (seed 198).
        return True
    if any(machines & set(fault.machines) for fault in _around(plan, told_s - LOOK_S, told_s + ANSWER_S)):
        return True
    # Of a send that was not answered nobody knows which group has it (seed 27159).
    homes = GROUPS if sent.queue is None else (sent.queue.broker_name,)
    return any(_not_known_at(plan, history, home, one, other) for home in homes)


def _not_known_at(
    plan: Plan, history: History, home: str, one: tuple[float, str], other: tuple[float, str]
) -> bool:
    """Whether a transaction of this group may be asked for again by who does not know what was told."""
    (told_s, group), (asked_s, asking) = one, other
    if group != home or asking != home:
        # An acting slave brought the half message to the other group.
        brought_s = _handed_on_s(history, home, told_s)
        unanswered = _unanswered(plan, home, brought_s, told_s)
        if group != home:
            # Its master was not told of what its slave had called back (seed 18026); or a slave brings it to
            # the same group, by what another one knew, or itself before it lost power (seed 36890).
            return unanswered or forgotten(plan, history, home, brought_s, told_s, asked_s)
        if unanswered or forgotten(plan, history, home, brought_s, told_s, told_s):
            return True  # its master asked first, and knew nothing of that (seeds 4295, 1418)
    return any(
        take.group == group
        and told_s <= take.at_s <= asked_s
        and history.second_of(group, take.end, take.at_s) <= told_s + ANSWER_S
        for take in (*history.takeovers, *history.shorter)
    )
