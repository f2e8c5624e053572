"""``orbitmq dlq`` against a cluster on real sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.sockets.conftest import Command, until

from orbitmq import ConsumeFrom, Message, ReceivedMessage
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.cli.main import main
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command as Request
from orbitmq.wire.refusals import error_of

REDRIVES = {RequestCode.START_REDRIVE, RequestCode.LIST_REDRIVES, RequestCode.CHANGE_REDRIVE}


@pytest.fixture
def orbitmq(orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command, with that cluster as its default."""
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


def make_dead(orbitmq: Command, servers: str, count: int) -> None:
    """Messages with the number n that group "billing" gives up at once."""
    with Producer("pg", name_servers=servers) as producer:
        for number in range(count):
            producer.send(Message("orders", b"%d" % number, properties={"n": str(number)}))
    with Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        for number, message in enumerate(consumer.messages(auto_ack=False), 1):
            message.reject()
            if number == count:
                break

    def are_dead() -> bool:
        found = json.loads(orbitmq("dlq", "list", "--json"))["groups"]
        return sum(one["count"] for one in found) == count

    until(are_dead)  # consumers send back in the background


def ended(orbitmq: Command) -> list[dict[str, Any]]:
    """The redrives, once none is running."""
    jobs: list[dict[str, Any]] = []

    def none_runs() -> bool:
        jobs[:] = json.loads(orbitmq("dlq", "status", "--json"))["jobs"]
        return all(job["state"] != "running" for job in jobs)

    until(none_runs)
    return jobs


