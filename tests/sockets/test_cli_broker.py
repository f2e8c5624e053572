"""``orbitmq broker list | status | config | drain`` against running brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq import ConsumeFrom
from orbitmq.cli.broker_config import masked
from orbitmq.sync import Consumer
from orbitmq.testing import RunningCluster

two_brokers = pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)


@pytest.fixture
def orbitmq(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    monkeypatch.setattr("orbitmq.cli.broker.QUIET_S", 0.2)
    return command


def writable(orbitmq: Command, topic: str) -> dict[str, bool]:
    """Whether clients send to a topic, by broker."""
    route = json.loads(orbitmq("topic", "route", topic, "--json"))
    return {one["broker"]: bool(one["permission"] & 2) for one in route["brokers"]}


@pytest.mark.behaviour("CS-08")
@two_brokers
def test_a_drained_broker_gets_no_messages_until_the_undo(
    orbitmq: Command, orbitmq_cluster: RunningCluster
) -> None:
    servers = orbitmq_cluster.name_server
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("group", "create", "billing")
    with Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        orbitmq("send", "orders", "read", "--count", "4", "--quiet")
        messages = iter(consumer)
        for _ in range(4):
            next(messages).ack()
    orbitmq("send", "orders", "unread", "--count", "4", "--quiet")
    would = orbitmq("broker", "drain", "broker-a", "--dry-run")
    assert would == "would take the write permission of broker-a\n"
    assert writable(orbitmq, "orders") == {"broker-a": True, "broker-b": True}
    assert "give --yes" in orbitmq("broker", "drain", "broker-a", code=2)
    drained = json.loads(orbitmq("broker", "drain", "broker-a", "--yes", "--json"))
    assert drained["drained"] is True
    assert [one["group"] for one in drained["readers"]] == ["billing"]
    assert drained["readers"][0]["lag"] > 0
    assert writable(orbitmq, "orders") == {"broker-a": False, "broker-b": True}
    text = orbitmq("broker", "drain", "broker-a", "--yes")
    assert "nothing comes to broker-a; 2 messages there not read by 1 group" in text
    assert "waiting until nothing came for" in orbitmq.errors
    back = orbitmq("broker", "drain", "broker-a", "--undo", "--yes")
    assert "of broker-a again" in back
    assert writable(orbitmq, "orders") == {"broker-a": True, "broker-b": True}


@pytest.mark.behaviour("CS-08")
def test_a_broker_that_still_gets_messages_is_not_drained(
    orbitmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.cli.broker.QUIET_S", 60.0)
    said = orbitmq("broker", "drain", "broker-a", "--yes", "--timeout", "1", code=1, out=True)
    assert "still got messages after 1 s; undo with: orbitmq broker drain broker-a --undo" in said
    orbitmq("broker", "drain", "broker-a", "--undo", "--yes")
    orbitmq("broker", "drain", "broker-a", "--dry-run")
    assert "broker-a is the only one of its cluster" in orbitmq.errors


@pytest.mark.behaviour("CS-09")
@two_brokers
def test_settings_are_shown_changed_and_compared(orbitmq: Command) -> None:
    assert orbitmq("broker", "config", "get", "broker-a", "brokerName") == "broker-a\n"
    assert "brokerName" in orbitmq("broker", "config", "get", "broker-a")
    wish = ["broker", "config", "set", "broker-a", "autoCreateTopicEnable=false"]
    assert "autoCreateTopicEnable" in orbitmq(*wish, "--dry-run")
    assert orbitmq("broker", "config", "get", "broker-a", "autoCreateTopicEnable") == "true\n"
    assert "give --yes" in orbitmq(*wish, code=2)
    assert "changed 1 setting" in orbitmq(*wish, "--yes")
    assert orbitmq(*wish, "--yes") == "nothing is to be changed\n"
    differing = json.loads(orbitmq("broker", "config", "diff", "broker-a", "broker-b", "--json"))["settings"]
    values = {one["key"]: one["values"] for one in differing}
    assert values["autoCreateTopicEnable"] == {"broker-a:0": "false", "broker-b:0": "true"}
    assert "brokerClusterName" not in values
    assert "brokerVersionDesc" in orbitmq("broker", "status", "broker-a")


@pytest.mark.behaviour("CS-09")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["config", "get", "broker-x"], "no broker broker-x is registered; there are: broker-a"),
        (["config", "get", "broker-a", "brokerNam"], " has no setting brokerNam: did you mean brokerName?"),
        (["config", "set", "broker-a", "brokerName"], "brokerName: expected KEY=VALUE"),
        (
            ["config", "set", "broker-a", "listenPort=1", "--yes"],
            "listenPort cannot change while the broker runs: set it in its file, and restart it",
        ),
        (["config", "set", "broker-a", "nosuch=1", "--yes"], "orbitmq broker: broker-a at 127.0.0.1:"),
        (["config", "diff", "broker-a"], "two brokers are needed to compare settings, got 1"),
        (["status", "127.0.0.1:1"], "no broker 127.0.0.1:1 is registered"),
        (["drain", "broker-x", "--yes"], "no broker broker-x is registered"),
        (["drain", "broker-a", "--timeout", "0"], "--timeout 0: expected 1 or more"),
    ],
)
def test_what_is_not_there_is_one_sentence(orbitmq: Command, words: list[str], sentence: str) -> None:
    assert sentence in orbitmq("broker", *words, code=2)


def test_secrets_are_masked() -> None:
    assert masked("innerClientAuthenticationCredentials", '{"secretKey":"s"}') == "***"
    assert masked("initAuthenticationUser", '{"password":"p"}') == "***"
    assert masked("initAuthenticationUser", "") == ""
    assert masked("brokerName", "broker-a") == "broker-a"
