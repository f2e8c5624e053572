"""Members of a group with contradicting subscriptions: found, named, counted, and refused if the settings say
so.
"""

from __future__ import annotations

import random

import pytest

from orbitmq.broker.clients.subscriptions import Conflict, Subscriptions
from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies.client import SubscriptionData


def wants(topic: str, expression: str = "*", kind: str = "TAG", version: int = 1) -> SubscriptionData:
    tags = {tag.strip() for tag in expression.split("||")} if kind == "TAG" and expression != "*" else set()
    return SubscriptionData(topic, expression, tags, {java_hash(tag) for tag in tags}, version, kind)


@pytest.mark.behaviour("SH-01")
def test_topics_and_expressions_are_compared() -> None:
    group = Subscriptions()
    assert group.apply_heartbeat("a", "a", [wants("T", "x || y"), wants("%RETRY%g")]).conflict is None
    assert group.apply_heartbeat("b", "b", [wants("T", "y||x", version=2)]).conflict is None
    effect = group.apply_heartbeat("c", "c", [wants("T", "x")])
    assert effect.conflict == Conflict("T", "c", "x", "a", "x || y")
    assert group.apply_heartbeat("c", "c", [wants("T", "x")]).conflict is None  # a conflict is reported once
    effect = group.apply_heartbeat("c", "c", [wants("T", "x || y"), wants("U")])
    assert str(effect.conflict) == "topic U: client c wants '*', client a does not subscribe"
    assert group.conflicts() == [Conflict("U", "a", None, "c", "*")]
    assert group.apply_heartbeat("c", "c", [wants("T", "x || y", "SQL92")]).conflict is not None
    group.forget("c")
    assert group.conflicts() == []


def test_who_has_not_subscribed_yet_contradicts_nobody() -> None:
    group = Subscriptions()
    group.apply_heartbeat("a", "a", [wants("T")])
    assert group.apply_heartbeat("b", "b", [wants("%RETRY%g")]).conflict is None
    assert group.conflicts() == []
    assert group.conflict_of("c", "c", []) is None
    assert group.apply_heartbeat("b", "b", [wants("U"), wants("%RETRY%g")]).conflict is not None


def test_a_topic_stays_while_any_member_wants_it() -> None:
    group = Subscriptions()
    group.apply_heartbeat("a", "a", [wants("T"), wants("U")])
    effect = group.apply_heartbeat("b", "b", [wants("T")])
    assert not effect.topics
    assert set(group.table) == {"T", "U"}
    group.forget("a")
    assert set(group.table) == {"T"}
    group.forget("b")
    assert group.table == {}


def test_the_newest_expression_counts_and_its_change_is_told() -> None:
    group = Subscriptions()
    group.apply_heartbeat("a", "a", [wants("T", "x", version=5)])
    assert not group.apply_heartbeat("b", "b", [wants("T", "y", version=4)]).expressions
    assert group.table["T"].sub_string == "x"
    assert group.apply_heartbeat("b", "b", [wants("T", "y", version=6)]).expressions
    assert group.table["T"].sub_string == "y"


@pytest.mark.parametrize("seed", range(20))
def test_conflicts_are_there_exactly_while_members_differ(seed: int) -> None:
    choice = random.Random(seed)
    group = Subscriptions()
    book: dict[int, tuple[str, ...]] = {}
    for _ in range(300):
        member = choice.randrange(5)
        if choice.random() < 0.3:
            group.forget(member)
            book.pop(member, None)
        else:
            topics = choice.choice([("T",), ("T", "U"), ("U",)])
            group.apply_heartbeat(member, f"c{member}", [wants(topic) for topic in topics])
            book[member] = topics
        assert bool(group.conflicts()) is (len(set(book.values())) > 1)
        assert set(group.table) == {topic for topics in book.values() for topic in topics}