@pytest.mark.behaviour("DQ-13")
@pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)
def test_brokers_without_redrives_are_said_to_have_none(
    orbitmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's brokers do not know the requests; beside one of OrbitMQ's they are passed over."""
    ask, ours = ClusterClient.ask, set[str]()

    async def apache(cluster: ClusterClient, address: str, command: Request, **options: Any) -> Request:
        if command.code in REDRIVES and address not in ours:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            raise error_of(
                command, Request(code, remark=f" request type {command.code} not supported"), address
            )
        return await ask(cluster, address, command, **options)

    monkeypatch.setattr(ClusterClient, "ask", apache)
    for words in (["status"], ["status", "billing"], ["pause", "billing"], ["resume", "b"], ["stop", "b"]):
        said = orbitmq("dlq", *words, code=1)
        assert "not offered by this broker (code 31002); 'orbitmq spark redrive' sends" in said
    ours.add(json.loads(orbitmq("broker", "list", "--json"))["brokers"][0]["address"])
    assert json.loads(orbitmq("dlq", "status", "--json")) == {"jobs": [], "left_out": []}
    assert "no redrive of group b is under way" in orbitmq("dlq", "pause", "b", code=1)


@pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)
def test_dead_letters_are_seen_and_come_back(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    orbitmq("topic", "create", "orders", "--queues", "2")
    make_dead(orbitmq, servers, 12)
    (listed,) = json.loads(orbitmq("dlq", "list", "--json"))["groups"]
    assert (listed["group"], listed["count"]) == ("billing", 12)
    assert set(listed["brokers"]) == set(orbitmq_cluster.brokers)
    assert "billing" in orbitmq("dlq", "list")

    shown = orbitmq("dlq", "show", "billing", "--count", "5").splitlines()
    assert len(shown) == 6
    assert " orders " in shown[1]
    lines = orbitmq("dlq", "export", "billing", "--sql", "n >= 3 AND n < 6").splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == ["3", "4", "5"]
    assert orbitmq("dlq", "export", "billing", "--to", "1h") == ""
    assert len(orbitmq("dlq", "export", "billing", "--from", "1h", "--to", "2099-01-01").splitlines()) == 12

    counted = json.loads(orbitmq("dlq", "redrive", "billing", "--dry-run", "--sql", "n < 4", "--json"))
    assert sum(job["sent"] for job in counted["jobs"]) == 4
    assert ended(orbitmq) == []
    assert "running" in orbitmq("dlq", "redrive", "billing", "--rate", "2000/s", "--sql", "n < 4")
    assert sum(job["sent"] for job in ended(orbitmq)) == 4
    orbitmq("dlq", "redrive", "billing")
    jobs = ended(orbitmq)
    assert sum(job["sent"] for job in jobs) == 8
    assert sum(job["passed_over"] for job in jobs) == 4
    assert "done" in orbitmq("dlq", "status", "billing")
    again: list[ReceivedMessage] = []
    with Consumer("billing", name_servers=servers) as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            # One whose offset was not committed before may come once more.
            again += [message] if "DLQ_REDRIVE_ID" in message.properties else []
            if len(again) == 12:
                break
    assert sorted(int(message.body) for message in again) == list(range(12))
    assert {message.reconsume_times for message in again} == {0}


def test_a_slow_redrive_is_paused_resumed_and_stopped(
    orbitmq: Command, orbitmq_cluster: RunningCluster
) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    make_dead(orbitmq, orbitmq_cluster.name_server, 30)
    orbitmq("dlq", "redrive", "billing", "--rate", "5")
    assert "stop it first" in orbitmq("dlq", "redrive", "billing", code=1)
    assert "paused" in orbitmq("dlq", "pause", "billing")
    assert "running" in orbitmq("dlq", "resume", "billing")
    assert "stopped" in orbitmq("dlq", "stop", "billing")
    assert "no redrive of group billing is under way" in orbitmq("dlq", "stop", "billing", code=1)


@pytest.mark.behaviour("CS-19")
@pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)
def test_chosen_dead_letters_are_sent_again_and_no_others(
    orbitmq: Command, orbitmq_cluster: RunningCluster
) -> None:
    orbitmq("topic", "create", "orders", "--queues", "2")
    orbitmq("topic", "create", "repaired", "--queues", "1")
    make_dead(orbitmq, orbitmq_cluster.name_server, 6)
    letters = json.loads(orbitmq("dlq", "show", "billing", "--json"))["messages"]
    by_body = {one["body"]: one for one in letters}
    redrive = ["dlq", "redrive", "billing", "--to-topic", "repaired", "--json"]
    chosen = ["--id", by_body["1"]["message_id"], "--id", by_body["4"]["offset_message_id"]]
    # The index has a message a moment after it is stored.
    until(lambda: main([*redrive, *chosen, "--dry-run"]) == 0)
    counted = json.loads(orbitmq(*redrive, *chosen, "--dry-run"))
    assert sum(job["sent"] for job in counted["jobs"]) == 2
    orbitmq(*redrive, *chosen)
    assert sum(job["sent"] for job in ended(orbitmq)) == 2
    lines = orbitmq("receive", "repaired", "--json").splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == ["1", "4"]
    none = "F" * 32
    text = orbitmq("dlq", "redrive", "billing", "--id", none, code=1)
    assert f"--id {none}: group billing has no such dead letter" in text
    sent = json.loads(orbitmq("send", "orders", "alive", "--json"))
    text = orbitmq("dlq", "redrive", "billing", "--id", sent["offset_message_id"], code=1)
    assert "this message is in topic orders, no dead letter" in text
    assert "group nosuch has no dead letters" in orbitmq("dlq", "redrive", "nosuch", "--id", none, code=1)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["redrive", "billing", "--rate", "0"], 2, "1 or more"),
        (["redrive", "billing", "--rate", "fast"], 2, "as 500 or 500/s"),
        (["redrive", "billing", "--from", "soon"], 2, "expected a time"),
        (["redrive", "billing"], 1, "group billing has no dead letters"),
        (["pause", "billing"], 1, "no redrive of group billing is under way"),
        (["show", "billing", "--count", "0"], 2, "1 or more"),
        (["show", "nosuch"], 1, "group nosuch has no dead letters (topic '%DLQ%nosuch' is unknown"),
        (["list", "-n", ""], 2, "no name server is given"),
    ],
)
def test_what_cannot_be_is_one_line(orbitmq: Command, words: list[str], code: int, says: str) -> None:
    text = orbitmq("dlq", *words, code=code)
    assert says in text
    assert len(text.splitlines()) == 1
