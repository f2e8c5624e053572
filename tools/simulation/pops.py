"""Judges the deliveries to popping members: finished messages are not repeated, and order is kept."""

from __future__ import annotations

from collections import Counter, defaultdict

from orbitmq.message.model import MessageQueue
from tools.simulation.again import unanswered
from tools.simulation.excuses import NO_FAULT
from tools.simulation.forgotten import LOOK_S, forgotten
from tools.simulation.history import Dealt, Delivered, History
from tools.simulation.kept import UNSYNCED_S, may_forget
from tools.simulation.load import CONSUMERS, POP_INVISIBLE_S
from tools.simulation.plan import FORGETS, GROUPS, NAME_SERVERS, Fault, Kind, Plan
from tools.simulation.traffic import FIFO_GROUP, MOVED_GROUP, REMADE

# Brokers count in whole milliseconds.
BROKERS_MS_S = 0.001
# The longest time until an answer, if no fault hits its client.
ANSWER_S = 3.0
# A slave receives its master's changes within this time, if nothing separated them for HEALTHY_S before.
TOLD_S, HEALTHY_S = 0.5, 3.0
# This long after a change the tables are in their files (flushConsumerOffsetInterval, and a write).
TABLES_S = 6.0
# Within this time a restarted slave is linked with its master, even if the name server restarts with it.
TOLD_AGAIN_S = 3.0


# The kinds of faults that keep a master from answering.
_SILENT = frozenset(Kind) - {Kind.RESET, Kind.SLOW_LINK, Kind.SLOW_DISK, Kind.FAIL_DISK, Kind.CLOCK}


def done_again(plan: Plan, history: History) -> None:
    """A message whose acknowledgement or rejection was confirmed is not given out again (PP-02)."""
    excuses = history.excuses
    done: dict[tuple[str, bytes], Delivered] = {}
    for one in history.delivered:
        # A group that is moved back gets finished messages again.
        if one.done_s is not None and one.group != MOVED_GROUP:
            done.setdefault((one.group, one.body), one)
    copies = Counter(record.body for records in history.stored.values() for record in records)
    for each in history.dealt:
        for offset, body in each.bodies.items():
            subject = each.group, body, each.at_s
            for rule in ("acknowledgement forgotten", "brought twice", "deleted by some"):
                excuses.judged(rule, subject)
            before = done.get((each.group, body))
            if before is None or before.done_s is None:
                continue
            if each.popped_s <= before.done_s + plan.wrong_s + BROKERS_MS_S:
                continue  # this delivery was in progress while the other one was acknowledged
            if copies[body] > 1 or (
                offset not in each.again and (each.queue, offset) != (before.queue, before.offset)
            ):
                continue  # another checker judges messages that are stored twice
            done_s, home = before.done_s, before.queue.broker_name
            if excuses.covers("brought twice", subject, _brought_twice(plan, history, before, each, offset)):
                continue
            unknown = may_be_unknown(plan, history, home, done_s, each.at_s)
            if excuses.covers("acknowledgement forgotten", subject, unknown):
                continue
            topic = each.queue.topic == REMADE and each.at_s >= history.deletes_s
            # A broker that has deleted the topic has no offsets left; a broker that has not still has the
            # messages.
            if excuses.covers("deleted by some", subject, NO_FAULT if topic else ""):
                continue
            text = f"{body.decode()} was done at {done_s:.3f} s, {each.member} gets it at {each.at_s:.3f} s"
            history.violate("what is done does not come again", text, body)


def _brought_twice(plan: Plan, history: History, before: Delivered, dealt: Dealt, offset: int) -> str:
    """Why a copy of a failed message comes from another broker group than the copy that was finished.

    An acting slave moved one or two copies there: its master had stored a copy that the slave lacked, or did
    not know of the slave's work, or the slave's send was not answered.
    """
    sent = history.sent.get(before.body)
    homes = GROUPS if sent is None or sent.queue is None else (sent.queue.broker_name,)
    failed_s = min(one.at_s for one in history.dealt if before.body in one.bodies.values())
    for home in homes:
        away = offset in dealt.again and {dealt.queue.broker_name, before.queue.broker_name} != {home}
        takes = [take for take in history.takeovers if take.group == home and take.at_s <= dealt.at_s]
        if not away or not takes:
            continue
        if forgotten(plan, history, home, takes[0].at_s, before.at_s, dealt.popped_s) or any(
            end > take.end and failed_s <= at_s <= take.at_s + LOOK_S
            for take in takes
            for at_s, end in history.log_ends.get(home, ())
        ):
            return "takeover"
        if cause := unanswered(plan, history, home, takes[0].at_s, dealt.at_s):
            return cause
    return ""


def dealt_too_soon(plan: Plan, history: History) -> None:
    """In order: while a message of a queue is in flight, no later message of the queue is given out
    (PP-04).
    """
    settled: dict[tuple[str, MessageQueue, int], list[float]] = defaultdict(list)
    for one in history.delivered:
        if one.settling_s is not None:
            settled[one.member, one.queue, one.offset].append(one.settling_s)
    before: dict[object, Dealt] = {}
    for each in sorted(history.dealt, key=lambda dealt: dealt.popped_s):
        if each.group != FIFO_GROUP:
            continue
        last = before.get(each.queue)
        before[each.queue] = each
        subject = each.queue, each.at_s
        history.excuses.judged("order forgotten", subject)
        if last is None or each.popped_s >= last.popped_s + POP_INVISIBLE_S - plan.wrong_s - BROKERS_MS_S:
            continue
        for offset, body in last.bodies.items():
            told = settled[last.member, last.queue, offset]
            if any(last.at_s <= settling_s <= each.at_s + plan.wrong_s + BROKERS_MS_S for settling_s in told):
                continue
            unknown = may_be_unknown(plan, history, each.queue.broker_name, last.popped_s, each.at_s)
            if not history.excuses.covers("order forgotten", subject, unknown):
                text = f"{each.member} gets {sorted(each.bodies)} of a queue at {each.at_s:.3f} s, while "
                text += f"{last.member} has {body.decode()} at {offset} since {last.at_s:.3f} s"
                history.violate("order in each queue", text, body)
            break


