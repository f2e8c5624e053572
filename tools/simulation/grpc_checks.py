"""Judges the deliveries to gRPC consumers: finished messages are not repeated, order is kept, dead clients'
messages are freed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from orbitmq.message.model import MessageQueue
from tools.simulation.checks import EARLY_S
from tools.simulation.grpc_load import FIFO_GROUP, INVISIBLE_S, PUSH_GROUP, TOPIC_OF, Got, Record
from tools.simulation.history import History
from tools.simulation.plan import Kind, Plan, group_of
from tools.simulation.pops import TABLES_S

# Brokers count in whole milliseconds.
BROKERS_MS_S: Final = 0.001
# A client is gone at most 40 s after its last call, and its messages are given back within a second. A
# restarted broker waits 30 s for the client, and an invisible time is 60 s at most.
HELD_S: Final = 65.0
# The last work of a broker, up to this long before another broker of its group continues, may be unknown to
# the other.
UNKNOWN_S: Final = 10.0
# A fault begins some steps of the event loop after its time.
AMID_S: Final = 0.1
# The time within which the other clients send another receive.
ASKED_S: Final = 10.0


def missing(history: History) -> Iterator[str]:
    """The stored messages that a group has not finished."""
    for sent in history.sent.values():
        if sent.acked_s is None or sent.commits is False:
            continue
        for group, topic in TOPIC_OF.items():
            if topic == sent.topic and sent.body not in history.by_group.get(group, ()):
                yield f"{group} has not done {sent.body.decode()}"


def judge(plan: Plan, history: History, record: Record) -> None:
    """Record each broken promise."""
    _done_again(plan, history, record)
    _in_order(history, record)
    _dealt_too_soon(plan, history, record)
    _held_for_the_dead(plan, history, record)
    _early(history, record)


def _taken_over(
    plan: Plan, history: History, groups: Collection[str], since_s: float, until_s: float
) -> bool:
    """Whether another broker of these groups continued the work, so that it may not know the last changes."""
    return plan.mode.replicas > 1 and any(
        group_of(name) in groups and since_s - UNKNOWN_S <= at_s <= until_s for at_s, name in history.reigns
    )


def _done_again(plan: Plan, history: History, record: Record) -> None:
    """A message that a broker confirmed as done is not given out again.

    A broker answers OK even if the invisible time of an ordered message is over, like Apache's.
    """
    done: dict[tuple[str, bytes], Got] = {}
    for one in record.got:
        late = one.group == FIFO_GROUP and (one.done_s or 0.0) >= one.popped_s + INVISIBLE_S
        if one.done_s is not None and not late:
            done.setdefault((one.group, one.body), one)
    for each in record.got:
        before = done.get((each.group, each.body))
        if before is None or before.done_s is None or each.popped_s <= before.done_s + BROKERS_MS_S:
            continue
        homes = {before.queue.broker_name, each.queue.broker_name}
        if not _taken_over(plan, history, homes, before.done_s, each.popped_s):
            text = f"{each.body.decode()} of {each.group} was done at {before.done_s:.3f} s, {each.member} "
            text += f"gets it at {each.at_s:.3f} s"
            history.violate("what is done does not come again", text, each.body)


def _of_queues(record: Record) -> dict[MessageQueue, list[list[Got]]]:
    """The ordered deliveries, by queue and pop, in the order of the pops."""
    pops: dict[MessageQueue, dict[tuple[float, str], list[Got]]] = defaultdict(dict)
    for one in record.got:
        if one.group == FIFO_GROUP:
            pops[one.queue].setdefault((round(one.popped_s, 3), one.member), []).append(one)
    return {queue: [found[key] for key in sorted(found)] for queue, found in pops.items()}


def _in_order(history: History, record: Record) -> None:
    """The first delivery of each message comes after those of all earlier messages of its queue."""
    for queue, pops in _of_queues(record).items():
        highest = -1
        known: set[int] = set()
        for one in (one for pop in pops for one in sorted(pop, key=lambda got: got.offset)):
            if one.offset not in known and one.offset < highest:
                text = (
                    f"{one.body.decode()} at {one.offset} of queue {queue.queue_id} of {queue.broker_name} "
                )
                history.violate("order in each queue", text + f"comes first behind {highest}", one.body)
            known.add(one.offset)
            highest = max(highest, one.offset)


def _dealt_too_soon(plan: Plan, history: History, record: Record) -> None:
    """While a message of an ordered queue is in flight, the queue's messages are given out only to the same
    attempt.
    """
    for queue, pops in _of_queues(record).items():
        for last, each in pairwise(pops):
            first, before = each[0], last[0]
            over = first.popped_s >= before.popped_s + INVISIBLE_S - BROKERS_MS_S
            over |= _taken_over(plan, history, {queue.broker_name}, before.popped_s, first.popped_s)
            if over or first.attempt == before.attempt or _forgotten(plan, queue, before, first):
                continue
            for one in last:
                if one.freed_s is None or one.freed_s > first.at_s + BROKERS_MS_S:
                    text = f"{first.member} gets {sorted(got.offset for got in each)} of a queue at "
                    text += f"{first.at_s:.3f} s, while {one.member} has {one.offset} since {one.at_s:.3f} s"
                    history.violate("order in each queue", text, one.body)
                    break


def _forgotten(plan: Plan, queue: MessageQueue, before: Got, then: Got) -> bool:
    """Whether a broker lost its record of a pop, which reaches the disk some seconds after the answer, unlike
    acknowledgements.
    """
    return any(
        fault.kind in (Kind.KILL, Kind.POWER)
        and fault.target == queue.broker_name
        and before.popped_s <= fault.at_s + AMID_S
        and fault.at_s <= min(then.popped_s, before.popped_s + TABLES_S)
        for fault in plan.faults
    )


def _held_for_the_dead(plan: Plan, history: History, record: Record) -> None:
    """The messages of a push consumer whose process ended go to another consumer in time."""
    next_of: dict[tuple[str, bytes], list[Got]] = defaultdict(list)
    for one in record.got:
        next_of[one.group, one.body].append(one)
    for one in record.got:
        life = one.member.rpartition("/")[0]
        if one.group != PUSH_GROUP or life not in record.ended or one.freed_s is not None:
            continue
        ended_s = record.ended[life]
        until_s = _free_s(plan, one, ended_s + HELD_S) + ASKED_S
        # A client that closes gives its messages back with its goodbye, some time before its end.
        later = [each for each in next_of[one.group, one.body] if each.at_s > one.at_s]
        at_s = later[0].at_s if later else history.now_s()
        if at_s > until_s:
            text = f"{one.body.decode()} is {one.member}'s, which ended at {ended_s:.3f} s; "
            text += f"the next one gets it at {at_s:.3f} s" if later else "nobody gets it"
            history.violate("nothing stays with a dead client", text, one.body)


def _free_s(plan: Plan, one: Got, free_s: float) -> float:
    """The latest time at which a message has to be free; faults after its begin postpone it."""
    for fault in sorted(plan.faults, key=lambda fault: fault.at_s):
        if fault.at_s <= free_s and fault.end_s + HELD_S > free_s:
            free_s = fault.end_s + HELD_S
    return free_s


def _early(history: History, record: Record) -> None:
    """No delayed message is delivered before its time, and no message of a transaction before the commit."""
    for one in record.got:
        sent = history.sent.get(one.body)
        if sent is None:
            continue
        due_s = sent.at_s + sent.delay_s
        if sent.delay_s and one.popped_s < due_s - EARLY_S:
            text = f"{one.member} gets {one.body.decode()} {due_s - one.popped_s:.3f} s too early"
            history.violate("no delayed message early", text, one.body)
        if sent.commits is None:
            continue
        told = [at_s for at_s, _ in sent.asked] + ([] if sent.told_s is None else [sent.told_s])
        if not sent.commits or not told or one.popped_s < min(told) - BROKERS_MS_S:
            text = f"{one.member} gets {one.body.decode()}, which is not committed"
            history.violate("each half message ends once", text, one.body)
