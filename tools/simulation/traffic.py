"""The topics and consumer groups of a run, and which of them it does without."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

PLAIN, ORDERED, LATER, TRADES = LASTING = ("plain", "ordered", "later", "trades")
# A topic that an operator deletes and makes again.
REMADE = "remade"
TOPICS = (*LASTING, REMADE)
QUEUES = 2
# What each consumer group subscribes to.
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
# How many of the runs have all of it; each of the others is without some, drawn one by one (swarm testing):
# what only a few kinds of load together show is hidden where all of them are there, and takes longer.
ALL_OF_IT, LEFT_OUT = 0.1, 0.6


def draw_absent(dice: Random) -> frozenset[str]:
    """Which topics have no producers and which groups no members, in one run."""
    if dice.random() < ALL_OF_IT:
        return frozenset()
    parts = (*(topic for topic in TOPICS if topic != PLAIN), *SUBSCRIPTIONS)
    absent = {part for part in parts if dice.random() < LEFT_OUT}
    return frozenset(absent.union(SUBSCRIPTIONS.keys() - subscriptions(absent).keys()))


def subscriptions(absent: Collection[str]) -> dict[str, list[str]]:
    """What each group that has members subscribes to, of the topics that have producers."""
    found = {
        group: [topic for topic in topics if topic not in absent]
        for group, topics in SUBSCRIPTIONS.items()
        if group not in absent
    }
    return {group: topics for group, topics in found.items() if topics}