def may_be_unknown(
    plan: Plan,
    history: History,
    home: str,
    known_s: float,
    until_s: float,
    *,
    clients_s: float | None = None,
    asked: bool = False,
    synced: bool = False,
) -> str:
    """Why a broker may lack, until ``until_s``, a change that another broker of its group knew at
    ``known_s``.

    The other broker led by then, or had restarted, and a fault had kept the change from it.

    Args:
        clients_s: faults at consumers from this time on may be the cause.
        asked: members also request the data: a member that takes over a queue asks a slave while the master
            does not answer.
        synced: with SYNC_FLUSH the change is on the master's disk before the answer.
    """
    brokers = {home, *plan.mode.slaves(home)}
    went_on_s = [at_s for at_s, name in history.reigns if name in brokers]
    if asked:
        went_on_s += [max(fault.at_s, known_s) for fault in plan.faults if _is_away(fault, home, known_s)]
    went_on_s = [at_s for at_s in went_on_s if known_s - TOLD_S <= at_s <= until_s]
    for fault in plan.faults:
        machines = set(fault.machines)
        amid = clients_s is not None and fault.at_s <= until_s and clients_s - ANSWER_S <= fault.end_s
        if amid and machines & set(CONSUMERS):
            return fault.kind.value
        if (
            went_on_s
            and machines & brokers
            and _keeps_from(plan, history, fault, home, known_s, min(went_on_s), until_s, synced=synced)
        ):
            return fault.kind.value
    return ""


def _is_away(fault: Fault, home: str, since_s: float) -> bool:
    """Whether members may get no answer from a master after this time."""
    return home in fault.machines and since_s <= fault.end_s and fault.kind in _SILENT


def _keeps_from(
    plan: Plan,
    history: History,
    fault: Fault,
    home: str,
    known_s: float,
    went_on_s: float,
    until_s: float,
    *,
    synced: bool,
) -> bool:
    """Whether this fault may have kept one broker's change from another broker of its group, or destroyed it.

    Args:
        went_on_s: the time at which another broker first led, or restarted.
        synced: with SYNC_FLUSH the change is on the master's disk before the answer; pops and
            acknowledgements are on no disk.
    """
    if fault.kind is Kind.LOSE_DISK and fault.end_s >= known_s:
        if fault.target == home:
            return may_forget(plan, history, fault, known_s) or not _all_told(plan, home, known_s, fault.at_s)
        return _is_troubled(plan, home, fault.end_s, fault.end_s + TOLD_AGAIN_S)
    if fault.kind is Kind.KILL and _is_unwritten(plan, fault, home, known_s, until_s):
        return True
    slave = fault.target in plan.mode.slaves(home)
    kept = synced and plan.mode.sync_flush and fault.kind is Kind.POWER and not slave
    before_s = TABLES_S if slave else UNSYNCED_S
    if fault.kind in FORGETS and not kept and fault.at_s - before_s <= known_s <= fault.end_s:
        return True
    near = fault.at_s - TOLD_S <= known_s <= fault.end_s + HEALTHY_S
    return fault.kind is not Kind.CLOCK and near and not _all_told(plan, home, known_s, went_on_s)


def _all_told(plan: Plan, home: str, known_s: float, until_s: float) -> bool:
    """Whether the brokers of a group were connected for long enough that each received the others'
    changes.
    """
    machines = {home, *plan.mode.slaves(home), *NAME_SERVERS}
    free_s = known_s
    for fault in sorted(plan.faults, key=lambda each: each.at_s):
        if fault.kind is Kind.CLOCK or not machines & set(fault.machines):
            continue
        if free_s + HEALTHY_S <= min(fault.at_s, until_s):
            return True
        free_s = max(free_s, fault.end_s)
    return free_s + HEALTHY_S <= until_s


def _is_unwritten(plan: Plan, killed: Fault, home: str, known_s: float, until_s: float) -> bool:
    """Whether a kill destroyed changes that were not in files yet, and no broker sent them again."""
    if killed.target == home:
        # Messages within flushIntervalCommitLog are known only to the slaves, and none of these can send
        # them.
        lost = not plan.mode.sync_flush and killed.at_s - UNSYNCED_S <= known_s <= killed.at_s
        return lost and all(
            _is_troubled(plan, slave, killed.at_s, until_s) for slave in plan.mode.slaves(home)
        )
    lost = killed.target in plan.mode.slaves(home) and killed.at_s - TABLES_S <= known_s <= killed.at_s
    return lost and _is_troubled(plan, home, killed.end_s, killed.end_s + TOLD_AGAIN_S)


def _is_troubled(plan: Plan, name: str, since_s: float, until_s: float) -> bool:
    return any(
        name in fault.machines and fault.at_s <= until_s and since_s <= fault.end_s for fault in plan.faults
    )
