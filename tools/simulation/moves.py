"""Judges the results of an operator's work: a reset is done once, settings are kept, deleted messages stay
away.
"""

from __future__ import annotations

from math import inf

from tools.simulation.excuses import NO_FAULT, first
from tools.simulation.history import Delivered, History, Moved, Remade, Sent, Stored
from tools.simulation.load import CONSUMERS
from tools.simulation.plan import NAME_SERVERS, SLOWEST_LINK_S, Kind, Plan
from tools.simulation.pops import may_be_unknown
from tools.simulation.traffic import MOVED_GROUP, PLAIN, REMADE

# Within this time a member of the group requests its offset, and gets the reset's.
TAKEN_S = 3.0
# The faults that can delay a commit.
_HOLDS = frozenset({Kind.SLOW_LINK, Kind.FLAKY_LINK, Kind.CUT, Kind.ONE_WAY, Kind.ISOLATE})
# A commit counts for the next owner of a queue if it is at least this old.
COUNTS_S = 1.0


def moved(plan: Plan, history: History) -> None:
    """A group that was moved back gets all messages from the new offset again, once."""
    got: dict[tuple[str, int, int], list[Delivered]] = {}
    # A message whose pop was not answered is delivered again only from the retry topic.
    again: dict[bytes, float] = {}
    for one in history.delivered:
        if one.group == MOVED_GROUP and one.queue.topic == PLAIN and one.again:
            again[one.body] = one.at_s
        elif one.group == MOVED_GROUP and one.queue.topic == PLAIN:
            got.setdefault((one.queue.broker_name, one.queue.queue_id, one.offset), []).append(one)
    # A popping member may leave the rest of its messages to be delivered again.
    dealt: dict[tuple[str, int, int], float] = {}
    for each in history.dealt:
        if each.group == MOVED_GROUP and each.queue.topic == PLAIN:
            for offset in each.bodies.keys() - each.again:
                dealt[each.queue.broker_name, each.queue.queue_id, offset] = each.at_s
    for move in history.moves:
        if move.done_s is None:
            continue
        behind = [record for record in history.stored[PLAIN] if _is_behind(record, move)]
        for record in behind:
            place = (record.broker, record.queue_id, record.offset)
            came_s = [one.at_s for one in got.get(place, ())]
            # A copy in the retry topic is from a delivery after the move, if all earlier deliveries were done
            # before it.
            if all(_was_done(one, move.at_s) for one in got.get(place, ()) if one.at_s < move.at_s):
                came_s.append(again.get(record.body, -inf))
            wrong = max([dealt.get(place, -inf), *came_s]) < move.at_s
            until_s = move.done_s + TAKEN_S
            unknown = may_be_unknown(plan, history, record.broker, move.done_s, until_s, asked=True)
            subject = move.at_s, move.queue, record.offset
            if history.excuses.covers("move forgotten", subject, unknown, wrong=wrong):
                continue
            late = _late_commit(plan, move.at_s, move.done_s)
            if history.excuses.covers("late commit", subject, late, wrong=wrong):
                continue
            if wrong:
                text = f"{_named(move)}, and {record.body.decode()} at {record.offset} never comes again"
                history.violate("a reset is done once", text, record.body)
                break
        if behind:
            record = min(behind, key=lambda record: record.offset)
            place = (record.broker, record.queue_id, record.offset)
            _told_twice(plan, history, move, record, got.get(place, []))


def _was_done(one: Delivered, at_s: float) -> bool:
    return one.done_s is not None and one.done_s < at_s


def _late_commit(plan: Plan, at_s: float, done_s: float) -> str:
    """Why a member's commit from before a move may arrive after it, although another member has the queue.

    A slow link delays the commit, and a commit does not name its member.
    """
    return first(
        fault
        for fault in plan.faults
        if fault.kind in _HOLDS
        and set(fault.machines) & set(CONSUMERS)
        and fault.at_s <= done_s
        and at_s - SLOWEST_LINK_S <= fault.end_s
    )


