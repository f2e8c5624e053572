"""Judges what members that pop were dealt: what is done does not come again, and order is kept."""

from __future__ import annotations

from collections import defaultdict

from orbitmq.message.model import MessageQueue
from orbitmq.testing.simulation.history import Dealt, Delivered, History
from orbitmq.testing.simulation.kept import UNSYNCED_S
from orbitmq.testing.simulation.load import POP_INVISIBLE_S
from orbitmq.testing.simulation.plan import CLIENTS, FORGETS, Fault, Kind, Plan
from orbitmq.testing.simulation.traffic import FIFO_GROUP, MOVED_GROUP, REMADE

# Brokers count in whole milliseconds.
BROKERS_MS_S = 0.001
# What an answer is on its way at most, when no fault is at its client.
ANSWER_S = 3.0
# A slave is told what its master knows in so long, when nothing has kept it from it for the time before.
TOLD_S, HEALTHY_S = 0.5, 10.0
# So long after a change tables are in their files (flushConsumerOffsetInterval, and a write).
TABLES_S = 6.0
# In so long a slave that began anew is linked with its master, also when the name server begins with it.
TOLD_AGAIN_S = 3.0


def done_again(plan: Plan, history: History) -> None:
    """What was acknowledged or rejected, and was so answered, is not dealt out again (PP-02)."""
    done: dict[tuple[str, bytes], Delivered] = {}
    for one in history.delivered:
        # A group that is moved back gets again what is done.
        if one.done_s is not None and one.group != MOVED_GROUP:
            done.setdefault((one.group, one.body), one)
    # Of what had failed before there are copies, which an acting slave may bring to another group twice.
    failed: dict[tuple[str, bytes], float] = {}
    for each in history.dealt:
        for offset in each.again:
            failed.setdefault((each.group, each.bodies[offset]), each.at_s)
    for each in history.dealt:
        for offset, body in each.bodies.items():
            before = done.get((each.group, body))
            if before is None or before.done_s is None or _is_another_copy(before, each, offset):
                continue  # another copy's coming is judged with what comes twice
            done_s, home = before.done_s, before.queue.broker_name
            if each.at_s <= done_s + ANSWER_S or failed.get((each.group, body), done_s) < done_s:
                continue
            if may_be_unknown(plan, history, home, done_s, each.at_s, clients_s=done_s):
                continue
            if each.queue.topic == REMADE and each.at_s >= history.deletes_s:
                continue  # who has deleted it has no offsets any more, who has not has its messages
            text = f"{body.decode()} was done at {done_s:.3f} s, {each.member} gets it at {each.at_s:.3f} s"
            history.violate("what is done does not come again", text, body)


def _is_another_copy(done: Delivered, dealt: Dealt, offset: int) -> bool:
    """Whether what is dealt out is stored elsewhere, and did not come to that place by a redelivery."""
    if dealt.queue.broker_name != done.queue.broker_name:
        return True
    return offset not in dealt.again and (dealt.queue, offset) != (done.queue, done.offset)


def dealt_too_soon(plan: Plan, history: History) -> None:
    """In order: of a queue nothing is dealt out while something of it is out (PP-04)."""
    settled: dict[tuple[str, MessageQueue, int], list[float]] = defaultdict(list)
    for one in history.delivered:
        if one.settling_s is not None:
            settled[one.member, one.queue, one.offset].append(one.settling_s)
    before: dict[object, Dealt] = {}
    for each in history.dealt:
        if each.group != FIFO_GROUP:
            continue
        last = before.get(each.queue)
        before[each.queue] = each
        if last is None or each.at_s >= last.at_s + POP_INVISIBLE_S - ANSWER_S - plan.wrong_s:
            continue
        for offset, body in last.bodies.items():
            told = settled[last.member, last.queue, offset]
            if any(last.at_s <= settling_s <= each.at_s + plan.wrong_s + BROKERS_MS_S for settling_s in told):
                continue
            if not may_be_unknown(
                plan, history, each.queue.broker_name, last.at_s, each.at_s, clients_s=last.at_s
            ):
                text = f"{each.member} gets {sorted(each.bodies)} of a queue at {each.at_s:.3f} s, while "
                text += f"{last.member} has {body.decode()} at {offset} since {last.at_s:.3f} s"
                history.violate("order in each queue", text, body)
            break


def may_be_unknown(
    plan: Plan, history: History, home: str, known_s: float, until_s: float, *, clients_s: float | None = None
) -> bool:
    """Whether a broker may not know until ``until_s`` what one of its group knew at ``known_s``.

    Args:
        clients_s: whether a fault at a client since then may be why.
    """
    slaves = plan.mode.slaves(home)
    brokers = {home, *slaves}
    # Who takes a queue over asks a slave where it goes on while the master does not answer (seed 76).
    asked = any(
        home in fault.machines and fault.at_s <= until_s and known_s <= fault.end_s for fault in plan.faults
    )
    asked |= any(name in brokers and known_s - TOLD_S <= at_s <= until_s for at_s, name in history.reigns)
    for fault in plan.faults:
        machines = set(fault.machines)
        amid = clients_s is not None and fault.at_s <= until_s and clients_s - ANSWER_S <= fault.end_s
        if amid and machines & set(CLIENTS):
            return True
        if not asked or not machines & brokers:
            continue
        if fault.kind is Kind.LOSE_DISK and fault.end_s >= known_s:
            return True
        if fault.kind is Kind.KILL and _is_unwritten(plan, fault, home, known_s, until_s):
            return True
        # A pop is on no disk when it is answered; nor is anything with ASYNC_FLUSH, nor a slave's tables.
        before_s = TABLES_S if fault.target in slaves else UNSYNCED_S
        if fault.kind in FORGETS and fault.at_s - before_s <= known_s <= fault.end_s:
            return True
        if fault.kind is not Kind.CLOCK and fault.at_s - TOLD_S <= known_s <= fault.end_s + HEALTHY_S:
            return True
    return False


def _is_unwritten(plan: Plan, killed: Fault, home: str, known_s: float, until_s: float) -> bool:
    """Whether a kill took what was not in the files yet, and nobody told it again."""
    if killed.target == home:
        # What is written within flushIntervalCommitLog only its slaves know, and none of them can tell.
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
