"""Judges a run at its end, from everything that was sent, stored and delivered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TypeAlias

from orbitmq.message.reserved import retry_topic
from tools.simulation.again import MOST_ASKED, transactions, twice
from tools.simulation.expiry import has_expired, is_read, may_be_unread
from tools.simulation.history import Delivered, History, Sent, Stored
from tools.simulation.kept import may_forget, unsynced_since_s
from tools.simulation.load import dies, fails_first
from tools.simulation.moves import deleted, gone_with_a_topic, moved, settings
from tools.simulation.once import handled_again
from tools.simulation.plan import FORGETS, GROUPS, Fault, Kind, Plan
from tools.simulation.pops import dealt_too_soon, done_again
from tools.simulation.traffic import FIFO_GROUP, LATER, ORDERED_GROUP, REMADE, TOPICS, subscriptions

EARLY_S = 0.010
# This long after its delivery, an unhandled message has been stored once more.
REDELIVERY_S = 12.0
# The longest delay of a fault's begin and end: a few events of the loop.
BEGINS_LATE_S = 0.5
# A place after the end of every log.
ANYWHERE = 1 << 62


def judge(plan: Plan, history: History) -> None:
    """Run all checks."""
    for check in (
        lost,
        elsewhere,
        missed,
        dead,
        order_in_queues,
        order_of_deliveries,
        early,
        recalled,
        twice,
        handled_again,
        transactions,
        done_again,
        dealt_too_soon,
        moved,
        settings,
        deleted,
    ):
        check(plan, history)


def _bodies(history: History, topic: str) -> dict[bytes, list[Stored]]:
    found: dict[bytes, list[Stored]] = defaultdict(list)
    for record in history.stored.get(topic, ()):
        found[record.body].append(record)
    return found


def expected(history: History) -> Iterator[Sent]:
    """The acknowledged messages that consumers have to get.

    Excluded are messages whose producer tried to recall them, since they may be delivered if the recall was
    not answered; and transactions with the highest number of checks, which the broker then sets aside
    (TX-07).
    """
    for sent in history.sent.values():
        if sent.topic == REMADE and sent.at_s < history.remade_s:
            continue
        if sent.acked_s is None or sent.commits is False or len(sent.asked) >= MOST_ASKED:
            continue
        if sent.recall_s is None:
            yield sent


# ---- no acknowledged message is lost


def lost(plan: Plan, history: History) -> None:
    """Every acknowledged message exists, as the mode promises."""
    stored = {topic: _bodies(history, topic) for topic in TOPICS}
    for sent in expected(history):
        gone = sent.body not in stored[sent.topic]
        if not may_be_gone(plan, history, sent, gone=gone) and gone:
            text = f"{sent.body.decode()} was acknowledged at {sent.acked_s:.3f} s and is nowhere"
            history.violate("no acknowledged message is lost", text, sent.body)


def may_be_gone(plan: Plan, history: History, sent: Sent, *, gone: bool = True) -> bool:
    """Whether this message may be missing at the end: its mode allows the loss, or the message has
    expired.
    """
    excuses = history.excuses
    expired = plan.mode.expires and has_expired(plan, history, sent)
    if plan.mode.expires:
        excuses.judged("expired unread", sent.body)
    if expired and is_read(plan, history, sent):
        return True
    if excuses.covers("lost", sent.body, may_be_lost(plan, history, sent), wrong=gone):
        return True
    return expired and excuses.covers(
        "expired unread", sent.body, may_be_unread(plan, history, sent), wrong=gone
    )


def may_be_lost(plan: Plan, history: History, sent: Sent) -> str:
    """Why this message may be lost: its mode allows the loss, and its group continued with a log that lacks
    it.

    With SYNC_FLUSH a master keeps acknowledged messages; with a quorum a slave has them and gives them back
    to the master. An acting master may have moved the message to another group (ES-03), whose mode then
    counts.
    """
    assert sent.acked_s is not None
    assert sent.queue is not None
    own = sent.queue.broker_name
    later = [sent.at_s + sent.delay_s] if sent.delay_s else [at_s for at_s, _ in sent.asked]
    for fault in plan.faults:
        if fault.kind not in FORGETS or fault.target not in GROUPS:
            continue
        if fault.target != own:
            # A message leaves its group only if a slave of the group acts when the message is due.
            away = [at_s for at_s in later if history.acted(own, at_s, inf) and fault.end_s >= at_s]
            if any(history.forgot(fault.target, at_s) for at_s in away) and may_forget(plan, history, fault):
                return fault.kind.value
        elif (
            _near(plan, fault, sent.acked_s)
            and history.forgot(own, sent.acked_s, sent.place)
            and may_forget(plan, history, fault, sent.acked_s)
        ):
            return fault.kind.value
    return ""


def _near(plan: Plan, fault: Fault, acked_s: float) -> bool:
    """Whether a master may not have had on its device a message that it acknowledged at this time."""
    since_s = -inf if fault.kind is Kind.LOSE_DISK else unsynced_since_s(plan, fault)
    return since_s <= acked_s <= fault.end_s + BEGINS_LATE_S


def elsewhere(_plan: Plan, history: History) -> None:
    """A message without a delay or a transaction is at the place that the producer's answer named."""
    for topic in TOPICS:
        for one in history.stored.get(topic, ()):
            sent = history.sent.get(one.body)
            if sent is None or sent.queue is None or sent.kind in ("delayed", "timer", "trade"):
                continue
            told = sent.queue.broker_name, sent.queue.queue_id, sent.offset, sent.place
            found = one.broker, one.queue_id, one.offset, one.place
            if told != found:
                text = f"{one.body.decode()} of {topic} is in {found}, its producer was told {told}"
                history.violate("messages are where they were said to be", text, one.body)


