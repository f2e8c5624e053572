"""The faults. Each function plays one on one side, and returns its figures by name."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from benchmarks.grpc_faults.lab import FaultError, Lab
from benchmarks.grpc_faults.site import FIFO, TRANSACTION, stored
from tests.interop.grpc_running import Running

HELD: Final = 4
# The limit of a wait in seconds: a message that has not arrived by then counts as arrived at the limit.
ELSEWHERE_WITHIN_S: Final = 240.0
# A push consumer's messages are invisible for 60 s at first, and longer only through renewals.
HANDLER_S: Final = 180.0
SHORT_HANDLER_S: Final = 75.0
CUT_AFTER_S, CUT_S = 20.0, 5.0
# The time after which messages whose acknowledgement did not arrive are delivered again.
INVISIBLE_S: Final = 65.0
SHORT_LINGER_S: Final = 10.0
# Longer than a consumer waits for the answer to a receive: 20 s of polling, and 10 s.
LOST_S: Final = 40.0
ORDERED: Final = 10
NEXT_TRY_WITHIN_S: Final = 120.0
LOAD_QUEUES: Final = 4
BEFORE: Final = 300
# The time within which a restarted broker checks each transaction that was left open.
CHECKED_S: Final = 45.0
WORKS_AGAIN_WITHIN_S: Final = 180.0
DELIVERED_WITHIN_S: Final = 120.0

Figures = dict[str, float]


def consumer_killed(lab: Lab) -> Figures:
    """A push consumer's process is killed while it works on messages; another member of its group runs."""
    topic = "killed"
    lab.site.create(topic)
    holder = lab.run(lab.machine(), "hold", topic, topic)
    lab.until_it_receives(topic, holder)
    wanted = _sent(lab, topic, "held", HELD)
    _all_come(wanted, holder)
    other = lab.run(lab.machine(), "push", topic, topic)
    lab.until_it_receives(topic, other)
    killed = time.monotonic()
    holder.end()
    other.wait_for(lambda: wanted <= set(other.bodies("body")), ELSEWHERE_WITHIN_S)
    came = dict(other.times("body"))
    return {"elsewhere_s": max(came.get(body, killed + ELSEWHERE_WITHIN_S) - killed for body in wanted)}


def slow_handler(lab: Lab) -> Figures:
    """Handlers of two members take longer than the invisible time; one member is cut off for a while."""
    topic = "slow"
    lab.site.create(topic)
    machines = [lab.machine(), lab.machine()]
    handler_s = SHORT_HANDLER_S if lab.short else HANDLER_S
    members = [lab.run(machine, "slow", topic, topic, int(handler_s)) for machine in machines]
    for member in members:
        lab.until_it_receives(topic, member)
    _all_come(_sent(lab, topic, "held", HELD), *members)
    began = time.monotonic()
    time.sleep(CUT_AFTER_S)
    machines[0].cut_off()
    time.sleep(CUT_S)
    machines[0].connect()
    # Messages that could not be acknowledged are delivered again.
    linger_s = SHORT_LINGER_S if lab.short else INVISIBLE_S
    time.sleep(max(0.0, began + handler_s + linger_s - time.monotonic()))
    deliveries = Counter(body for member in members for body in member.bodies("body"))
    for number, member in enumerate(members):
        for body, at in member.times("body"):
            if deliveries[body] > 1:
                print(f"    {body} at member {number}, {at - began:.1f} s", file=sys.stderr, flush=True)
    return {"twice": sum(deliveries.values()) - len(deliveries)}


