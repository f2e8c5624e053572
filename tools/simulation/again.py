"""Judges, at the end of a run, what happened twice: deliveries, and transaction checks.

A delivery may be repeated only if the broker that continued the work did not know what the earlier one of its
group had done (docs/high-availability.md, decision 18), or if another broker's answer was lost. A fault at
other machines, or long before, excuses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import TypeAlias

from orbitmq.broker.role import Role
from tools.simulation.excuses import first
from tools.simulation.forgotten import ANSWER_S, LOOK_S, REGISTERED_S, forgotten
from tools.simulation.history import History, Sent, Stored
from tools.simulation.load import PRODUCERS
from tools.simulation.plan import (
    CLIENTS,
    GROUPS,
    ROLLS_S,
    SLOWEST_LINK_S,
    Fault,
    Kind,
    Plan,
    group_of,
)
from tools.simulation.traffic import LATER, TOPICS, TRADES

MOST_ASKED = 15
# A window is rounded to slots of the timer wheel, and a message is stored again some time after the window's
# end.
ROLL_S = 0.7
# The rules that excuse messages stored twice.
TWICE = ("brought back", "delivery lacked", "delivery forgotten", "roll lacked", "answer lost")

# The kinds of faults that can delay or lose an answer.
_LOSES_ANSWERS = frozenset(Kind) - {Kind.CLOCK, Kind.NAME_SERVER}


def twice(plan: Plan, history: History) -> None:
    """A message sent once is stored once, except where a fault destroyed state of the replicas."""
    for topic in TOPICS:
        found: dict[bytes, list[Stored]] = defaultdict(list)
        for record in history.stored.get(topic, ()):
            found[record.body].append(record)
        for body, records in found.items():
            for rule in TWICE:
                history.excuses.judged(rule, body)
            if len(records) < 2:
                continue
            sent = history.sent.get(body)
            if topic in (LATER, TRADES) and sent and _may_be_twice(plan, history, sent, records):
                continue
            places = ", ".join(f"{r.broker}:{r.queue_id} at {r.offset}" for r in records)
            history.violate("nothing is stored twice", f"{body.decode()} of {topic} is in {places}", body)


def _may_be_twice(plan: Plan, history: History, sent: Sent, records: list[Stored]) -> bool:
    # If a send was not answered, the group that may have the message is unknown.
    homes = GROUPS if sent.queue is None else (sent.queue.broker_name,)
    for home in homes:
        if rules := _explained(plan, history, sent, home, records):
            return all(history.excuses.covers(rule, sent.body, cause) for rule, cause in rules.items())
    return False


# For each rule, the fault that explains why a message is stored again.
Explained: TypeAlias = dict[str, str]


def _explained(plan: Plan, history: History, sent: Sent, home: str, records: list[Stored]) -> Explained:
    """The faults that explain why a message of this group was delivered to these places; empty if none does.

    A master delivers into its own log and finds its earlier deliveries there, so it never delivers twice.
    Each delivery to the other group comes from an acting slave.
    """
    own = sorted(
        (record for record in records if record.broker == home),
        key=lambda record: history.second_of(home, record.place),
    )
    rolled = _rolls(plan, sent)
    explained: Explained = {}
    back = own[1:]
    if back:
        if not ((rolled or sent.kind == "trade") and _came_back(history, home, back)):
            return {}
        explained["brought back"] = "takeover"
    # For each delivery to the other group, the earliest time at which it was stored, and the time at which it
    # was seen.
    away = sorted(
        (history.second_of(record.broker, record.place), history.seen_s(record.broker, record.place))
        for record in records
        if record.broker != home or record in back
    )
    if not away or not any(take.group == home and take.at_s <= away[-1][1] for take in history.takeovers):
        return {}

    def why(one_s: float, by_s: float, other_by_s: float) -> Explained:
        # A transaction is stored when it ends, after an acting slave has moved its half message; so is a
        # timer that rolls.
        brought_s = _handed_on_s(history, home, one_s) if rolled or sent.kind == "trade" else one_s
        if forgotten(plan, history, home, brought_s, by_s, other_by_s):
            return {"delivery forgotten": "takeover"}
        if rolled and _lacked_roll(plan, history, sent, home, one_s):
            return {"roll lacked": "takeover"}
        cause = unanswered(plan, history, home, brought_s, one_s)
        return {"answer lost": cause} if cause else {}

    first_s, first_by_s = away[0]
    if own:
        if _lacked(history, own[0]):
            explained["delivery lacked"] = "takeover"
        elif said := why(first_s, first_by_s, history.seen_s(home, own[0].place)):
            explained |= said
        else:
            return {}
    for (one_s, by_s), (_, other_by_s) in pairwise(away):
        if not (said := why(one_s, by_s, other_by_s)):
            return {}
        explained |= said
    return explained


def _rolls(plan: Plan, sent: Sent) -> bool:
    """Whether a timer waits long enough to be stored again (rolled) before it is due.

    The broker's clock decides, by which the wait may be shorter than by the sender's.
    """
    return plan.mode.rolls and sent.kind == "timer" and sent.delay_s >= ROLLS_S - plan.wrong_s


def _came_back(history: History, home: str, records: list[Stored]) -> bool:
    """Whether a message that a slave moved to the other group still waited there when a slave of that group
    acted.

    That slave moves the message back to its home group.
    """
    acts = [(at_s, group_of(name)) for at_s, name, role in history.roles if role is Role.ACTING_MASTER]
    brought_s = min((at_s for at_s, group in acts if group == home), default=inf)
    back_s = min((at_s for at_s, group in acts if group != home and at_s > brought_s), default=inf)
    return all(back_s <= history.seen_s(home, record.place) for record in records)


def _lacked(history: History, record: Stored) -> bool:
    """Whether a slave that began to act lacked its master's delivery."""
    at_s = history.second_of(record.broker, record.place)
    return any(
        one.group == record.broker and one.end <= record.place and at_s <= one.at_s + LOOK_S
        for one in history.takeovers
    )