# ---- at least once


def missed(plan: Plan, history: History) -> None:
    """Every group gets every stored message."""
    for group, one in not_handled(plan, history):
        place = f"{one.broker}:{one.queue_id} of {one.topic} at {one.offset}"
        text = f"group {group} never handled {one.body.decode()}, which is in {place}"
        history.violate("at least once for every group", text, one.body)


def not_handled(plan: Plan, history: History) -> Iterator[tuple[str, Stored]]:
    """The stored messages that a group has not handled yet but will still handle."""
    excuses = history.excuses
    gone = _handled_and_gone(history)
    failed = _failed(history)
    for group, topics in subscriptions(plan.mode.absent).items():
        done = history.by_group.get(group, set()) | history.dead.get(group, set())
        skipped = {
            copy.body: cause
            for copy in history.retried.get(group, ())
            if (cause := _skipped(history, gone, group, copy))
        }
        for topic in topics:
            for one in history.stored.get(topic, ()):
                missing, subject = one.body not in done, (group, one.body)
                cause = skipped.get(one.body, "") or _skipped(history, gone, group, one)
                if (
                    not excuses.covers("skipped", subject, cause, wrong=missing)
                    and not excuses.covers(
                        "copy forgotten",
                        subject,
                        _copy_may_be_lost(plan, history, failed.get(subject, ())),
                        wrong=missing,
                    )
                    and not (
                        topic == REMADE
                        and excuses.covers(
                            "topic made again",
                            subject,
                            gone_with_a_topic(plan, history, group, one.broker, one.queue_id, one.offset),
                            wrong=missing,
                        )
                    )
                    and missing
                ):
                    yield group, one


def _failed(history: History) -> dict[tuple[str, bytes], list[float]]:
    """By group and message, the times at which a member failed on the message, after each of which a copy is
    due.
    """
    found: dict[tuple[str, bytes], list[float]] = defaultdict(list)
    for one in history.delivered:
        comes_again = one.group in history.popping or fails_first(one.body) or dies(one.body)
        if one.ended_s is None and comes_again:
            found[one.group, one.body].append(one.at_s)
    for each in history.dealt:
        for body in each.bodies.values():
            found[each.group, body].append(each.at_s)
    return found


def _copy_may_be_lost(plan: Plan, history: History, failed: Sequence[float]) -> str:
    """Why the copy of a message that failed at these times may be lost.

    The copy is a normal message, which may be in any broker group: an acting master may move it to another
    one (ES-03).
    """
    for fault in plan.faults:
        if fault.kind not in FORGETS or fault.target not in GROUPS:
            continue
        lost = any(history.forgot(fault.target, at_s, until_s=at_s + REDELIVERY_S) for at_s in failed)
        if lost and may_forget(plan, history, fault):
            return fault.kind.value
    return ""


Gone: TypeAlias = Mapping[tuple[str, str, str, int], int]


def _skipped(history: History, gone: Gone, group: str, one: Stored) -> str:
    """Why a group may miss this message: it has the offset of a lost message that the group had read.

    Consumers read messages that no replica has yet, and continue after them (as in RocketMQ). If the broker
    loses such a message, in its queue or as a copy in the group's retry queue, the next message gets the same
    offset.
    """
    if one.offset > gone.get((group, one.broker, one.topic, one.queue_id), -1):
        return ""
    behind = any(cut.group == one.broker and cut.end <= one.place for cut in history.shorter)
    return "log end" if behind else ""


