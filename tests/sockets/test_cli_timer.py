"""``orbitmq timer`` against a small cluster on real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.sockets.conftest import Command, until

from orbitmq.cli.main import main
from orbitmq.testing import running_cluster


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"mappedFileSizeCommitLog": "4194304", "recallMessageEnable": "true"}
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), settings=settings) as cluster:
        yield cluster.name_server


@pytest.fixture
def orbitmq(name_server: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command, with that cluster as its default."""
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    return command


def shown(orbitmq: Command, message_id: str) -> dict[str, str]:
    """The message, as soon as the index has it."""
    until(lambda: main(["timer", "show", message_id, "--json"]) == 0)
    found: dict[str, str] = json.loads(orbitmq("timer", "show", message_id, "--json"))
    return found


def test_a_timer_from_its_send_to_its_recall(orbitmq: Command) -> None:
    sent = [
        json.loads(orbitmq("send", "later", f"héllo {number}", "--delay", "3600", "--json"))
        for number in range(3)
    ]
    [broker] = json.loads(orbitmq("timer", "list", "--json"))["brokers"]
    assert (broker["waiting"], broker["topics"], broker["oldest_late"]) == (3, {"later": 3}, None)
    assert sum(broker["minutes"].values()) == 3
    text = orbitmq("timer", "list", "--minutes", "1")
    assert "broker-a  later        3\n" in text
    assert "due in minute" in text

    found = shown(orbitmq, sent[0]["message_id"])
    assert (found["topic"], found["state"], found["body"]) == ("later", "waiting", "héllo 0")
    assert found["recall_handle"] == sent[0]["recall_handle"]
    lines = orbitmq("timer", "show", sent[0]["message_id"]).splitlines()
    assert lines[6:8] == ["tags           -", "keys           -"]
    error = orbitmq("timer", "cancel", sent[0]["message_id"], code=2)
    assert "--yes" in error
    text = orbitmq("timer", "cancel", sent[0]["message_id"], "--yes")
    assert text == f"recalled {sent[0]['message_id']}\n"
    error = orbitmq("timer", "cancel", sent[0]["recall_handle"], "--yes", code=1)
    assert "recalled already" in error
    json.loads(orbitmq("timer", "cancel", sent[1]["recall_handle"], "--yes", "--json"))
    [broker] = json.loads(orbitmq("timer", "list", "--json"))["brokers"]
    assert broker["topics"] == {"later": 1}
    orbitmq("timer", "cancel", sent[2]["message_id"], "--yes")
    [broker] = json.loads(orbitmq("timer", "list", "--json"))["brokers"]
    assert (broker["waiting"], broker["topics"], broker["minutes"]) == (0, {}, {})


def test_what_is_delivered_is_shown_as_that(orbitmq: Command) -> None:
    sent = json.loads(orbitmq("send", "soon", "x", "--delay", "0.3", "--json"))
    until(lambda: shown(orbitmq, sent["message_id"])["state"] == "delivered")
    error = orbitmq("timer", "cancel", sent["message_id"], "--yes", code=1)
    assert "timestamp invalid: its message was delivered" in error


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["show", "4711"], 1, "no broker has a message 4711"),
        (["cancel", "4711", "--yes"], 1, "no broker has a message 4711"),
        (["list", "--minutes", "0"], 2, "--minutes 0"),
    ],
)
def test_nothing_found_and_wrong_input_are_one_line(
    orbitmq: Command, words: list[str], code: int, says: str
) -> None:
    error = orbitmq("timer", *words, code=code)
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("delay", ["0", "-1", "soon", "259201"])
def test_a_delay_that_cannot_be(orbitmq: Command, delay: str) -> None:
    error = orbitmq("send", "later", "x", f"--delay={delay}", code=1 if delay == "259201" else 2)
    assert error.count("\n") == 1
