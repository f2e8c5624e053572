"""Excuses for messages that expire during a run."""

from __future__ import annotations

from collections.abc import Iterator

from tools.simulation.history import History, Sent
from tools.simulation.load import dies, fails_first
from tools.simulation.moves import gone_with_a_topic
from tools.simulation.plan import Plan
from tools.simulation.site import RESERVED_S
from tools.simulation.traffic import MOVED_GROUP, ORDERED, REMADE, subscriptions

# Producers send at least this long, so that messages from the time of the faults expire.
LEAST_LOAD_S = 20.0
# The time after a fault until everything is served again, and the time in which a group handles its backlog.
RECOVERY_S = 5.0
ENOUGH_S = 2.0
# A broker that begins to lead without a full table of locks grants none for this time (LK-11): ordered groups
# wait.
LOCKS_S = 30.0
# The delay after which a failed message is delivered again.
COMES_AGAIN_S = 5.0


def has_expired(plan: Plan, history: History, sent: Sent) -> bool:
    """Whether a message is old enough to have expired."""
    return _expires_s(plan, sent) <= history.now_s()


def _expires_s(plan: Plan, sent: Sent) -> float:
    return sent.at_s + sent.delay_s + RESERVED_S - plan.wrong_s


def _readers(plan: Plan, sent: Sent) -> list[str]:
    """The groups that have to handle a message before it expires."""
    groups = [group for group, topics in subscriptions(plan.mode.absent).items() if sent.topic in topics]
    if fails_first(sent.body) and MOVED_GROUP in groups:
        # this group is moved back again and again, and then the message fails again
        groups.remove(MOVED_GROUP)
    return groups


def is_read(plan: Plan, history: History, sent: Sent) -> bool:
    """Whether all groups got a message."""
    return dies(sent.body) or all(
        sent.body in history.by_group.get(group, ()) for group in _readers(plan, sent)
    )


def may_be_unread(plan: Plan, history: History, sent: Sent) -> str:
    """Why a message may have expired before all groups got it: they had no time left, or the queue lost its
    end.
    """
    if _may_be_skipped(history, sent):
        return "log end"
    if sent.topic == REMADE and sent.queue is not None:
        queue = sent.queue
        for group in _readers(plan, sent):
            cause = gone_with_a_topic(plan, history, group, queue.broker_name, queue.queue_id, sent.offset)
            if cause:
                return cause
    begin_s = sent.at_s + sent.delay_s + (COMES_AGAIN_S if fails_first(sent.body) else 0.0)
    recovery_s = RECOVERY_S + (LOCKS_S if sent.topic == ORDERED else 0.0)
    times = _quiet(plan, begin_s, _expires_s(plan, sent), recovery_s)
    return "" if any(end_s - at_s >= ENOUGH_S for at_s, end_s in times) else "no time"


def _may_be_skipped(history: History, sent: Sent) -> bool:
    """Whether a message was stored after its group's log lost its end: groups continue after the offsets that
    they had read.

    A delayed message was stored again when it was due, in any group (ES-03).
    """
    if sent.delay_s or sent.commits is not None:
        return bool(history.shorter)
    return any(
        sent.queue is not None
        and cut.group == sent.queue.broker_name
        and cut.end <= sent.place
        and cut.at_s <= (sent.acked_s or sent.at_s)
        for cut in history.shorter
    )


def _quiet(plan: Plan, begin_s: float, end_s: float, recovery_s: float) -> Iterator[tuple[float, float]]:
    """The times between ``begin_s`` and ``end_s`` in which no fault has an effect."""
    at_s = begin_s
    for fault in plan.faults:
        if fault.at_s > at_s:
            yield at_s, min(fault.at_s, end_s)
        at_s = max(at_s, fault.end_s + recovery_s)
        if at_s >= end_s:
            return
    yield at_s, end_s
