"""Judges that members of push groups handle each message once, unless a fault hit its queue or a member.

A failed message is redelivered as a different message and does not count.
"""

from __future__ import annotations

from collections.abc import Collection

from tools.simulation.excuses import first
from tools.simulation.history import Delivered, History
from tools.simulation.load import CONSUMERS
from tools.simulation.plan import NAME_SERVERS, Fault, Kind, Plan
from tools.simulation.traffic import ORDERED_GROUP, PUSH_GROUP

# A member commits every five seconds, and when it gives a queue up. While two members have the queue, the
# last commit wins, for another five seconds.
UNCOMMITTED_S = 10.5
# A fault at most this long before a message was handled may have kept its commit from the broker.
BEFORE_S = 1.0
# Until this time members join, and queues move between them.
JOINED_S = 2.0
# Within this time all members have noticed that a broker is gone or back.
ROUTES_S = 10.0
# Kinds of faults by which a broker may end, or another broker of its group may take over.
_ENDS = frozenset(Kind) - {Kind.RESET, Kind.SLOW_LINK, Kind.FLAKY_LINK, Kind.SLOW_DISK, Kind.CLOCK}


def handled_again(plan: Plan, history: History) -> None:
    """A message is handled again only if its first handling was not committed, and its queue changed member
    or broker.
    """
    last: dict[tuple[str, bytes], Delivered] = {}
    for one in history.delivered:
        if one.group not in (PUSH_GROUP, ORDERED_GROUP) or one.again:
            continue
        subject = one.group, one.body
        before, last[subject] = last.get(subject), one
        if before is None:
            history.excuses.judged("handled again", subject)
        elif not history.excuses.covers("handled again", subject, _why_again(plan, before, one)):
            text = f"{one.member} handles {one.body.decode()} at {one.at_s:.3f} s, "
            text += f"{before.member} did at {before.at_s:.3f} s"
            history.violate("a living group handles each message once", text, one.body)


def _why_again(plan: Plan, before: Delivered, one: Delivered) -> str:
    home, moves = one.queue.broker_name, one.member != before.member
    since_s = before.at_s - BEFORE_S
    if cause := _met(plan, CONSUMERS, since_s, one.at_s):
        return cause
    owners = home, *plan.mode.slaves(home)
    if cause := _met(plan, owners, since_s, one.at_s, frozenset(Kind) if moves else _ENDS):
        return cause
    handled_s = before.at_s if before.ended_s is None else before.ended_s
    if one.at_s > handled_s + UNCOMMITTED_S:
        return ""
    if moves and before.at_s < JOINED_S:
        return "members join"
    # Queues move between members, and back, when members notice that a broker of another group is gone or
    # back.
    servers = {*plan.mode.brokers, *NAME_SERVERS}.difference(owners)
    return "queue moves" if _met(plan, servers, since_s - ROUTES_S, one.at_s) else ""


def _met(
    plan: Plan,
    machines: Collection[str],
    since_s: float,
    until_s: float,
    kinds: Collection[Kind] = frozenset(Kind),
) -> str:
    def meets(fault: Fault) -> bool:
        return bool(set(machines) & set(fault.machines)) and fault.at_s <= until_s and since_s <= fault.end_s

    return first(f for f in plan.faults if f.kind is not Kind.CLOCK and f.kind in kinds and meets(f))
