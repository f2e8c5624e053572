"""The way of a broker from isolation into service, step by step (BrokerPreOnlineService, rows PO-04..13).

Pure: the outcome of a step goes in, the next step comes out. A master visits each member in the order of
their ids: it copies the part of the member's log that it lacks, makes the member step down and follow, and
takes its tables. A slave connects to its master first. Every step has a limited number of tries; a broker
that could not complete them serves all the same, and logs a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.message.reserved import MASTER_ID

MAX_TRIES = 3


class Step(Enum):
    """The steps of a broker in pre-online.

    Attributes:
        LOOK: wait until the name servers have shown the members.
        COMPARE: ask the member where its log ends.
        COPY_BACK: copy the tail of the member's log.
        ANNOUNCE: tell the member that its master is back; a member that leads stops, then answers.
        LINK: wait until the member copies this broker's log.
        TAKE: take back the tables.
        FOLLOW: connect to the master.
        SERVE: go online.
    """

    LOOK = "look"
    COMPARE = "compare logs"
    COPY_BACK = "copy the tail back"
    ANNOUNCE = "announce"
    LINK = "wait for its link"
    TAKE = "take its tables"
    FOLLOW = "follow the master"
    SERVE = "serve"


@dataclass(frozen=True, slots=True)
class Task:
    """A step, with the member that it concerns; LOOK and SERVE concern none."""

    step: Step
    broker_id: int = -1
    address: str = ""


@dataclass(slots=True)
class Outcome:
    """How a step ended.

    Attributes:
        done: whether the step need not be tried again.
        log_end: with COMPARE, the end of the member's log, if the member sends it. With COPY_BACK, the end up
            to which the member's whole records have been copied.
        consent: with ANNOUNCE, whether the member answered that it does not lead; RocketMQ's brokers never
            do.
    """

    done: bool
    log_end: int | None = None
    consent: bool = False


@dataclass(slots=True)
class _Member:
    broker_id: int
    address: str
    at: Step = Step.COMPARE
    tries: int = 0
    rounds: int = 0
    copied_to: int = 0
    consents: bool = False
    announced_s: float = 0.0
    asked_again: int = 0
    given_up: bool = False
    finished: bool = False


class PreOnlinePlan:
    """One broker's way into service.

    Attributes:
        left_out: the steps that could not be done, in words.
    """

    def __init__(self, broker_id: int) -> None:
        self._id = broker_id
        self._members: dict[int, _Member] = {}
        self._follow_tries = 0
        self._following = False
        self.left_out: list[str] = []

    def next(self, members: Mapping[int, str] | None) -> Task:
        """The next task. ``members`` are the other living members by id, ``None``: not known yet."""
        if members is None:
            return Task(Step.LOOK)
        if self._id != MASTER_ID:
            return self._next_of_slave(members)
        for broker_id, address in sorted(members.items()):
            member = self._members.get(broker_id)
            if member is None or member.address != address:
                member = self._members[broker_id] = _Member(broker_id, address)
            if not member.finished:
                return Task(member.at, broker_id, address)
        return Task(Step.SERVE)

    @property
    def silent(self) -> dict[int, str]:
        """The members that did not agree that this broker leads.

        A member that disappeared meanwhile may still lead where the name servers do not see it.
        """
        return {number: member.address for number, member in self._members.items() if not member.consents}

    def _next_of_slave(self, members: Mapping[int, str]) -> Task:
        master = members.get(MASTER_ID)
        if master is None or self._following or self._follow_tries >= MAX_TRIES:
            return Task(Step.SERVE)
        return Task(Step.FOLLOW, MASTER_ID, master)

    def ask_again(self, since_s: float) -> bool:
        """Announce this broker again to members that consented before ``since_s``; returns whether there are
        any.

        A member that restarted since, or waited long enough, may lead again. A member that had to be asked
        too often counts as one that did not agree.
        """
        old = [one for one in self._members.values() if one.consents and one.announced_s < since_s]
        for member in old:
            member.consents = False
            member.asked_again += 1
            if member.asked_again <= MAX_TRIES:
                member.at, member.finished = Step.ANNOUNCE, False
        return bool(old)

    def ended(self, task: Task, outcome: Outcome, log_end: int, now_s: float) -> None:
        """Note how a task ended at ``now_s``; ``log_end`` is the end of this broker's own log now."""
        if task.step is Step.FOLLOW:
            self._following = outcome.done
            self._follow_tries += 1
            if not outcome.done and self._follow_tries >= MAX_TRIES:
                self.left_out.append(f"the link to the master at {task.address}")
            return
        member = self._members.get(task.broker_id)
        if member is None or member.address != task.address:
            return
        if not outcome.done:
            if member.at in (Step.LINK, Step.TAKE) and not member.given_up:
                member.rounds += 1
                if member.rounds < MAX_TRIES:
                    member.at = Step.ANNOUNCE  # a restarted process has not received the announcement
                    return
            else:
                member.tries += 1
                if member.tries < MAX_TRIES:
                    return
            self.left_out.append(f"{task.step.value}: broker id {task.broker_id} at {task.address}")
            member.given_up = member.at in (Step.LINK, Step.TAKE)
        member.tries = 0
        member.announced_s = now_s if member.at is Step.ANNOUNCE else member.announced_s
        if not outcome.done and member.at in (Step.COMPARE, Step.ANNOUNCE):
            member.finished = True  # the member does not answer
        else:
            self._advance(member, outcome, log_end)

    @staticmethod
    def _advance(member: _Member, outcome: Outcome, log_end: int) -> None:
        longer = (outcome.log_end or 0) > max(log_end, member.copied_to)
        if member.at is Step.COMPARE and longer:
            member.at = Step.COPY_BACK
        elif member.at is Step.COPY_BACK and outcome.done:
            member.copied_to = outcome.log_end or 0
            member.at = Step.COMPARE  # the member may have received more messages meanwhile
        elif member.at in (Step.COMPARE, Step.COPY_BACK):
            member.at = Step.ANNOUNCE
        elif member.at is Step.ANNOUNCE:
            member.consents = outcome.consent
            member.at = Step.LINK
            # All tries over this member's link failed, so another one would fail too.
            member.finished = member.given_up
        elif member.at is Step.LINK:
            member.at = Step.TAKE
        else:
            member.finished = True
