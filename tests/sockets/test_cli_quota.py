"""``orbitmq quota`` at a broker that requires keys: quotas of users, topics, addresses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from tests.sockets.conftest import Command
from tests.sockets.test_cli_access import SETTINGS, as_user

from orbitmq import Credentials, Message
from orbitmq.sync import Producer
from orbitmq.testing import running_cluster


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), settings=SETTINGS) as cluster:
        yield cluster.name_server


@pytest.fixture
def orbitmq(name_server: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    as_user(monkeypatch, "root", "secret of root")
    return command


@pytest.mark.behaviour("LM-07")
def test_a_quota_of_a_user_from_its_beginning_to_its_end(
    orbitmq: Command, name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    secret = orbitmq("user", "create", "app", "--generate").split(": ")[-1].strip()
    orbitmq("acl", "allow", "app", "--topic", "orders", "Pub")
    line = orbitmq("quota", "set", "--user", "app", "--in", "2msg/s", "--in", "1MB/s", "--out", "20KiB/s")
    assert line == "user app has a quota at broker-a\n"
    as_user(monkeypatch, "app", secret)
    begin = time.monotonic()
    with Producer("shop", name_servers=name_server, credentials=Credentials("app", secret)) as producer:
        for _ in range(6):
            assert producer.send(Message("orders", b"x")).status.name == "SEND_OK"
    # Two at once, then two a second: the sixth is read after 1.5 s.
    assert time.monotonic() - begin >= 1.4
    assert "is theirs" in orbitmq("quota", "list", code=1)
    as_user(monkeypatch, "root", "secret of root")
    [quota] = json.loads(orbitmq("quota", "list", "--json"))["quotas"]
    assert quota.pop("pauses_in") >= 1
    assert quota.pop("pauses_out") == 0
    assert quota == {
        "kind": "user",
        "name": "app",
        "bytes_in": 1_000_000,
        "messages_in": 2,
        "bytes_out": 20_480,
        "messages_out": 0,
        "broker": "broker-a",
    }
    assert orbitmq("quota", "delete", "--user", "app") == "user app has no quota at broker-a\n"
    assert json.loads(orbitmq("quota", "list", "--json"))["quotas"] == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["set", "--in", "1MB/s"], "give one of --user, --address and --topic"),
        (["set", "--user", "a", "--topic", "b", "--in", "1MB/s"], "give one of"),
        (["set", "--user", "a"], "give --in or --out"),
        (["set", "--user", "a", "--in", "fast"], "--in fast: expected as 20MB/s"),
        (["set", "--user", "a", "--in", "20MB"], "--in 20MB: expected as 20MB/s"),
        (["set", "--user", "a", "--in", "0B/s"], "--in 0B/s: expected as 20MB/s"),
        (["set", "--user", "a", "--out", "1B/s", "--out", "2B/s"], "bytes a second are given twice"),
    ],
)
def test_options_that_cannot_be_right(orbitmq: Command, words: list[str], text: str) -> None:
    assert text in orbitmq("quota", *words, code=2)


def test_an_address_that_is_none_is_refused_by_the_broker(orbitmq: Command) -> None:
    assert "expected an IP address" in orbitmq("quota", "set", "--address", "here", "--in", "1B/s", code=1)
