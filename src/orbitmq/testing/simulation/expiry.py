"""What it excuses that messages expire while a run lasts."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.testing.simulation.history import History, Sent
from orbitmq.testing.simulation.load import dies, fails_first
from orbitmq.testing.simulation.moves import gone_with_a_topic
from orbitmq.testing.simulation.plan import FORGETS, GROUPS, Plan
from orbitmq.testing.simulation.site import RESERVED_S
from orbitmq.testing.simulation.traffic import MOVED_GROUP, ORDERED, REMADE, subscriptions

# Producers send for so long at least, so that what was sent during the faults expires.
LEAST_LOAD_S = 20.0
# So long after a fault all are served again, and in so long a group handles what it has missed.
RECOVERY_S = 5.0
ENOUGH_S = 2.0
# A broker that begins to lead without all locks grants none for so long (LK-11): ordered groups wait.
LOCKS_S = 30.0
# What failed comes again when its delay level is over.
COMES_AGAIN_S = 5.0


def may_have_expired(plan: Plan, history: History, sent: Sent) -> bool:
    """Whether a message may be gone: every group had it, or the faults left no time to read it."""
    stored_s = sent.at_s + sent.delay_s
    expired_s = stored_s + RESERVED_S - plan.wrong_s
    if expired_s > history.now_s():
        return False
    groups = [group for group, topics in subscriptions(plan.mode.absent).items() if sent.topic in topics]
    if fails_first(sent.body) and MOVED_GROUP in groups:
        groups.remove(MOVED_GROUP)  # each time it is moved back, the message fails anew
    if dies(sent.body) or all(sent.body in history.by_group.get(group, ()) for group in groups):
        return True
    if any(fault.kind in FORGETS and fault.target in GROUPS for fault in plan.faults):
        # A group goes on behind what it read, also where something else was stored later (decision 26).
        return True
    if sent.topic == REMADE and gone_with_a_topic(plan, history):
        return True
    begin_s = stored_s + COMES_AGAIN_S if fails_first(sent.body) else stored_s
    recovery_s = RECOVERY_S + (LOCKS_S if sent.topic == ORDERED else 0.0)
    return all(end_s - at_s < ENOUGH_S for at_s, end_s in _quiet(plan, begin_s, expired_s, recovery_s))


def _quiet(plan: Plan, begin_s: float, end_s: float, recovery_s: float) -> Iterator[tuple[float, float]]:
    """The times between ``begin_s`` and ``end_s`` in which no fault keeps anybody from anything."""
    at_s = begin_s
    for fault in plan.faults:
        if fault.at_s > at_s:
            yield at_s, min(fault.at_s, end_s)
        at_s = max(at_s, fault.end_s + recovery_s)
        if at_s >= end_s:
            return
    yield at_s, end_s
