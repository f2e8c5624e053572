"""The topics and consumer groups of a run, and the ones that are left out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

PLAIN, ORDERED, LATER, TRADES = LASTING = ("plain", "ordered", "later", "trades")
# A topic that an operator deletes and creates again.
REMADE = "remade"
TOPICS = (*LASTING, REMADE)
QUEUES = 2
# The consumer groups; below the topics that each subscribes to.
PUSH_GROUP, ORDERED_GROUP, POP_GROUP, FIFO_GROUP = "push", "in-order", "pop", "pop-in-order"
POPPING_GROUPS = (POP_GROUP, FIFO_GROUP)
# A group that an operator moves back; in every second run it pops.
MOVED_GROUP = "moved"
PULLING_GROUPS = (PUSH_GROUP, ORDERED_GROUP, MOVED_GROUP)
SUBSCRIPTIONS: Mapping[str, tuple[str, ...]] = {
    PUSH_GROUP: TOPICS,
    ORDERED_GROUP: (ORDERED,),
    POP_GROUP: (PLAIN, LATER, REMADE),
    FIFO_GROUP: (ORDERED,),
    MOVED_GROUP: (PLAIN,),
}
# The share of runs with all topics and groups. Every other run lacks some, drawn one by one (swarm testing):
# bugs that only a few kinds of load together show are hidden, and take longer, if all kinds are present.
ALL_OF_IT, LEFT_OUT = 0.1, 0.6


def draw_absent(dice: Random) -> frozenset[str]:
    """The topics without producers, and the groups without members, in one run."""
    if dice.random() < ALL_OF_IT:
        return frozenset()
    parts = (*(topic for topic in TOPICS if topic != PLAIN), *SUBSCRIPTIONS)
    absent = {part for part in parts if dice.random() < LEFT_OUT}
    return frozenset(absent.union(SUBSCRIPTIONS.keys() - subscriptions(absent).keys()))


def subscriptions(absent: Collection[str]) -> dict[str, list[str]]:
    """For each group with members, its subscribed topics that have producers."""
    found = {
        group: [topic for topic in topics if topic not in absent]
        for group, topics in SUBSCRIPTIONS.items()
        if group not in absent
    }
    return {group: topics for group, topics in found.items() if topics}
