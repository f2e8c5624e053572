"""``orbitmq user`` and ``orbitmq acl`` at a broker that requires keys, and at one that does not."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq.testing import running_cluster

SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret of root"}',
}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), settings=SETTINGS) as cluster:
        yield cluster.name_server


@pytest.fixture
def orbitmq(
    name_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Command
) -> Iterator[Command]:
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    monkeypatch.chdir(tmp_path)
    as_user(monkeypatch, "root", "secret of root")
    yield command
    as_user(monkeypatch, "root", "secret of root")
    if "app " in command("user", "list"):
        command("user", "delete", "app", "--yes")


def as_user(monkeypatch: pytest.MonkeyPatch, name: str, secret: str) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", name)
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", secret)


@pytest.mark.behaviour("AU-21")
def test_a_user_from_its_generated_secret_to_its_end(
    orbitmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    made, once = orbitmq("user", "create", "app", "--generate").splitlines()
    assert made == "made user app at broker-a"
    text, _, secret = once.rpartition(": ")
    assert text == "secret of app, shown once"
    assert secret not in orbitmq("user", "list")

    as_user(monkeypatch, "app", secret)
    assert "has no permission to access Topic:orders" in orbitmq("send", "orders", "x", code=1)
    as_user(monkeypatch, "root", "secret of root")
    line = orbitmq("acl", "allow", "app", "--topic", "orders*", "pub,Sub", "--group", "billing", "Sub")
    assert line.splitlines() == [
        "allowed app pub, Sub of Topic:orders* at broker-a",
        "allowed app Sub of Group:billing at broker-a",
    ]
    as_user(monkeypatch, "app", secret)
    orbitmq("send", "orders", "x", "--quiet")

    as_user(monkeypatch, "root", "secret of root")
    assert "disabled" not in orbitmq("user", "list")
    orbitmq("user", "change", "app", "--disable")
    assert "disabled" in orbitmq("user", "list")
    as_user(monkeypatch, "app", secret)
    assert "User:app is disabled." in orbitmq("send", "orders", "x", code=1)
    as_user(monkeypatch, "root", "secret of root")
    assert orbitmq("user", "delete", "app", "--dry-run") == "would delete user app with 2 rules at broker-a\n"
    assert orbitmq("user", "delete", "app", "--yes") == "deleted user app at broker-a\n"
    assert orbitmq("acl", "list").count("orders") == 0


def test_a_broker_that_refuses_is_not_called_silent(
    orbitmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a secret\n")))
    orbitmq("user", "create", "app", "--secret-file", "-")
    as_user(monkeypatch, "app", "a secret")
    table = orbitmq("broker", "list")
    assert "master, refuses" in table
    assert "does not answer" not in table
    assert "broker-a (id 0): " in orbitmq.errors
    assert "does not permit GET_BROKER_RUNTIME_INFO to 'app'" in orbitmq.errors
    said = orbitmq("check", "broker", code=3, out=True)
    assert said.startswith("UNKNOWN: broker-a (id 0) refuses: ")
    assert said.endswith(" | brokers=1 silent=0\n")
    said = orbitmq("check", "disk", code=3, out=True)
    assert said.startswith("UNKNOWN: broker-a-0 refuses")


@pytest.mark.behaviour("AZ-08")
def test_a_verdict_with_its_reason(orbitmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a secret\n")))
    orbitmq("user", "create", "app", "--secret-file", "-")
    orbitmq("acl", "allow", "app", "--topic", "orders*", "Pub", "--from", "10.0.0.0/8")
    orbitmq("acl", "deny", "app", "--topic", "orders-secret", "All")
    for words, verdict, why in (
        (["app", "pub", "Topic:orders-1", "--from", "10.1.2.3"], "allowed", "allowed by Topic:orders*"),
        (["app", "Pub", "Topic:orders-1"], "refused", "no matched policies"),
        (
            ["app", "Pub", "Topic:orders-secret", "--from", "10.1.2.3"],
            "refused",
            "denied by Topic:orders-secret",
        ),
        (["app", "Sub", "Group:billing"], "refused", "no matched policies"),
        (["root", "Delete", "Topic:x"], "allowed", "root is a super user"),
        (["nobody", "Pub", "Topic:x"], "refused", "there is no user nobody"),
    ):
        text = orbitmq("acl", "test", *words, code=int(verdict == "refused"), out=True)
        assert text.splitlines()[1].split(maxsplit=2) == ["broker-a", verdict, why], words
    assert orbitmq("acl", "delete", "app", "Topic:orders*", "--yes") == "deleted 1 rule of app at broker-a\n"
    orbitmq("user", "change", "app", "--disable")
    assert "app is disabled" in orbitmq("acl", "test", "app", "Pub", "Topic:x", code=1, out=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["user", "create", "app"], "give --generate or --secret-file"),
        (["user", "create", "app", "--generate", "--secret-file", "x"], "give one of them"),
        (["user", "create", "app", "--secret-file", "x"], "--secret-file x: No such file"),
        (["user", "create", "app", "--secret-file", "two"], "expected one line of text"),
        (["user", "create", "app", "--secret-file", "empty"], "expected one line of text"),
        (["user", "create", "app", "--secret-file", "binary"], "expected one line of text"),
        (["user", "create", "root", "--generate"], "there is a user root at broker-a"),
        (["user", "change", "root"], "nothing to change: give --generate"),
        (["user", "change", "root", "--enable", "--disable"], "--enable and --disable: give one of them"),
        (["user", "delete", "nobody", "--yes"], "no broker has a user nobody"),
        (
            ["user", "change", "nobody", "--disable"],
            "no broker has a user nobody: 'orbitmq user create nobody --generate' makes one",
        ),
        (
            ["acl", "allow", "nobody", "--topic", "x", "Pub"],
            "no broker has a user nobody: 'orbitmq user create",
        ),
        (
            ["acl", "deny", "nobody", "--topic", "x", "Pub"],
            "no broker has a user nobody: 'orbitmq user create",
        ),
        (["acl", "allow", "root"], "which resource?"),
        (["acl", "allow", "root", "--topic", "x", "Any"], "actions is 'Any'"),
        (["acl", "allow", "root", "--topic", "x*y", "Pub"], "resource is 'Topic:x*y'"),
        (
            ["acl", "allow", "root", "--topic", "x", "Pub", "--from", "here"],
            "--from here: expected an IP address",
        ),
        (["acl", "delete", "root", "--yes"], "root has no rule"),
        (["acl", "delete", "root", "Topic:x", "--yes"], "root has no rule about Topic:x"),
        (["acl", "test", "root", "Pub", "orders"], "expected Topic:name"),
        (["acl", "test", "root", "Eat", "Topic:x"], "action is 'Eat'"),
        (["acl", "test", "root", "Pub", "Dish:x"], "resource is 'Dish'"),
        (["acl", "test", "root", "Pub", "Topic:x", "--from", "here"], "--from here: expected an IP address"),
    ],
)
def test_bad_input_is_one_sentence(orbitmq: Command, words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("one\ntwo\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    line = orbitmq(*words, code=2)
    assert said in line
    assert len(line.splitlines()) == 1


@pytest.mark.behaviour("AZ-10")
def test_refusals_with_the_rule_that_is_missing(orbitmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    orbitmq("topic", "create", "invoices", "--queues", "1")
    secret = orbitmq("user", "create", "app", "--generate").split()[-1]
    as_user(monkeypatch, "app", secret)
    for _ in range(2):
        orbitmq("send", "invoices", "x", code=1)
    as_user(monkeypatch, "nobody", "pssst")
    orbitmq("user", "list", code=1)
    as_user(monkeypatch, "root", "secret of root")
    lines = orbitmq("acl", "refusals").splitlines()
    rows = [line.split() for line in lines]
    assert ["app", "no", "right", "Pub", "Topic:invoices", "127.0.0.1", "2", "broker-a"] in rows
    assert any(row[:3] == ["nobody", "wrong", "keys"] for row in rows)
    assert "allow it: orbitmq acl allow app --topic invoices Pub" in lines
    assert "pssst" not in "".join(lines)


def test_the_last_super_user_stays(orbitmq: Command) -> None:
    assert "last super user" in orbitmq("user", "delete", "root", "--yes", code=1)


def test_a_broker_that_requires_no_keys_says_so(command: Command, tmp_path: Path) -> None:
    with running_cluster(str(tmp_path)) as cluster:
        line = command("user", "list", "-n", cluster.name_server, code=1)
        said = command("acl", "refusals", "-n", cluster.name_server)
        assert said.splitlines()[-1].startswith("no refusal is reported; only OrbitMQ's servers")
    assert "not offered by this broker (code 3005)" in line
    assert len(line.splitlines()) == 1


@pytest.mark.behaviour("CS-32")
def test_mqadmin_has_its_commands_of_users_and_rules(orbitmq: Command) -> None:
    place = ["-c", "DefaultCluster"]

    def mqadmin(line: str, code: int = 0) -> list[list[str]]:
        return [one.split() for one in orbitmq("mqadmin", *line.split(), *place, code=code).splitlines()]

    (made,) = mqadmin("createUser -u app -p secret-of-app -t Normal")
    assert made[:3] == ["create", "user", "to"]
    address = made[3]
    columns = ["#UserName", "#Password", "#UserType", "#UserStatus"]
    assert mqadmin("getUser -u app") == [columns, ["app", "null", "Normal", "enable"]]
    assert mqadmin("updateUser -u app -s disable") == [["update", "user", "to", address, "success."]]
    title, row, last = mqadmin("listUser -f ap")
    assert (title, row) == (columns, ["app", "null", "Normal", "disable"])
    assert last[:3] == ["get", "user", "from"]
    assert mqadmin("getUser -u nobody") == []
    mqadmin("createAcl -s User:app -r Topic:orders,Topic:bills* -a Pub,Sub -i 10.0.0.0/8 -d Allow")
    mqadmin("updateAcl -s User:app -r Topic:orders -a Sub -d Deny")
    title, *rows = mqadmin("getAcl -s User:app")
    assert title == ["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"]
    assert ["User:app", "Custom", "Topic:bills*", "[Pub,", "Sub]", "[10.0.0.0/8]", "Allow"] in rows
    assert mqadmin("listAcl -s app")[1:] == rows
    orbitmq("mqadmin", "copyAcl", "-f", address, "-t", address, "-s", "User:app")
    assert sorted(mqadmin("getAcl -s User:app")[1:]) == sorted(rows)
    orbitmq("mqadmin", "copyUser", "-f", address, "-t", address, "-u", "app")
    assert mqadmin("deleteAcl -s User:app -r Topic:orders") == [["delete", "acl", "to", address, "success."]]
    mqadmin("deleteAcl -s User:app")
    assert mqadmin("deleteUser -u app") == [["delete", "user", "to", address, "success."]]
    assert mqadmin("updateUser -u app -p x -s enable", code=2)[0][3:5] == ["give", "one"]
