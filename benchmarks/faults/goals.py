"""The goals of each fault. Faults with Apache's clients or brokers have their own records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.figures import Figures


@dataclass(frozen=True)
class Goal:
    """A figure and its upper limit."""

    what: str
    figure: Callable[[Figures], float | None]
    most: float


def _still(found: Figures) -> float:
    return max(found.backlog_s, found.ordered_s, found.pop_s)


def _used(found: Figures) -> float | None:
    return None if found.used_s is None or found.back_s is None else max(0.0, found.used_s - found.back_s)


def _again(found: Figures) -> float:
    return found.delayed + found.timer + found.transactions


def _left(found: Figures) -> float:
    return 0 if found.out_s is None and found.acts_s is None else 1


_LATE_CHECK_S = 8.0
_LOST = Goal("acknowledged and not delivered", lambda f: len(f.lost), 0)
_FROZEN = (
    Goal("out of the route, s", lambda f: f.out_s, 5.0),
    Goal("default sends that fail", lambda f: f.failed, 0),
    Goal("longest gap of default sends, s", lambda f: f.gap_s, 1.5),
    Goal("again on thaw: pending", lambda f: f.pending, 0),
    Goal("again: delayed, timer, transactions", _again, 0),
)
_NONE_FAILS = Goal("default sends that fail", lambda f: f.failed, 0)
_GAP = Goal("longest gap of default sends, s", lambda f: f.gap_s, 1.5)
_NOTHING_AGAIN = Goal("again: delayed, timer, transactions", _again, 0)
# A fault of a slave, of a name server, or of their links must not affect clients.
_UNCHANGED = (
    Goal("master out of the route, or slave acts", _left, 0),
    _NONE_FAILS,
    _GAP,
    Goal("producer without retry fails, s", lambda f: f.once_s, 0),
    _NOTHING_AGAIN,
)
# The master leads and stays in the route, so only a retry on another broker avoids the fault.
_CLIENTS = (Goal("master out of the route, or slave acts", _left, 0), _NONE_FAILS, _GAP, _NOTHING_AGAIN)
_CLIENTS_CUT = (
    *_CLIENTS,
    Goal("used by default producers after the mending, s", lambda f: f.used_s, 1.0),
)
_ACTING_FROZEN = (
    _LOST,
    Goal("out of order", lambda f: len(f.disorder), 0),
    Goal("again on thaw: pending", lambda f: f.pending, 0),
)
GOALS: dict[str, tuple[Goal, ...]] = {
    "kill-master": (
        Goal("route, s", lambda f: f.out_s, 0.2),
        Goal("backlog, ordered, POP stand still, s", _still, 1.5),
        Goal("producer without retry fails, s", lambda f: f.once_s, 1.0),
        Goal("delayed and timer late p50, s", lambda f: f.late_p50, 0.2),
        Goal("delayed and timer late max, s", lambda f: f.late_max, 1.5),
        Goal("first check of a transaction, s", lambda f: f.check_s, _LATE_CHECK_S),
        Goal("pending delayed and timer again", lambda f: f.pending, 0),
        Goal("delivered delayed again", lambda f: f.delayed, 0),
        Goal("timer again", lambda f: f.timer, 0),
        Goal("transactions again", lambda f: f.transactions, 0),
        Goal("POP again, %", lambda f: 100 * f.popped / max(1, f.popped_total), 1.0),
        Goal("restarted group: first message, s", lambda f: f.reader_s, 1.5),
        Goal("restarted group: committed ones again", lambda f: f.committed_again, 0),
        Goal("master back in the route, s", lambda f: f.back_s, 3.0),
        Goal("used by default producers after that, s", _used, 1.0),
    ),
    "new-topic": (Goal("first message of the new topic, s", lambda f: f.new_topic_s, 5.0),),
    "freeze-master-5": _FROZEN[1:],
    "freeze-master-15": _FROZEN,
    "freeze-master-60": _FROZEN,
    **{f"freeze-slave-{s}": _UNCHANGED for s in (5, 15, 60)},
    **{f"freeze-acting-{s}": _ACTING_FROZEN for s in (5, 15, 60)},
    **{f"freeze-nameserver-{s}": _UNCHANGED for s in (5, 15, 60)},
    "stall-names": _UNCHANGED,
    "slow-names": _UNCHANGED,
    "cut-ha-data": _UNCHANGED,
    "cut-clients-requests": _CLIENTS_CUT,
    "cut-clients-answers": _CLIENTS_CUT,
    "stall-clients": _CLIENTS,
    "slow-clients": _CLIENTS,
    **dict.fromkeys(
        ("kill-slave", "stop-slave", "cut-slave", "cut-ha", "cut-ha-acks", "stall-ha", "slow-ha"), _UNCHANGED
    ),
    **dict.fromkeys(("full-slave", "slow-slave", "new-slave"), _UNCHANGED),
    **dict.fromkeys(("kill-one-nameserver", "freeze-one-nameserver", "cut-one-nameserver"), _UNCHANGED),
    # Without a name server there are no new routes, and clients continue with their known ones.
    "kill-nameserver": _UNCHANGED[1:],
    "stop-nameserver": _UNCHANGED[1:],
    # The master accepts messages all the time.
    "cut-names": _UNCHANGED[1:],
    "cut-names-answers": _UNCHANGED[1:],
    "cut-names-questions": _UNCHANGED[1:],
    "cut-clients": _CLIENTS_CUT,
    "cut-master": _FROZEN,
    "slow-master": _CLIENTS,
    "full-master": (_GAP, Goal("producer without retry fails, s", lambda f: f.once_s, 15.0)),
    "kill-master-one-nameserver": (Goal("backlog, ordered, POP stand still, s", _still, 5.0), _GAP),
    "new-master": (Goal("backlog, ordered, POP stand still, s", _still, 1.5), _GAP),
    # The master's lease to deliver ends within 5 s; a broker that does not know the queue locks grants new
    # ones after 30 s.
    "kill-acting": (Goal("backlog, ordered, POP stand still, s", _still, 35.0), _GAP),
    "stop-acting": (Goal("backlog, ordered, POP stand still, s", _still, 35.0), _GAP),
    "stop-master": (
        Goal("clean stop, s", lambda f: f.stopped_s, 1.0),
        Goal("pending delayed and timer again", lambda f: f.pending, 0),
        Goal("commits again", lambda f: f.transactions, 0),
    ),
    "both-slave-first": (
        _LOST,
        Goal("committed ones again", lambda f: f.committed_again, 0),
        Goal("out of order", lambda f: len(f.disorder), 0),
    ),
    "both-master-first": (
        _LOST,
        Goal("committed ones again", lambda f: f.committed_again, 0),
        Goal("out of order", lambda f: len(f.disorder), 0),
    ),
    "ahead": (
        Goal("pulls of a queue in 15 s", lambda f: f.ahead_pulls, 1),
        # About ten lines report that the slave acts and that it follows again.
        Goal("lines of the slave", lambda f: f.slave_lines, 20),
    ),
    "no-other-master": (
        _LOST,
        Goal("lines of the slave", lambda f: f.slave_lines, 20),
    ),
    "quorum-kill-slave": (Goal("slowest stored send, s", lambda f: f.slowest_s, 0.2),),
    "quorum-freeze-slave": (Goal("slowest stored send, s", lambda f: f.slowest_s, 1.5),),
    "quorum-strict": (Goal("taken again after the slave's start, s", lambda f: f.used_s, 1.0),),
}


# The goals of every fault. Other repeated deliveries have their own goals.
OF_ALL: tuple[Goal, ...] = (
    _LOST,
    Goal("out of order", lambda f: len(f.disorder), 0),
    Goal("before its time", lambda f: len(f.early), 0),
    _NONE_FAILS,
    _NOTHING_AGAIN,
    Goal("again to consumers that lived through it", lambda f: f.live_again, 0),
)


def goals_of(fault: str) -> tuple[Goal, ...]:
    """The goals of a fault: its own, then those of all faults."""
    own = GOALS.get(fault, ())
    named = {goal.what for goal in own}
    return (*own, *(goal for goal in OF_ALL if goal.what not in named))


@dataclass(frozen=True)
class Judged:
    """One goal after a run; ``met`` is "yes" or "NO"."""

    what: str
    measured: str
    goal: str
    met: str


def against_goals(fault: str, found: Figures) -> list[Judged]:
    """The results of a fault's goals."""
    rows = []
    for goal in goals_of(fault):
        value = goal.figure(found)
        met = value is not None and value <= goal.most
        shown = "-" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")
        rows.append(Judged(goal.what, shown, f"{goal.most:g}", "yes" if met else "NO"))
    return rows
