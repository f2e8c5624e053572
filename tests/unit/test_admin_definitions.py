"""Topics and groups as text, and the difference between two clusters in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq import ValidationError
from orbitmq.admin import Backoff, Definitions, GroupSettings, TopicSettings
from orbitmq.admin.definitions import FORMAT, as_json, changes, from_json, merged

TOPIC: dict[str, Any] = {"topic": "orders", "queues": 8}
USER = {"user": "app", "is_super": False, "is_enabled": True}
RULE = {"user": "app", "resource": "Topic:orders", "actions": ["Pub"], "sources": [], "allows": True}
GROUP: dict[str, Any] = {"group": "billing"}


def text(**parts: object) -> str:
    return json.dumps({"format": FORMAT, "topics": [], "groups": [], **parts})


@pytest.mark.behaviour("CS-04")
def test_what_is_written_is_read_again() -> None:
    definitions = Definitions(
        {"orders": TopicSettings(4, 2, True, {"message.type": "FIFO"})},
        {
            "a": GroupSettings(consume=False, orderly=True, max_retries=3, retry_delays=(1.0, 2.5)),
            "b": GroupSettings(retry_delays=Backoff(1, 60, 3), consume_timeout=120, attributes={"x": "1"}),
            "c": GroupSettings(),
        },
    )
    assert from_json(json.dumps(as_json(definitions))) == definitions
    assert from_json(text(topics=[TOPIC], groups=[GROUP])) == Definitions(
        {"orders": TopicSettings()}, {"billing": GroupSettings()}
    )


@pytest.mark.behaviour("CS-04")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no export of topics and groups"),
        ("{}", "missing required field `format`"),
        (text(offsets=[]), "unknown field `offsets`"),
        (text(topics=[{**TOPIC, "retention": 3}]), r"unknown field `retention` - at `\$.topics\[0\]`"),
        (text(groups=[{**GROUP, "retries": 3}]), r"unknown field `retries` - at `\$.groups\[0\]`"),
        (text(topics=[{**TOPIC, "queues": 0}]), "Expected `int` >= 1"),
        (text(topics=[{**TOPIC, "permission": 7}]), "Invalid enum value 7"),
        (text(topics=[TOPIC, TOPIC]), "topic orders is there twice"),
        (text(groups=[GROUP, GROUP]), "group billing is there twice"),
        (text(groups=[{**GROUP, "max_retries": -9}]), "group billing: max_retries must be"),
        (text(groups=[{**GROUP, "consume_timeout": 90}]), "group billing: consume_timeout must be whole"),
        (text(users=[USER, USER]), "user app is there twice"),
        (text(users=[{**USER, "password": "x"}]), "unknown field `password`"),
        (text(users=[USER], rules=[RULE, RULE]), "the rule of app about Topic:orders is there twice"),
        (text(rules=[RULE]), "is of app, a user that is not there"),
        (
            text(users=[USER], rules=[{**RULE, "resource": "Queue:x"}]),
            "the rule of app about Queue:x: resource is 'Queue'; expected one of",
        ),
        (text(users=[USER], rules=[{**RULE, "actions": ["Fly"]}]), "about Topic:orders: actions is 'Fly'"),
        (
            text(users=[USER], rules=[{**RULE, "sources": ["moon"]}]),
            "about Topic:orders: sourceIps is 'moon'",
        ),
        (text(format="other"), "the format is 'other'; this program reads 'orbitmq-definitions-1'"),
        (text(left_out=[{"broker": "b", "address": "h:1", "reason": "x"}]), "is not whole, b did not answer"),
    ],
)
def test_a_text_of_another_form_is_refused(content: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        from_json(content)


@pytest.mark.behaviour("CS-05")
def test_changes_in_words() -> None:
    def one(before: GroupSettings | None, to: GroupSettings, *brokers: str) -> list[str]:
        found = {} if before is None else {"billing": {"a": before}}
        return [change.text for change in changes("group", {"billing": to}, found, ["a", *brokers])]

    retries = GroupSettings(max_retries=1)
    assert one(None, GroupSettings()) == ["create group billing"]
    assert one(None, retries) == ["create group billing (retries 1, not 16)"]
    assert one(GroupSettings(), GroupSettings()) == []
    assert one(GroupSettings(), retries) == ["group billing: retries 16 -> 1"]
    assert one(retries, retries, "b") == ["group billing: also on b"]
    slow = GroupSettings(consume=False, retry_delays=(1.0, 60.0))
    assert one(GroupSettings(), slow) == ["group billing: consume yes -> no, retry delays default -> 1/60 s"]
    growing = GroupSettings(retry_delays=Backoff(1, 60, 3))
    assert one(growing, GroupSettings()) == ["group billing: retry delays 1 s x 3 up to 60 s -> default"]
    more = GroupSettings(attributes={"x": "1"})
    assert one(GroupSettings(attributes={"y": "2"}), more) == ["group billing: x (none) -> 1"]
    assert one(more, GroupSettings()) == []  # an attribute that only the cluster has remains
    [made] = changes("topic", {"orders": TopicSettings(8)}, {}, ["a"])
    assert made.text == "create topic orders (8 queues)"


@pytest.mark.behaviour("CS-04")
def test_brokers_that_differ_are_told() -> None:
    chosen, differing = merged("topic", {"t": {"a": TopicSettings(4), "b": TopicSettings(8)}})
    assert chosen == {"t": TopicSettings(8)}
    assert differing == ["topic t is different on a: queues 4 -> 8 in the export"]
