"""What a fault may cost, and what it costs with Apache RocketMQ 5.5.0 and its own clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.figures import Figures


@dataclass(frozen=True)
class Goal:
    """A figure, what it should be at most, and what Apache 5.5.0 needs with its own clients."""

    what: str
    figure: Callable[[Figures], float | None]
    most: float
    apache: str


def _still(found: Figures) -> float:
    return max(found.backlog_s, found.ordered_s, found.pop_s)


def _used(found: Figures) -> float | None:
    return None if found.used_s is None or found.back_s is None else max(0.0, found.used_s - found.back_s)


def _again(found: Figures) -> float:
    return found.delayed + found.timer + found.transactions


def _left(found: Figures) -> float:
    return 0 if found.out_s is None and found.acts_s is None else 1


_LATE_CHECK_S = 8.0
_STILL = "21, 18-22, 25-26 s"
_LOST = Goal("acknowledged and not delivered", lambda f: len(f.lost), 0, "0")
_FROZEN = (
    Goal("out of the route, s", lambda f: f.out_s, 5.0, "11.6 s"),
    Goal("default sends that fail", lambda f: f.failed, 0, "6 of 495"),
    Goal("longest gap of default sends, s", lambda f: f.gap_s, 1.5, "3.4 s"),
    Goal("again on thaw: pending", lambda f: f.pending, 0, "17 of 17"),
    Goal("again: delayed, timer, transactions", _again, 0, "101, 12, -"),
)
_NONE_FAILS = Goal("default sends that fail", lambda f: f.failed, 0, "-")
_GAP = Goal("longest gap of default sends, s", lambda f: f.gap_s, 1.5, "-")
_NOTHING_AGAIN = Goal("again: delayed, timer, transactions", _again, 0, "-")
# What happens to a slave, to a name server or on the way to one of them is no matter of clients.
_UNCHANGED = (
    Goal("master out of the route, or slave acts", _left, 0, "-"),
    _NONE_FAILS,
    _GAP,
    Goal("producer without retry fails, s", lambda f: f.once_s, 0, "-"),
    _NOTHING_AGAIN,
)
# The master leads and is in the route, so that only who tries again gets round it.
_CLIENTS = (Goal("master out of the route, or slave acts", _left, 0, "-"), _NONE_FAILS, _GAP, _NOTHING_AGAIN)
_CLIENTS_CUT = (
    *_CLIENTS,
    Goal("used by default producers after the mending, s", lambda f: f.used_s, 1.0, "-"),
)
_ACTING_FROZEN = (
    _LOST,
    Goal("out of order", lambda f: len(f.disorder), 0, "-"),
    Goal("again on thaw: pending", lambda f: f.pending, 0, "-"),
)
GOALS: dict[str, tuple[Goal, ...]] = {
    "kill-master": (
        Goal("route, s", lambda f: f.out_s, 0.2, "0.08-0.2 s"),
        Goal("backlog, ordered, POP stand still, s", _still, 1.5, _STILL),
        Goal("producer without retry fails, s", lambda f: f.once_s, 1.0, "18-19 s"),
        Goal("delayed and timer late p50, s", lambda f: f.late_p50, 0.2, "0.1 and 0.7 s"),
        Goal("delayed and timer late max, s", lambda f: f.late_max, 1.5, "2.8 s"),
        Goal("first check of a transaction, s", lambda f: f.check_s, _LATE_CHECK_S, "61-66 s"),
        Goal("pending delayed and timer again", lambda f: f.pending, 0, "all"),
        Goal("delivered delayed again", lambda f: f.delayed, 0, "204-510"),
        Goal("timer again", lambda f: f.timer, 0, "1 of 48, stock all"),
        Goal("transactions again", lambda f: f.transactions, 0, "22 of 46"),
        Goal("POP again, %", lambda f: 100 * f.popped / max(1, f.popped_total), 1.0, "390 of 632"),
        Goal("restarted group: first message, s", lambda f: f.reader_s, 1.5, "17-23 s"),
        Goal("restarted group: committed ones again", lambda f: f.committed_again, 0, "297 of 665 again"),
        Goal("master back in the route, s", lambda f: f.back_s, 3.0, "5-15 s, stock never"),
        Goal("used by default producers after that, s", _used, 1.0, "24-27 s"),
    ),
    "new-topic": (
        Goal("first message of the new topic, s", lambda f: f.new_topic_s, 5.0, "when the master is back"),
    ),
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
    "stop-master": (
        Goal("clean stop, s", lambda f: f.stopped_s, 1.0, "29-35 s"),
        Goal("pending delayed and timer again", lambda f: f.pending, 0, "all"),
        Goal("commits again", lambda f: f.transactions, 0, "25 of 88"),
    ),
    "both-slave-first": (
        _LOST,
        Goal("committed ones again", lambda f: f.committed_again, 0, "307 + 190 again"),
        Goal("out of order", lambda f: len(f.disorder), 0, "orderly offset goes back"),
    ),
    "both-master-first": (
        _LOST,
        Goal("committed ones again", lambda f: f.committed_again, 0, "-"),
        Goal("out of order", lambda f: len(f.disorder), 0, "-"),
    ),
    "ahead": (
        Goal("pulls of a queue in 15 s", lambda f: f.ahead_pulls, 1, "11,000"),
        # Some ten tell that it acts and that it follows again.
        Goal("lines of the slave", lambda f: f.slave_lines, 20, "528,000"),
    ),
    "no-other-master": (
        _LOST,
        Goal("lines of the slave", lambda f: f.slave_lines, 20, "1,984"),
    ),
    "quorum-kill-slave": (Goal("slowest stored send, s", lambda f: f.slowest_s, 0.2, "3.0-3.4 s"),),
    "quorum-freeze-slave": (Goal("slowest stored send, s", lambda f: f.slowest_s, 1.5, "12-18 s"),),
    "quorum-strict": (Goal("taken again after the slave's start, s", lambda f: f.used_s, 1.0, "7.4-10.9 s"),),
}


@dataclass(frozen=True)
class Judged:
    """One goal after a run; ``met`` is "yes" or "NO"."""

    what: str
    measured: str
    goal: str
    met: str
    apache: str


def against_goals(fault: str, found: Figures) -> list[Judged]:
    """What came of the goals of a fault."""
    rows = []
    for goal in GOALS.get(fault, ()):
        value = goal.figure(found)
        met = value is not None and value <= goal.most
        shown = "-" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")
        rows.append(Judged(goal.what, shown, f"{goal.most:g}", "yes" if met else "NO", goal.apache))
    return rows