def _handled_and_gone(history: History) -> Gone:
    """By group and queue, the highest offset that the group handled and that now holds another message, or
    none.
    """
    stored = {
        (one.broker, one.topic, one.queue_id, one.offset): one.body
        for records in (*history.stored.values(), *history.retried.values())
        for one in records
    }
    gone: dict[tuple[str, str, str, int], int] = {}
    for one in history.delivered:
        if one.again and one.group not in history.retried:
            continue
        if one.queue.topic == REMADE and one.at_s < history.remade_s:
            continue
        topic = retry_topic(one.group) if one.again else one.queue.topic
        queue = (one.queue.broker_name, topic, one.queue.queue_id)
        if stored.get((*queue, one.offset)) != one.body:
            place = (one.group, *queue)
            gone[place] = max(gone.get(place, -1), one.offset)
    return gone


def dead(_plan: Plan, history: History) -> None:
    """Only messages that fail every time become dead letters."""
    for group, bodies in history.dead.items():
        for body in sorted(bodies):
            if not dies(body):
                text = f"{body.decode()} is a dead letter of group {group}, which would handle it"
                history.violate("dead letters are those that fail", text, body)


# ---- order


def order_in_queues(_plan: Plan, history: History) -> None:
    """For each key: a message acknowledged before the next one was sent precedes it in its queue."""
    places = {body: min(r.offset for r in records) for body, records in _bodies(history, "ordered").items()}
    for key, sends in _by_key(history).items():
        last: Sent | None = None
        for sent in sends:
            if sent.body not in places:
                continue
            if last is not None and places[sent.body] < places[last.body]:
                text = f"key {key}: {sent.body.decode()} stands before {last.body.decode()}, sent earlier"
                history.violate("order in each queue", text, sent.body)
            last = sent


def _by_key(history: History) -> dict[str, list[Sent]]:
    found: dict[str, list[Sent]] = defaultdict(list)
    for sent in history.sent.values():
        if sent.kind == "ordered" and sent.acked_s is not None:
            found[sent.key].append(sent)
    return found


def order_of_deliveries(_plan: Plan, history: History) -> None:
    """The first deliveries of a queue's messages to an ordered group follow the order of the queue."""
    places = {body: min(r.offset for r in records) for body, records in _bodies(history, "ordered").items()}
    highest: dict[tuple[str, str, int], tuple[int, bytes]] = {}
    seen: set[tuple[str, bytes]] = set()
    for one in history.delivered:
        known = one.group, one.body
        if one.group not in (ORDERED_GROUP, FIFO_GROUP) or known in seen or one.body not in places:
            continue
        seen.add(known)
        place = (one.group, one.queue.broker_name, one.queue.queue_id)
        offset, before = highest.get(place, (-1, b""))
        if places[one.body] < offset:
            text = f"{one.body.decode()} comes to {one.group} after {before.decode()}, which is behind it"
            history.violate("order in each queue", text, one.body)
        highest[place] = max((places[one.body], one.body), (offset, before))


# ---- delayed messages and timers


def early(plan: Plan, history: History) -> None:
    """No delayed message is delivered before its time, apart from the clock errors in the plan."""
    first: dict[bytes, Delivered] = {}
    for one in history.delivered:
        first.setdefault(one.body, one)
    for body, one in first.items():
        sent = history.sent.get(body)
        if sent is None or not sent.delay_s:
            continue
        due_s = sent.at_s + sent.delay_s
        if one.at_s < due_s - plan.wrong_s - EARLY_S:
            text = f"{body.decode()} comes {due_s - one.at_s:.3f} s too early"
            history.violate("no delayed message early", text, body)


def recalled(plan: Plan, history: History) -> None:
    """A message recalled in time is not delivered, unless the mode allows the loss of the recall."""
    stored = _bodies(history, LATER)
    for sent in history.sent.values():
        if sent.recalled_s is None:
            continue
        comes, cause = sent.body in stored, _recall_may_be_lost(plan, history, sent, sent.recalled_s)
        if not history.excuses.covers("recall forgotten", sent.body, cause, wrong=comes) and comes:
            text = f"{sent.body.decode()} was taken back at {sent.recalled_s:.3f} s and is in topic {LATER}"
            history.violate("what is recalled does not come", text, sent.body)


def _recall_may_be_lost(plan: Plan, history: History, sent: Sent, recalled_s: float) -> str:
    """Why the broker that took over may not know of this message's recall.

    A recall is a message itself: it can be lost like others, and an asynchronous slave may lack it when its
    master is lost.
    """
    assert sent.queue is not None
    if recalled_s > sent.at_s + sent.delay_s - plan.wrong_s:
        return "due"  # by the broker's clock it was due before the recall
    if cause := may_be_lost(plan, history, replace(sent, acked_s=recalled_s, place=ANYWHERE)):
        return cause
    group = sent.queue.broker_name
    all_have_it = plan.mode.keeps_two and plan.mode.replicas == 2
    acts = not all_have_it and any(
        take.group == group
        and recalled_s <= take.at_s
        and history.second_of(group, take.end, take.at_s) <= recalled_s
        for take in history.takeovers
    )
    return "takeover" if acts else ""
