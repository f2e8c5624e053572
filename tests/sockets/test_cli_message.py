"""``orbitmq message`` against a small cluster on real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.sockets.conftest import Command, until

from orbitmq import Message
from orbitmq.cli.main import main
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"mappedFileSizeCommitLog": "4194304", "traceTopicEnable": "true"}
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), settings=settings) as cluster:
        yield cluster.name_server


@pytest.fixture
def orbitmq(name_server: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command, with that cluster as its default."""
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    return command


def test_a_message_is_shown_by_both_of_its_ids(orbitmq: Command) -> None:
    sent = json.loads(orbitmq("send", "shown", "héllo", "--tag", "A", "--key", "k1", "--json"))
    by_unique_id = json.loads(orbitmq("message", "get", sent["message_id"], "-t", "shown", "--json"))
    text = orbitmq("message", "get", by_unique_id["offset_message_id"])
    assert "body         héllo\n" in text
    assert "queue        broker-a[" in text
    by_place = json.loads(orbitmq("message", "get", by_unique_id["offset_message_id"], "--json"))
    assert by_place == by_unique_id
    assert by_place["keys"] == ["k1"]


def test_messages_are_listed_by_key(orbitmq: Command) -> None:
    for body in ("one", "two"):
        orbitmq("send", "listed", body, "--key", "same", "--quiet")
    # The index takes records a moment after they are stored, and so does a new topic its route.
    until(lambda: main(["message", "find", "listed", "--key", "same", "--json"]) == 0)
    found = json.loads(orbitmq("message", "find", "listed", "--key", "same", "--json"))["messages"]
    assert {message["body"] for message in found} <= {"one", "two"}
    text = orbitmq("message", "find", "listed", "--key", "same", "-c", "1")
    assert text.splitlines()[0].split() == ["broker", "queue", "offset", "stored", "tag", "bytes", "id"]
    assert len(text.splitlines()) == 2


def test_a_trace_is_a_table_and_json(orbitmq: Command, name_server: str) -> None:
    with Producer("traced", name_servers=name_server, trace=True) as producer:
        sent = producer.send(Message("trails", b"x"))
    # The index takes records a moment after they are stored.
    until(lambda: main(["message", "trace", sent.message_id, "--json"]) == 0)
    (step,) = json.loads(orbitmq("message", "trace", sent.message_id, "--json"))["steps"]
    assert (step["kind"], step["group"], step["result"], step["topic"]) == (
        "send",
        "traced",
        "success",
        "trails",
    )
    heading, line = orbitmq("message", "trace", sent.message_id).splitlines()
    assert heading.split()[:3] == ["at", "what", "group"]
    assert line.split()[1:3] == ["send", "traced"]
    assert "there is no trace of message 4711" in orbitmq("message", "trace", "4711", code=1)


def test_nothing_found_and_wrong_input_are_one_line(orbitmq: Command) -> None:
    orbitmq("send", "empty", "x", "--quiet")
    error = orbitmq("message", "find", "empty", "--key", "none", code=1)
    assert error == "no message of empty has the key none\n"
    found = json.loads(orbitmq("message", "find", "empty", "--key", "none", "--json", code=1, out=True))
    assert (found["topic"], found["messages"], found["complete"]) == ("empty", [], True)
    assert "--count 0: expected 1 or more" in orbitmq("message", "find", "t", "-k", "x", "-c", "0", code=2)
    assert "hexadecimal digits" in orbitmq("message", "get", "4711", code=2)
    assert "unique id 4711" in orbitmq("message", "get", "4711", "--topic", "empty", code=1)
