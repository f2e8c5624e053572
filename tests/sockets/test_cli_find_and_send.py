"""``message find``, ``send --jsonl``, ``topic create --like`` and deletions of several topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sockets.conftest import Command, until

from orbitmq.cli.main import main
from orbitmq.testing import RunningCluster


@pytest.fixture
def orbitmq(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


def bodies(text: str) -> list[str]:
    return [one["body"] for one in json.loads(text)["messages"]]


@pytest.mark.behaviour("CS-10")
def test_messages_are_found_by_tag_and_time(orbitmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    orbitmq("topic", "create", "orders", "--queues", "2")
    for number, tag in enumerate("ABAB"):
        orbitmq("send", "orders", str(number), "--tag", tag, "--key", "k")
    stored = json.loads(orbitmq("message", "find", "orders", "--from", "1h", "--json"))
    assert [one["body"] for one in stored["messages"]] == ["0", "1", "2", "3"]
    assert stored["complete"] is True
    third = stored["messages"][2]["stored_at"]
    assert bodies(orbitmq("message", "find", "orders", "--tag", "A", "--json")) == ["0", "2"]
    assert "2" in bodies(orbitmq("message", "find", "orders", "--from", third, "--json"))
    before = bodies(orbitmq("message", "find", "orders", "--from", "1h", "--to", third, "--json"))
    assert before[:1] == ["0"]
    assert "2" not in before
    assert len(bodies(orbitmq("message", "find", "orders", "--from", "1h", "--count", "3", "--json"))) == 3
    assert "no message of orders has the tag C" in orbitmq("message", "find", "orders", "--tag", "C", code=1)
    monkeypatch.setattr("orbitmq.cli.finding.MOST_READ", 1)
    text = orbitmq("message", "find", "orders", "--from", "1h", "--json", code=1, out=True)
    assert json.loads(text)["complete"] is False
    assert "give a later --from" in orbitmq.errors


@pytest.mark.behaviour("CS-10")
def test_a_key_and_a_time_belong_together(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("send", "orders", "1", "--key", "k")

    def is_found() -> bool:
        orbitmq("send", "orders", "other", "--quiet")
        return main(["message", "find", "orders", "--key", "k", "--from", "1h"]) == 0

    until(is_found)
    assert "no message" in orbitmq("message", "find", "orders", "--key", "k", "--to", "1h", code=1)
    assert "no message" in orbitmq("message", "find", "orders", "--key", "k", "--tag", "A", code=1)


@pytest.mark.behaviour("CS-11")
def test_what_was_received_is_sent_again(orbitmq: Command, tmp_path: Path) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("send", "orders", "hello", "--tag", "A", "--key", "k", "--property", "colour=red", "--quiet")
    (tmp_path / "all.jsonl").write_text(orbitmq("receive", "orders", "--json"))
    orbitmq("topic", "create", "again", "--queues", "1")
    orbitmq("send", "again", "--file", "all.jsonl", "--jsonl", "--quiet")
    found = json.loads(orbitmq("receive", "again", "--json"))
    assert (found["body"], found["tags"], found["keys"]) == ("hello", "A", ["k"])
    assert found["properties"]["colour"] == "red"
    lines = "".join(f'{{"body": "{number}"}}\n' for number in range(20)) + "no\n"
    (tmp_path / "bad.jsonl").write_text(lines)
    assert "line 21: not JSON" in orbitmq(
        "send", "again", "--file", "bad.jsonl", "--jsonl", "--quiet", code=2
    )
    assert len(orbitmq("receive", "again", "--json").splitlines()) == 21


@pytest.mark.behaviour("CS-12")
def test_a_topic_like_another_and_several_deleted(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "3", "--attribute", "message.type=FIFO", "--order")
    orbitmq("topic", "create", "invoices", "--like", "orders")
    orbitmq("topic", "create", "bills", "--like", "orders", "--queues", "5")
    made = {one["topic"]: one for one in json.loads(orbitmq("export"))["topics"]}
    assert {**made["invoices"], "topic": ""} == {**made["orders"], "topic": ""}
    assert made["bills"]["queues"] == 5
    assert "no broker has this topic" in orbitmq("topic", "create", "x", "--like", "nosuch", code=2)
    assert "nosuch" in orbitmq("topic", "delete", "orders", "nosuch", "--yes", code=1)
    assert "would delete bills: 5 queues" in orbitmq("topic", "delete", "orders", "bills", "--dry-run")
    gone = json.loads(orbitmq("topic", "delete", "orders", "bills", "orders", "--yes", "--json"))
    assert [one["topic"] for one in gone["topics"]] == ["orders", "bills"]
    assert orbitmq("topic", "list") == "invoices\n"


@pytest.mark.behaviour("CS-12")
def test_several_groups_are_deleted_with_one_question(orbitmq: Command) -> None:
    for name in ("billing", "stock", "stays"):
        orbitmq("group", "create", name)
    assert "nosuch" in orbitmq("group", "delete", "billing", "nosuch", "--yes", code=1)
    would = orbitmq("group", "delete", "billing", "stock", "--dry-run")
    assert [line.split(",")[0] for line in would.splitlines()] == [
        "would delete group billing",
        "would delete group stock",
    ]
    assert "group billing, 0 members online; group stock" in orbitmq(
        "group", "delete", "billing", "stock", code=2
    )
    gone = json.loads(orbitmq("group", "delete", "billing", "stock", "--yes", "--json"))
    assert [one["group"] for one in gone["groups"]] == ["billing", "stock"]
    assert orbitmq("group", "list") == "stays\n"
