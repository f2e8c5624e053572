"""Counts what the checkers excuse: by rule and cause, out of the number of judgements.

A rule that excuses much can hide bugs. Therefore each rule has a limit here, with the reason, and has to be
used at least once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.simulation.plan import Fault

# The limits apply from this many seeds on: with fewer seeds some rules are used often and others never.
ENOUGH_SEEDS = 300
# The cause if a rule applies without a fault of the plan.
NO_FAULT = "no fault"


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason for which a checker excuses something.

    Attributes:
        most: the share of the checker's judgements that the rule may cover.
        why: the reason for this limit.
        seldom: the reason why the rule may stay unused in :data:`ENOUGH_SEEDS` seeds, in which fewer than ten
            uses are expected; empty if it must be used.
    """

    most: float
    why: str
    seldom: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of one rule.

    Attributes:
        causes: the number of judgements that the rule covers, by cause: a kind of fault, or :data:`NO_FAULT`.
        hidden: the number of these that would have been broken promises.
    """

    judged: int
    causes: Mapping[str, int]
    hidden: int

    @property
    def covered(self) -> int:
        return sum(self.causes.values())

    @property
    def share(self) -> float:
        return self.covered / self.judged if self.judged else 0.0


# The rules by name.
RULES: Mapping[str, Rule] = {
    # checks.lost, out of all acknowledged messages
    "lost": Rule(0.01, "the mode lets a master forget it, and its group's log began without it"),
    "expired unread": Rule(0.02, "faults left no time to read it, or took earlier messages from its queue"),
    # checks.missed, out of all stored messages, for each group
    "skipped": Rule(0.01, "the group had read to behind this offset when the queue lost its end"),
    "copy forgotten": Rule(0.03, "it failed, and the log that had its second copy lost its end"),
    "topic made again": Rule(
        0.3,
        "the group had read the old topic to behind this offset, and a fault hid that it was deleted; "
        "one topic of a run has a dozen messages, and its deletion waits until most faults are over",
    ),
    # checks.recalled, out of all recalled timers
    "recall forgotten": Rule(0.06, "the timer was due, or the broker that took over did not have the recall"),
    # again.twice, out of all stored messages
    "brought back": Rule(
        0.002,
        "a slave brought it to the other group, and one that acted there brought it back",
        seldom="slaves of both groups have to act while one message waits",
    ),
    "delivery lacked": Rule(
        0.002,
        "a slave acted without the end of the log where it was delivered",
        seldom="a master has to be lost within the milliseconds in which its slave has not copied a delivery",
    ),
    "delivery forgotten": Rule(
        0.002,
        "the broker that took over did not know what an acting slave had done",
        seldom="a slave has to act, to deliver, and to be lost or cut off before its master is back",
    ),
    "roll lacked": Rule(
        0.002,
        "a slave acted without the record by which a long timer waited on",
        seldom="one of the few long timers has to be stored again right before its master is lost",
    ),
    "answer lost": Rule(
        0.002,
        "an acting slave did not get the answer of the other group",
        seldom="the link has to break within the milliseconds of a hand-over",
    ),
    # once.handled_again, out of all messages that push groups got
    "handled again": Rule(
        0.05, "a fault met its queue's broker or a member, or queues moved and it was not committed yet"
    ),
    # again.transactions, out of all outcomes that producers sent
    "end forgotten": Rule(0.03, "a fault at producer or broker, or the next leader lacked the end"),
    # pops.done_again, out of all messages that were given out
    "acknowledgement forgotten": Rule(0.01, "the next leader had not received it yet"),
    "brought twice": Rule(
        0.005,
        "an acting slave brought a failed message to another group, twice or beside its master's copy",
        seldom="the message has to fail right before a takeover by a slave that is lost too",
    ),
    "deleted by some": Rule(
        0.005,
        "a topic was deleted by some brokers and not yet by others",
        seldom="a member has to pop in the midst of one deletion",
    ),
    # pops.dealt_too_soon, out of all pops in order
    "order forgotten": Rule(
        0.01,
        "the next leader had not received it yet",
        seldom="the next leader has to be asked for the queue within the invisible time",
    ),
    # moves.moved, out of all messages after each offset to which a group was moved
    "move forgotten": Rule(
        0.2,
        "the next leader had not received it yet; one such move covers all messages behind its place",
    ),
    "late commit": Rule(
        0.1,
        "a member's commit from before the reset came behind it, over a link with a fault",
    ),
    "commit forgotten": Rule(
        0.01,
        "the next leader did not know the commit behind the place",
        seldom="a member has to return right after its commit",
    ),
    # moves.settings and moves.deleted, out of all changes, and out of all messages of a topic that was
    # created again
    "setting forgotten": Rule(0.25, "the next leader lacked it; a run has two or three changes"),
    "deletion forgotten": Rule(0.3, "the next leader lacked it; a run has one deletion"),
    "late send": Rule(
        0.01,
        "its producer was not answered, and the network brought it when the topic was new",
        seldom="a request has to be held up for longer than its producer waits",
    ),
    # run, out of all queues and all keys of tables of each slave
    "deletion undone": Rule(
        0.02,
        "a log that was copied back, or read anew, has messages of before the deletion",
    ),
    "slave ahead": Rule(
        0.005,
        "a member committed at a slave that had acted, by its old address",
        seldom="the member's last commit has to go to that slave",
    ),
    "level of a slave": Rule(0.005, "a slave's settings had another delay level than its master's"),
    # watch, out of all logged errors, and out of all looks at what slaves have set aside
    "disk error": Rule(
        0.01, "the disk of that machine fails", seldom="brokers expect most of these errors, and log no trace"
    ),
    "set aside again": Rule(
        1.0,
        "its master forgot the end of its log, or the slave ended between setting aside and cutting",
        seldom="counted only where something is aside, which few runs have",
    ),
}


class Excuses:
    """The excuses of one run's checkers. An item that a rule judges several times counts once."""

    def __init__(self) -> None:
        self._judged: dict[str, set[Hashable]] = defaultdict(set)
        self._covered: dict[str, dict[Hashable, tuple[str, bool]]] = defaultdict(dict)

    def judged(self, rule: str, subject: Hashable) -> None:
        """Count one judgement that needed no rule."""
        self._judged[rule].add(subject)

    def covers(self, rule: str, subject: Hashable, cause: str, *, wrong: bool = True) -> bool:
        """Count one judgement; returns whether the rule excuses it.

        Args:
            cause: why the rule applies; empty if it does not.
            wrong: whether it would be a broken promise without the rule.
        """
        assert rule in RULES, rule
        self._judged[rule].add(subject)
        if cause:
            self._covered[rule][subject] = cause, wrong
        else:
            self._covered[rule].pop(subject, None)
        return bool(cause)

    def counts(self) -> dict[str, Count]:
        """The counts, by rule."""
        found: dict[str, Count] = {}
        for rule, subjects in self._judged.items():
            covered = self._covered[rule].values()
            causes = Counter(cause for cause, _ in covered)
            found[rule] = Count(len(subjects), dict(causes), sum(wrong for _, wrong in covered))
        return found


def added(counts: Iterable[Mapping[str, Count]]) -> dict[str, Count]:
    """The counts of several runs."""
    judged, hidden = Counter[str](), Counter[str]()
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for each in counts:
        for rule, count in each.items():
            judged[rule] += count.judged
            hidden[rule] += count.hidden
            causes[rule].update(count.causes)
    return {rule: Count(judged[rule], dict(causes[rule]), hidden[rule]) for rule in RULES if rule in judged}


def too_wide(counts: Mapping[str, Count]) -> Iterator[str]:
    """The rules that cover too much, or nothing, after at least :data:`ENOUGH_SEEDS` seeds."""
    for name, rule in RULES.items():
        count = counts.get(name, Count(0, {}, 0))
        if count.share > rule.most:
            yield f"rule '{name}' covers {count.share:.1%} of its judgements, at most {rule.most:.1%} may be"
        if not count.covered and not rule.seldom:
            yield f"rule '{name}' covers nothing: remove it, or say in RULES why it is needed so seldom"


def first(faults: Iterable[Fault]) -> str:
    """The kind of the first of these faults, as a cause; empty if there are no faults."""
    return next((fault.kind.value for fault in faults), "")
