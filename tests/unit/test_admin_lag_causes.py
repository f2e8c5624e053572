"""The reasons why a group is behind, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitmq.admin import Conflict, GroupDetails, GroupSettings, Member, QueueLag, Subscription
from orbitmq.admin.lag_causes import Holder, report
from orbitmq.message.model import MessageQueue

pytestmark = pytest.mark.behaviour("CS-07")

MEMBER = Member("app-7", "10.0.0.9:51234", "JAVA", 479)
DETAILS = GroupDetails(
    "billing", {"broker-a": GroupSettings()}, [MEMBER], {"orders": Subscription("TAG", "*")}, [], 0
)


def lag(queue_id: int, behind: int, topic: str = "orders", age: float = 41.0) -> QueueLag:
    return QueueLag(MessageQueue(topic, "broker-a", queue_id), 100, 100 + behind, 0, age if behind else 0.0)


ONE_QUEUE = [lag(0, 10), lag(1, 7), lag(3, 1190)]
EVEN = [lag(0, 10), lag(1, 10), lag(2, 9), lag(3, 8)]


def why(
    details: GroupDetails, lags: list[QueueLag], holder: Holder | None = None, unread: bool = False
) -> str:
    return report(details, lags, holder, unread=unread).text


def test_a_group_that_is_not_behind() -> None:
    assert why(DETAILS, [lag(0, 0)]) == why(DETAILS, []) == "billing is not behind."


def test_the_member_of_the_one_queue_is_named_with_what_it_does() -> None:
    begin = "billing is 1,207 behind, 41 s. 1,190 of them in orders, queue broker-a:3"
    assert why(DETAILS, ONE_QUEUE) == f"{begin}."
    assert why(DETAILS, ONE_QUEUE, unread=True) == f"{begin}, which no member reads."
    stands = Holder(MEMBER, 32, False, False, 1.0)
    who = "whose member app-7 at 10.0.0.9"
    assert why(DETAILS, ONE_QUEUE, stands) == f"{begin}, {who} has 32 in hand and finished none in 1 s."
    moves = replace(stands, moved=True)
    assert why(DETAILS, ONE_QUEUE, moves) == f"{begin}, {who} has 32 in hand and works on them."
    idle = replace(stands, in_hand=0)
    assert why(DETAILS, ONE_QUEUE, idle) == f"{begin}, {who} has none of them in hand."
    done = replace(idle, done=True)
    soon = "which its member app-7 at 10.0.0.9 has done and commits soon"
    assert why(DETAILS, ONE_QUEUE, done) == f"{begin}, {soon}."
    named = replace(idle, member=replace(MEMBER, client_id="10.0.0.9@17#1"))
    assert "whose member 10.0.0.9@17#1 has none" in why(DETAILS, ONE_QUEUE, named)


def test_too_few_members_and_too_few_queues() -> None:
    begin = "billing is 37 behind, 41 s. "
    few = "The 4 queues of orders are shared by 1 member: up to 3 more can help."
    assert why(DETAILS, EVEN) == begin + few
    all_taken = replace(DETAILS, members=[MEMBER] * 4)
    popping = replace(DETAILS, consume_type="CONSUME_POP")
    assert why(popping, EVEN) == begin.rstrip()
    each = "Each of the 4 queues of orders has a member of its own: more members do not help, more queues do."
    assert why(all_taken, EVEN) == begin + each


def test_nobody_is_online_or_may_consume() -> None:
    gone = replace(DETAILS, members=[], subscriptions={})
    assert why(gone, EVEN) == "billing is 37 behind, 41 s. No member is online."
    off = replace(gone, settings={"broker-a": GroupSettings(consume=False)})
    says = "Consuming is switched off on broker-a. No member is online."
    assert why(off, EVEN) == f"billing is 37 behind, 41 s. {says}"


def test_a_conflict_comes_before_the_queues() -> None:
    conflict = Conflict("orders", "app-7", "a", "app-8", "b")
    found = report(replace(DETAILS, conflicts=[conflict]), EVEN, None, unread=False)
    kinds = [one.kind for one in found.causes]
    assert kinds == ["conflict", "few members"]
