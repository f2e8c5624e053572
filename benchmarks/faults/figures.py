"""From a run to what its fault costs, and the goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.faults.history import Receipt, Send, middle
from benchmarks.faults.place import MASTER, SLAVE
from benchmarks.faults.run import Outcome

# A fault may catch what was sent a moment before it.
BEFORE_S = 0.5
HEADINGS = (
    "fault", "out of the route", "slave acts", "default sends: failed, gap", "no retry fails for",
    "stand still: backlog, ordered, POP", "delayed, timer late: p50, max", "restarted reader", "first check",
    "again: pending, delayed, timer, transactions, POP, reader", "lost", "order", "back in the route",
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """What one fault costs; seconds from the fault, or from the mending for ``back_s``. None: did not happen.

    Attributes:
        out_s: until producers find no writable group at the lost broker.
        acts_s: until the slave does the background work.
        failed, sends, gap_s: of the producer with two retries.
        once_s: how long a producer without retries failed.
        backlog_s, ordered_s, pop_s: the longest time without a message for consumers with a backlog there.
        late: delayed and timer messages due while the fault lasted, sorted.
        reader_s: from the start of the consumer that was killed too to its first message.
        reader_again: messages that it got twice.
        check_s: from an open transaction's send to the question about it.
        pending, delayed, timer, transactions, popped: delivered again.
        back_s: until the master is in the route again.
        leads_s: until it leads again.
        stopped_s: how long a clean stop took.
        new_topic_s: until the first message of a topic that was new at the fault.
    """

    out_s: float | None
    acts_s: float | None
    failed: int
    sends: int
    gap_s: float
    once_s: float
    backlog_s: float
    ordered_s: float
    pop_s: float
    late: Sequence[float]
    reader_s: float | None
    reader_again: int
    reader_total: int
    check_s: float | None
    pending: int
    delayed: int
    timer: int
    transactions: int
    popped: int
    popped_total: int
    lost: Sequence[Send]
    unwanted: Sequence[Receipt]
    early: Sequence[Receipt]
    disorder: Sequence[Receipt]
    back_s: float | None
    leads_s: float | None
    stopped_s: float | None
    new_topic_s: float | None

    @property
    def late_p50(self) -> float:
        return middle(list(self.late))

    @property
    def late_max(self) -> float:
        return max(self.late, default=0.0)


def figures(outcome: Outcome) -> Figures:
    """All figures of a run."""
    history, fault_s, end_s = outcome.history, outcome.fault_s, outcome.end_s
    begin_s = fault_s - BEFORE_S
    after_s = max(outcome.mended_s, fault_s + 0.001)
    routes = [e for e in history.events if e.kind == "route" and e.at_s >= fault_s]
    out = next((e.at_s for e in routes if MASTER not in e.text or "writable" not in e.text), None)
    last_out = max((e.at_s for e in routes if "writable" not in e.text or MASTER not in e.text), default=None)
    back = None
    if last_out is not None:
        good = (e.at_s for e in routes if e.at_s > last_out)
        back = next(good, None)
    sends = [s for s in history.of("default") if begin_s <= s.begun_s < end_s]
    late = sorted(history.late("delayed", begin_s, after_s) + history.late("timer", begin_s, after_s))
    popped = history.got("backlog-pop")
    late_topic = history.got("late")
    reader = history.got("restarting")
    started = history.first("reader", "starts", fault_s - 0.5)
    first = next((r.at_s for r in reader if started is not None and r.at_s > started), None)
    acts = history.first("leads", f"{SLAVE} leads", begin_s)
    leads = history.first("leads", f"{MASTER} leads", after_s)
    return Figures(
        out_s=None if out is None else out - fault_s,
        acts_s=None if acts is None else acts - fault_s,
        failed=len(history.failed("default", begin_s, end_s)),
        sends=len(sends),
        gap_s=history.longest_gap("default", begin_s, end_s),
        once_s=history.failing_s("once", fault_s, after_s),
        backlog_s=history.standstill("backlog", begin_s, end_s),
        ordered_s=history.standstill("backlog-ordered", begin_s, end_s),
        pop_s=history.standstill("backlog-pop", begin_s, end_s),
        late=late,
        reader_s=None if started is None or first is None else first - started,
        reader_again=history.repeated("restarting"),
        reader_total=len(reader),
        check_s=history.first_check(begin_s - 10),
        pending=history.repeated_pending("delayed", fault_s) + history.repeated_pending("timer", fault_s),
        delayed=history.repeated("delayed"),
        timer=history.repeated("timer"),
        transactions=history.repeated("transaction"),
        popped=history.repeated("backlog-pop") + history.repeated("pop"),
        popped_total=len(popped),
        lost=history.lost(),
        unwanted=history.unwanted(),
        early=history.early(),
        disorder=history.disorder("ordered") + history.disorder("backlog-ordered"),
        back_s=None if back is None or back < after_s else back - after_s,
        leads_s=None if leads is None else leads - after_s,
        stopped_s=outcome.stopped_s,
        new_topic_s=None if not late_topic else max(0.0, late_topic[0].at_s - fault_s),
    )


def broken(outcome: Outcome, found: Figures) -> list[str]:
    """The promises that were not kept; nothing may be in here, whatever the fault."""
    safe_s = outcome.fault_s - outcome.fault.may_lose_s if outcome.fault.may_lose_s else math.inf
    promises: Iterable[tuple[str, Sequence[object]]] = (
        ("acknowledged and never delivered", [send for send in found.lost if send.ended_s < safe_s]),
        ("delivered although rolled back", found.unwanted),
        ("delivered before its time", found.early),
        ("delivered out of order", found.disorder),
        ("not running at the end", outcome.missing),
    )
    return [f"{len(cases)} {what}, the first: {cases[0]}" for what, cases in promises if cases]


def row(outcome: Outcome, found: Figures) -> list[str]:
    """The cells of the table."""
    return [
        outcome.fault.title,
        _s(found.out_s),
        _s(found.acts_s),
        f"{found.failed} of {found.sends}, {_s(found.gap_s)}",
        _s(found.once_s),
        f"{_s(found.backlog_s)}, {_s(found.ordered_s)}, {_s(found.pop_s)}",
        f"{_s(found.late_p50)}, {_s(found.late_max)}",
        _s(found.reader_s),
        _s(found.check_s),
        f"{found.pending}, {found.delayed}, {found.timer}, {found.transactions}, {found.popped} of "
        f"{found.popped_total}, {found.reader_again} of {found.reader_total}",
        str(len(found.lost)),
        "kept" if not found.disorder else f"{len(found.disorder)} wrong",
        _s(found.back_s) if found.stopped_s is None else f"{_s(found.back_s)}, stop {_s(found.stopped_s)}",
    ]


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


@dataclass(frozen=True)
class Goal:
    """A figure, what it should be at most, and what Apache 5.5.0 needs with its own clients."""

    what: str
    figure: Callable[[Figures], float | None]
    most: float
    apache: str


def _still(found: Figures) -> float:
    return max(found.backlog_s, found.ordered_s, found.pop_s)


_STILL = "21, 18-22, 25-26 s"
GOALS: dict[str, tuple[Goal, ...]] = {
    "kill-master": (
        Goal("route, s", lambda f: f.out_s, 0.2, "0.08-0.2 s"),
        Goal("backlog, ordered, POP stand still, s", _still, 1.5, _STILL),
        Goal("producer without retry fails, s", lambda f: f.once_s, 1.0, "18-19 s"),
        Goal("delayed and timer late p50, s", lambda f: f.late_p50, 0.2, "0.1 and 0.7 s"),
        Goal("delayed and timer late max, s", lambda f: f.late_max, 1.5, "2.8 s"),
        Goal("first check of a transaction, s", lambda f: f.check_s, 8.0, "61-66 s"),
        Goal("pending delayed and timer again", lambda f: f.pending, 0, "all"),
        Goal("delivered delayed again", lambda f: f.delayed, 0, "204-510"),
        Goal("timer again", lambda f: f.timer, 0, "1 of 48, stock all"),
        Goal("transactions again", lambda f: f.transactions, 0, "22 of 46"),
        Goal("POP again, %", lambda f: 100 * f.popped / max(1, f.popped_total), 1.0, "390 of 632"),
        Goal("restarted group: first message, s", lambda f: f.reader_s, 1.5, "17-23 s"),
        Goal("master back in the route, s", lambda f: f.back_s, 3.0, "5-15 s, stock never"),
    ),
    "new-topic": (
        Goal("first message of the new topic, s", lambda f: f.new_topic_s, 5.0, "when the master is back"),
    ),
    "freeze-master-15": (
        Goal("out of the route, s", lambda f: f.out_s, 5.0, "11.6 s"),
        Goal("default sends that fail", lambda f: f.failed, 0, "6 of 495"),
        Goal("longest gap of default sends, s", lambda f: f.gap_s, 1.5, "3.4 s"),
        Goal("again on thaw: pending", lambda f: f.pending, 0, "17 of 17"),
    ),
    "stop-master": (
        Goal("clean stop, s", lambda f: f.stopped_s, 1.0, "29-35 s"),
        Goal("pending delayed and timer again", lambda f: f.pending, 0, "all"),
        Goal("commits again", lambda f: f.transactions, 0, "25 of 88"),
    ),
}  # fmt: skip


def against_goals(outcome: Outcome, found: Figures) -> list[list[str]]:
    """Rows of fault, figure, ours, goal, whether it is met, Apache's."""
    rows = []
    for goal in GOALS.get(outcome.fault.name, ()):
        value = goal.figure(found)
        met = value is not None and value <= goal.most
        shown = "-" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")
        rows.append(
            [
                f"{outcome.fault.title}: {goal.what}",
                shown,
                f"{goal.most:g}",
                "yes" if met else "NO",
                goal.apache,
            ]
        )
    return rows