def _told_twice(plan: Plan, history: History, move: Moved, record: Stored, got: list[Delivered]) -> None:
    """Check that the group did not go back once more after it had committed offsets beyond the place."""
    assert move.done_s is not None
    later = [other.at_s for other in history.moves if other.queue == move.queue and other.at_s > move.at_s]
    until_s = min(later, default=history.now_s())
    place = (record.broker, f"{PLAIN}@{MOVED_GROUP}", record.queue_id)
    had = [one for one in got if move.done_s <= one.at_s < until_s and _dealt_s(history, one) >= move.at_s]
    subject = move.at_s, move.queue
    history.excuses.judged("commit forgotten", subject)
    for one in had[1:]:
        known = [
            at_s
            for at_s, offset in history.committed.get(place, ())
            if had[0].at_s <= at_s < one.at_s - COUNTS_S and offset > record.offset
        ]
        unknown = known and may_be_unknown(
            plan, history, record.broker, known[0], one.at_s, clients_s=had[0].at_s, asked=True
        )
        if known and not history.excuses.covers("commit forgotten", subject, unknown or ""):
            text = f"{_named(move)}, {record.body.decode()} comes at {had[0].at_s:.3f} s and "
            text += f"{one.at_s:.3f} s, though what is behind it was committed at {known[0]:.3f} s"
            history.violate("a reset is done once", text, record.body)
            return


def _dealt_s(history: History, one: Delivered) -> float:
    """The time at which a member got a message that it handled; it may have held a popped message for a
    while.
    """
    return max(
        (
            each.at_s
            for each in history.dealt
            if each.member == one.member and each.queue == one.queue and each.at_s <= one.at_s
            if one.offset in each.bodies.keys() - each.again
        ),
        default=one.at_s,
    )


def _is_behind(record: Stored, move: Moved) -> bool:
    queue = move.queue
    return (record.broker, record.queue_id) == (
        queue.broker_name,
        queue.queue_id,
    ) and record.offset >= move.to


def _named(move: Moved) -> str:
    return f"queue {move.queue.broker_name}:{move.queue.queue_id} was moved to {move.to} at {move.at_s:.3f} s"


def settings(plan: Plan, history: History) -> None:
    """Settings that brokers accepted from an operator are kept at the end."""
    for group, value in history.settings.items():
        for change in history.changes:
            if change.done_s is None or group not in change.brokers:
                continue
            wrong, subject = change.value > value, (group, change.value)
            unknown = may_be_unknown(plan, history, group, change.done_s, history.now_s(), synced=True)
            if not history.excuses.covers("setting forgotten", subject, unknown, wrong=wrong) and wrong:
                text = f"{group} took {change.value} at {change.done_s:.3f} s, and has {value}"
                history.violate("settings are kept", text, once=group)
    for one in history.withheld:
        unknown = may_be_unknown(plan, history, one.group, one.given_s, one.at_s, synced=True)
        if not history.excuses.covers("setting forgotten", (one.group, one.topic), unknown):
            text = f"topic {one.topic} got all its permissions back at {one.given_s:.3f} s, {one.group} has "
            history.violate("settings are kept", f"{text}{one.perm}", once=f"{one.group} {one.topic}")


def deleted(plan: Plan, history: History) -> None:
    """Messages of a deleted topic do not come back when the topic is created again."""
    for remade in history.remade:
        for record in history.stored.get(REMADE, ()):
            sent, subject = history.sent.get(record.body), (record.broker, record.place)
            if sent is None:
                continue  # a message that was never sent is a broken promise of its own
            wrong = sent.at_s < remade.at_s
            late = wrong and _came_late(history, sent, record, remade)
            if history.excuses.covers("late send", subject, NO_FAULT if late else ""):
                continue
            unknown = may_be_unknown(
                plan, history, record.broker, remade.deleted_s, history.now_s(), synced=True
            )
            if not history.excuses.covers("deletion forgotten", subject, unknown, wrong=wrong) and wrong:
                text = f"{record.body.decode()} is in topic {REMADE}, deleted at {remade.deleted_s:.3f} s"
                history.violate("what is deleted does not come back", text, record.body)


def _came_late(history: History, sent: Sent, record: Stored, remade: Remade) -> bool:
    """Whether a message was in flight while its topic was deleted, so that it belongs to the new topic.

    The network may hold a request for longer than its producer waits, and the request cannot be withdrawn
    (seed 5866). A message that was answered, or is stored before the log's end at the deletion, was in the
    old topic.
    """
    return sent.queue is None and history.seen_s(record.broker, record.place) > remade.at_s


def gone_with_a_topic(
    plan: Plan, history: History, group: str, broker: str, queue_id: int, offset: int
) -> str:
    """Why a consumer group may skip a message of a topic that was created again (CR-25).

    The group had read the old topic's queue beyond this offset, and the deletion may not have reached a
    consumer, a broker or a name server.
    """
    if offset > history.read_before.get((group, broker, queue_id), -1):
        return ""
    machines = {broker, *plan.mode.slaves(broker), *CONSUMERS, *NAME_SERVERS}
    return first(
        fault
        for fault in plan.faults
        for remade in history.remade
        if fault.kind is not Kind.CLOCK
        and machines & set(fault.machines)
        and fault.at_s <= remade.made_s
        and remade.at_s <= fault.end_s
    )