def answer_lost(lab: Lab) -> Figures:
    """The answer to an ordered receive is lost, and the client repeats the receive."""
    topic = "ordered"
    lab.site.create(topic, 1, FIFO)
    machine = lab.machine()
    consumer = lab.run(machine, "push", topic, topic)
    lab.until_it_receives(topic, consumer)
    time.sleep(1)
    machine.lose_answers()
    wanted = _sent(lab, topic, "body", ORDERED)
    time.sleep(LOST_S)
    machine.connect()
    healed = time.monotonic()
    consumer.wait_for(lambda: wanted <= set(consumer.bodies("body")), NEXT_TRY_WITHIN_S)
    came = [(body, at) for body, at in consumer.times("body") if body in wanted]
    last = dict(came)
    bodies = [body for body, _ in came]
    numbers = [int(body.rpartition("-")[2]) for body in dict.fromkeys(bodies)]
    return {
        "next_try_s": max(last.get(body, healed + NEXT_TRY_WITHIN_S) - healed for body in wanted),
        "out_of_order": sum(first > second for first, second in pairwise(numbers)),
        "twice": len(bodies) - len(set(bodies)),
    }


def broker_killed(lab: Lab) -> Figures:
    """A broker is killed under a load of messages and transactions, and started again at once."""
    lab.site.create("load", LOAD_QUEUES)
    lab.site.create("deals", LOAD_QUEUES, TRANSACTION)
    machine = lab.machine()
    plain, deals = (lab.run(machine, "push", topic, topic) for topic in ("load", "deals"))
    lab.until_it_receives("load", plain)
    lab.until_it_receives("deals", deals)
    before = stored(lab.broker, "deals", LOAD_QUEUES)
    producer = lab.run(machine, "mixed", "load", "deals")

    def taken() -> list[float]:
        return [at for name in ("sent", "committed") for _, at in producer.times(name)]

    if not producer.wait_for(lambda: len(taken()) >= BEFORE):
        raise FaultError(f"{len(taken())} of {BEFORE} messages are sent")
    killed = time.monotonic()
    lab.broker.server.kill()
    lab.broker = lab.site.broker()
    again = producer.wait_for(lambda: sum(at > killed for at in taken()) >= BEFORE, WORKS_AGAIN_WITHIN_S)
    if not again:
        since = sum(at > killed for at in taken())
        why = producer.bodies("why")[-1:]
        raise FaultError(
            f"{since} of {BEFORE} messages are sent in {WORKS_AGAIN_WITHIN_S:.0f} s after the kill: {why}"
        )
    # Only the producer of a transaction answers its check.
    time.sleep(max(0.0, killed + CHECKED_S - time.monotonic()))
    producer.go()
    producer.ended()
    wanted = {"load": set(producer.bodies("sent")), "deals": set(producer.bodies("committed"))}
    lost = 0
    for topic, reader in (("load", plain), ("deals", deals)):
        reader.wait_for(lambda r=reader, t=topic: wanted[t] <= set(r.bodies("body")), DELIVERED_WITHIN_S)  # type: ignore[misc]
        lost += len(wanted[topic] - set(reader.bodies("body")))
    delivered = {body for body in deals.bodies("body") if body.startswith("body-")}
    return {
        "lost": lost,
        "repeated": stored(lab.broker, "deals", LOAD_QUEUES) - before - len(delivered),
        "send_gap_s": longest_gap(sorted(taken()), killed),
        "receive_gap_s": longest_gap([at for _, at in plain.times("body")], killed),
    }


def _sent(lab: Lab, topic: str, name: str, count: int) -> set[str]:
    bodies = [f"{name}-{number}" for number in range(count)]
    lab.site.send(topic, bodies)
    return set(bodies)


def _all_come(wanted: set[str], *consumers: Running) -> None:
    """Wait until each of these messages has reached one of the consumers.

    Raises:
        FaultError: a message is missing.
    """
    until = time.monotonic() + ELSEWHERE_WITHIN_S
    while not wanted <= {body for each in consumers for body in each.bodies("body")}:
        if time.monotonic() > until:
            raise FaultError(f"{len(wanted)} messages do not come to their first consumers")
        time.sleep(0.1)


def longest_gap(times: Sequence[float], since: float) -> float:
    """The longest interval between two consecutive times, of which the later one is after ``since``."""
    return max((later - earlier for earlier, later in pairwise(times) if later > since), default=0.0)


Play = Callable[[Lab], Figures]
