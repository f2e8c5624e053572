"""Computes the figures of a fault from its run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.faults.history import Receipt, Send, middle
from benchmarks.faults.place import MASTER, SLAVE
from benchmarks.faults.run import Outcome

# A fault may hit messages that were sent up to this long before it.
BEFORE_S = 0.5
GROUP = "broker-a"
LIVE_ROLES = ("default", "once", "ordered", "backlog", "backlog-ordered")
SETTLED_S = 3.0
HELD_S = 15.0
"""The longest time for which a broker holds a pull."""
HEADINGS = (
    "fault", "out of the route", "slave acts", "default sends: failed, gap", "no retry fails for",
    "stand still: backlog, ordered, POP", "delayed, timer late: p50, max", "restarted reader", "first check",
    "again: pending, delayed, timer, transactions, POP, reader, live, committed", "slowest stored send",
    "lost", "order", "back in the route, used",
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """The costs of one fault, in seconds from the fault, or from its end for ``back_s``. None if an event did
    not happen.

    Attributes:
        out_s: time until the route of producers has no writable queue at the lost broker.
        acts_s: time until the slave does the background work.
        failed, sends, gap_s: failed sends, all sends, and longest gap of the producer with two retries.
        once_s: how long the sends of a producer without retries failed.
        backlog_s, ordered_s, pop_s: the longest time without a message for consumers with a backlog at the
            lost broker.
        late: lateness of the delayed and timer messages due during the fault, sorted.
        reader_s: time from the restart of the consumer that was killed with the broker to its first message.
        reader_again: number of messages that this consumer got twice.
        check_s: time from an open transaction's send to its check.
        pending, delayed, timer, transactions, popped: numbers of repeated deliveries.
        back_s: time until the master is in the route again.
        leads_s: time until the master leads again.
        stopped_s: duration of a clean stop.
        new_topic_s: time until the first message of a topic that was created just before the fault.
        used_s: time from the end of the fault until the producer with retries stored a message at the group
            again.
        slowest_s: the longest duration of a send, of a role without delays, that the group stored during the
            fault.
        committed_again: number of committed messages of the backlog that were delivered again.
        live_again: number of messages of the backlog that were delivered again, committed or not, to
            consumers that ran through the fault.
        ahead_pulls: the most pulls of one queue at the slave in 15 s; only in runs with a relay.
        slave_lines: number of lines that the slave logged during the fault.
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
    used_s: float | None
    slowest_s: float
    committed_again: int
    live_again: int
    ahead_pulls: float
    slave_lines: int

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
    used = history.first_stored("default", GROUP, after_s)
    # Pulls shortly after a change of the route do not count as the pace of waiting clients.
    settled_s = min(fault_s + SETTLED_S, after_s)
    pulls = history.most_pulls(LIVE_ROLES[:2], settled_s, after_s)
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
        used_s=None if used is None else used - after_s,
        slowest_s=history.slowest(GROUP, begin_s, after_s),
        committed_again=history.repeated_committed(),
        live_again=sum(history.repeated(role) for role in LIVE_ROLES),
        ahead_pulls=pulls / max(1, math.ceil((after_s - settled_s) / HELD_S)),
        slave_lines=outcome.slave_lines,
    )


def broken(outcome: Outcome, found: Figures) -> list[str]:
    """The promises that were broken; whatever the fault, there must be none."""
    safe_s = outcome.fault_s - outcome.fault.may_lose_s if outcome.fault.may_lose_s else math.inf
    lost = [send for send in found.lost if send.ended_s < safe_s]
    promises: Iterable[tuple[str, Sequence[object]]] = (
        ("acknowledged and never delivered", lost),
        ("never delivered to a group that got later ones", outcome.history.passed_over()),
        ("delivered although rolled back", found.unwanted),
        ("delivered before its time", found.early),
        ("delivered out of order", found.disorder),
        ("not running at the end", outcome.missing),
    )
    wrong = [f"{len(cases)} {what}, the first: {cases[0]}" for what, cases in promises if cases]
    return wrong + [f"never delivered: {text}" for text in places(lost)]


def places(lost: Sequence[Send]) -> list[str]:
    """The places of lost messages: their number by role and queue, with ranges of offsets and times."""
    by_queue: dict[tuple[str, str, int], list[Send]] = {}
    for send in lost:
        by_queue.setdefault((send.role, send.broker, send.queue_id), []).append(send)
    return [
        f"{role}, {broker} queue {queue_id}: {len(sends)}, offsets {min(s.offset for s in sends)} to "
        f"{max(s.offset for s in sends)}, sent from {sends[0].begun_s:.2f} to {sends[-1].ended_s:.2f} s"
        for (role, broker, queue_id), sends in sorted(by_queue.items())
    ]


def row(outcome: Outcome, found: Figures) -> list[str]:
    """The cells of the run's row in the table."""
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
        f"{found.popped_total}, {found.reader_again} of {found.reader_total}, {found.live_again}, "
        f"{found.committed_again}",
        _s(found.slowest_s),
        str(len(found.lost)),
        "kept" if not found.disorder else f"{len(found.disorder)} wrong",
        ", ".join(
            [_s(found.back_s), _s(found.used_s)]
            + ([] if found.stopped_s is None else [f"stop {_s(found.stopped_s)}"])
        ),
    ]


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"
