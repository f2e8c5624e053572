"""``orbitmq group`` against a cluster on real sockets."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.sockets.conftest import Command, until

from orbitmq import ConsumeFrom, Message
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster


@pytest.fixture
def orbitmq(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    """The command in an empty folder, with that cluster as its default."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


def consume(servers: str, group: str, topic: str, count: int) -> None:
    with Consumer(group, name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        for number, message in enumerate(consumer, 1):
            if number == count:
                message.ack()
                break


def test_a_group_from_creation_to_deletion(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    orbitmq("topic", "create", "orders", "--queues", "2")
    with Producer("pg", name_servers=servers) as producer:
        for number in range(10):
            producer.send(Message("orders", b"%d" % number))
    assert "3 redeliveries" in orbitmq("group", "create", "billing", "--retries", "3")
    assert orbitmq("group", "list").split() == ["billing"]
    consume(servers, "billing", "orders", 10)
    assert "0 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")
    assert "no member is online" in orbitmq("group", "show", "billing")

    planned = orbitmq("group", "reset", "billing", "orders", "--to", "first", "--dry-run")
    assert planned.splitlines()[0].split() == ["topic", "broker", "queue", "from", "to", "change"]
    assert "0 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")
    assert "--yes" in orbitmq("group", "reset", "billing", "orders", "--to", "first", code=2)
    assert "billing-reset.json" in orbitmq("group", "reset", "billing", "orders", "--to", "first", "--yes")
    assert "10 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")
    told = json.loads(orbitmq("group", "show", "billing", "--json"))
    assert (told["lag"], told["why"]) == (10, [{"kind": "offline", "text": "no member is online"}])
    orbitmq("group", "reset", "billing", "--undo", "billing-reset.json", "--save", "other.json", "--yes")
    assert "0 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")

    moves = json.loads(orbitmq("group", "reset", "billing", "orders", "--to", "1h", "--dry-run", "--json"))
    Path("moves.json").write_text(json.dumps(moves))
    orbitmq("group", "reset", "billing", "--file", "moves.json", "--yes")
    assert "10 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")
    orbitmq("group", "clone", "billing", "copy", "--yes")
    orbitmq("group", "skip", "billing", "orders", "--yes")
    assert "0 messages behind" in orbitmq("group", "lag", "billing", "--topic", "orders")
    lag = json.loads(orbitmq("group", "lag", "copy", "-t", "orders", "--json"))
    assert lag["lag"] == sum(one["lag"] for one in lag["queues"]) == 10
    queue = ["--queue", f"{next(iter(orbitmq_cluster.brokers))}:0"]
    orbitmq("group", "reset", "billing", "orders", "--offset", "1", *queue, "--yes")
    assert "would delete group billing" in orbitmq("group", "delete", "billing", "--dry-run")
    orbitmq("group", "delete", "billing", "--offsets", "--yes")
    assert "billing" not in orbitmq("group", "list").split()


def test_members_are_shown_and_conflicts_have_an_exit_code(
    orbitmq: Command, orbitmq_cluster: RunningCluster
) -> None:
    servers = orbitmq_cluster.name_server
    orbitmq("topic", "create", "orders")
    with Consumer("g", name_servers=servers) as one, Consumer("g", name_servers=servers) as two:
        one.subscribe("orders", "a")
        two.subscribe("orders", sql="a > 1")

        def shown() -> str:
            with suppress(AssertionError):  # no conflict, as long as the broker does not know both
                return orbitmq("group", "show", "g", code=1, out=True)
            return ""

        until(lambda: "2 members online" in shown())
        text = shown()
        assert "CONFLICTS" in text
        assert "a > 1" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["reset", "g", "t"], "one of --to"),
        (["reset", "g", "--to", "first"], "a topic is needed"),
        (["reset", "g", "t", "--to", "soon"], "expected first, last, a time"),
        (["reset", "g", "t", "--offset", "3"], "belong together"),
        (["reset", "g", "t", "--offset", "3", "--queue", "x"], "BROKER:ID"),
        (["reset", "g", "--undo", "missing.json"], "missing.json"),
        (["create", "g", "--retries", "-1"], "0 or more"),
    ],
)
def test_a_wrong_command_line_is_one_line(orbitmq: Command, words: list[str], says: str) -> None:
    text = orbitmq("group", *words, code=2)
    assert says in text
    assert len(text.splitlines()) == 1


def test_a_reset_beyond_the_queue_names_its_ends(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("group", "create", "g")
    broker = json.loads(orbitmq("topic", "route", "orders", "--json"))["brokers"][0]["broker"]
    text = orbitmq(
        "group", "reset", "g", "orders", "--offset", "9", "--queue", f"{broker}:0", "--yes", code=2
    )
    assert "has the offsets 0 to 0, not 9" in text
    assert not Path("g-reset.json").exists()
