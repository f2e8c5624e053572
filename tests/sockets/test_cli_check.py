"""``orbitmq check`` against a cluster on real sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq.testing import RunningCluster

pytestmark = pytest.mark.behaviour("CS-03")


@pytest.fixture
def check(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)  # a reset writes down where the group was
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


def lag(check: Command, warn: int, critical: int, code: int) -> str:
    limits = ["--warn", str(warn), "--critical", str(critical)]
    return check("check", "lag", "billing", *limits, code=code, out=True)


def test_lag_has_three_states(check: Command) -> None:
    check("topic", "create", "orders", "--queues", "1")
    check("group", "create", "billing")
    check("send", "orders", "hello", "--count", "12", "--quiet")
    assert lag(check, 10, 100, 0) == "OK: billing is 0 behind | lag=0;10;100\n"  # it has read nothing yet
    check("group", "reset", "billing", "orders", "--to", "first", "--yes")
    assert lag(check, 12, 100, 0) == "OK: billing is 12 behind in orders | lag=12;12;100\n"
    assert lag(check, 10, 100, 1) == "WARNING: billing is 12 behind in orders | lag=12;10;100\n"
    assert lag(check, 1, 10, 2) == "CRITICAL: billing is 12 behind in orders | lag=12;1;10\n"
    aged = check("check", "lag", "billing", "--warn", "99", "--critical", "99", "--critical-age", "3600")
    assert aged.startswith("OK: billing is 12 behind in orders, for ")
    assert " | lag=12;99;99 age=" in aged
    assert aged.endswith("s;;3600\n")
    said = check("check", "lag", "none", "--warn", "1", "--critical", "1", code=3, out=True)
    assert said.startswith("UNKNOWN: ")
    assert said.endswith("no broker has the group none\n")


def test_brokers_and_disks(check: Command) -> None:
    assert check("check", "broker") == "OK: 1 broker answers | brokers=1 silent=0\n"
    assert "TLS is off: give --ca of 'orbitmq context create' or ORBITMQ_TLS_CA" in check(
        "check", "cert", code=3, out=True
    )
    few = check("check", "broker", "--at-least", "2", code=2, out=True)
    assert few == "CRITICAL: 1 broker registered, 2 expected | brokers=1 silent=0\n"
    gone = check("check", "broker", "broker-z", code=2, out=True)
    assert gone.startswith("CRITICAL: broker-z: 0 brokers registered, 1 expected")
    used = json.loads(check("check", "disk", "--warn", "100", "--critical", "100", "--json"))
    assert used["state"] == "OK"
    assert 0 < used["figures"]["broker-a-0"] <= 100
    assert "is registered" in check("check", "disk", "broker-z", code=3, out=True)


def test_dead_letters_and_since_when(check: Command) -> None:
    assert check("check", "dlq") == "OK: 0 dead letters | letters=0;0\n"
    check("topic", "create", "%DLQ%billing", "--queues", "1")
    check("send", "%DLQ%billing", "dead", "--count", "3", "--quiet")
    said = check("check", "dlq", code=1, out=True)
    assert said.startswith("WARNING: 3 dead letters of billing, the last one at 20")
    assert said.endswith("Z | letters=3;0\n")
    assert "CRITICAL" in check("check", "dlq", "billing", "--critical", "2", code=2, out=True)
    assert "OK: 0 dead letters" in check("check", "dlq", "other")
    assert "WARNING: 3" in check("check", "dlq", "--since", "1h", code=1, out=True)
    assert "OK: 0 dead letters" in check("check", "dlq", "--since", "2100-01-01T00:00")