def _lacked_roll(plan: Plan, history: History, sent: Sent, home: str, by_s: float) -> bool:
    """Whether a slave that acted by ``by_s`` lacked the record in which this long timer was stored again.

    The master stores the timer again when a window, or half of one, is over, and delivers from that record.
    """
    slack_s = plan.wrong_s + ROLL_S
    for one in history.takeovers:
        if one.group != home or one.at_s > by_s + ANSWER_S:
            continue
        back_s = history.leads_again_s(home, one.at_s)
        ends = [at_s for at_s, end in history.log_ends.get(home, ()) if end > one.end and at_s <= back_s]
        since_s = history.second_of(home, one.end, back_s)
        if ends and any(
            since_s - slack_s <= sent.at_s + wait_s <= ends[-1] + slack_s for wait_s in (ROLLS_S / 2, ROLLS_S)
        ):
            return True
    return False


def _handed_on_s(history: History, home: str, by_s: float) -> float:
    """The begin of a group's last takeover up to ``by_s``, from which its acting slave may have handed on
    waiting messages; ``by_s`` without a takeover.
    """
    began_s = (take.at_s for take in history.takeovers if take.group == home and take.at_s <= by_s)
    return max(began_s, default=by_s)


def unanswered(plan: Plan, history: History, home: str, since_s: float, at_s: float) -> str:
    """Why an acting slave may not have got the other group's answer to its message in this time."""
    (other,) = set(GROUPS) - {home}
    machines = {*history.acted(home, since_s - LOOK_S, at_s), other, *plan.mode.slaves(other)}
    return first(
        fault
        for fault in _around(plan, since_s - LOOK_S, at_s + ANSWER_S)
        if machines & set(fault.machines) and not set(CLIENTS) & set(fault.machines)
    )


def _around(plan: Plan, begin_s: float, end_s: float) -> Iterator[Fault]:
    """The faults in this time that can delay or lose answers."""
    for fault in plan.faults:
        on_its_way_s = SLOWEST_LINK_S if fault.kind in (Kind.SLOW_LINK, Kind.FLAKY_LINK) else 0.0
        over_s = fault.end_s + on_its_way_s
        if fault.kind in _LOSES_ANSWERS and fault.at_s <= end_s and begin_s <= over_s:
            yield fault


# ---- transactions


def transactions(plan: Plan, history: History) -> None:
    """A transaction that was rolled back is stored nowhere; a transaction whose outcome a group knows is not
    checked again.
    """
    stored = {record.body for record in history.stored.get(TRADES, ())}
    for sent in history.sent.values():
        if sent.kind != "trade":
            continue
        if sent.commits is False and sent.body in stored:
            text = f"{sent.body.decode()} was rolled back and is in topic {TRADES}"
            history.violate("each half message ends once", text, sent.body)
        for one, other in pairwise(_known(sent)):
            subject, asked = (sent.body, one, other), other in sent.asked
            cause = _asked_again(plan, history, sent, one, other) if asked else ""
            if not history.excuses.covers("end forgotten", subject, cause) and asked:
                text = f"{sent.body.decode()} is asked for at {other[0]:.3f} s, though its end was told"
                history.violate("each half message is asked for once", text, sent.body)
        history.excuses.judged("end forgotten", sent.body)
        if len(sent.asked) > MOST_ASKED:
            text = f"{sent.body.decode()} is asked for {len(sent.asked)} times"
            history.violate("everything is bounded", text, sent.body)


def _known(sent: Sent) -> list[tuple[float, str]]:
    """The times at which broker groups learned a transaction's outcome, from the producer or by a check."""
    if sent.told_s is None or sent.queue is None:
        return sent.asked
    # A broker that waits long for its replicas may check the transaction before it answers the sender.
    return sorted([(sent.told_s, sent.queue.broker_name), *sent.asked])


def _not_shown(plan: Plan, at_s: float) -> bool:
    """Whether a name server may have lacked a broker at this time, because the broker had not registered
    again.
    """
    return any(
        fault.kind is Kind.NAME_SERVER and fault.at_s <= at_s <= fault.end_s + REGISTERED_S
        for fault in plan.faults
    )


def _asked_again(
    plan: Plan, history: History, sent: Sent, one: tuple[float, str], other: tuple[float, str]
) -> str:
    """Why the broker that checks a second time may not know the producer's first answer."""
    told_s, group = one
    if _not_shown(plan, told_s):
        return Kind.NAME_SERVER.value
    machines = {PRODUCERS, group, *plan.mode.slaves(group)}
    if not (history.led(group, told_s) and history.led(group, told_s + ANSWER_S)):
        return "fenced"  # a master without its lease ends no transaction
    around = _around(plan, told_s - LOOK_S, told_s + ANSWER_S)
    if cause := first(fault for fault in around if machines & set(fault.machines)):
        return cause
    # If the send was not answered, the group that has the message is unknown.
    homes = GROUPS if sent.queue is None else (sent.queue.broker_name,)
    return next(filter(None, (_not_known_at(plan, history, home, one, other) for home in homes)), "")


def _not_known_at(
    plan: Plan, history: History, home: str, one: tuple[float, str], other: tuple[float, str]
) -> str:
    """Why a broker that does not know the producer's answer may check a transaction of this group again."""
    (told_s, group), (asked_s, asking) = one, other
    if group != home or asking != home:
        # An acting slave moved the half message to the other group.
        brought_s = _handed_on_s(history, home, told_s)
        if lost := unanswered(plan, history, home, brought_s, told_s):
            return lost
        # Brokers of the home group may not know of the hand-over: the master was not told that a slave had
        # handed the message on, or the slave handed it on twice, because another slave, or the slave itself
        # before it lost power, had done so. If the transaction ended at home, the master did not know of the
        # hand-over.
        until_s = asked_s if group != home else told_s
        if forgotten(plan, history, home, brought_s, told_s, until_s):
            return "takeover"
        if group != home:
            return ""
    lacked = any(
        take.group == group
        and told_s <= take.at_s <= asked_s
        and history.second_of(group, take.end, take.at_s) <= told_s + ANSWER_S
        for take in (*history.takeovers, *history.shorter)
    )
    return "takeover" if lacked else ""
