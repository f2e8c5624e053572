"""``orbitmq top`` against a cluster on real sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from tests.sockets.conftest import Command

from orbitmq import ConsumeFrom
from orbitmq.sync import Consumer
from orbitmq.testing import RunningCluster


@pytest.fixture
def orbitmq(orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


@pytest.mark.behaviour("CS-28")
@pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)
def test_lags_of_all_brokers_are_shown_until_ctrl_c(
    orbitmq: Command, orbitmq_cluster: RunningCluster
) -> None:
    assert "no group reads anything" in orbitmq("top", "--once", "--interval", "0.5")
    orbitmq("topic", "create", "orders", "--queues", "2")
    orbitmq("send", "orders", "first", "--quiet")
    servers = orbitmq_cluster.name_server
    with Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        next(iter(consumer))
    orbitmq("send", "orders", "more", "--count", "40", "--quiet")
    queues = json.loads(orbitmq("group", "lag", "billing", "--json"))["queues"]
    lag = sum(one["lag"] for one in queues if one["topic"] == "orders")
    assert lag > 0
    words = [sys.executable, "-m", "orbitmq", "top", "--interval", "0.5"]
    with subprocess.Popen(
        [*words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    for one in told:
        (row,) = one["rows"]
        assert (row["group"], row["topic"], row["in_rate"]) == ("billing", "orders", 0)
        assert row["lag"] == lag
        assert one["left_out"] == []
    assert errors == ""
    assert process.returncode == 130
    lines = orbitmq("top", "--once", "--interval", "0.5").splitlines()
    assert lines[0].split() == ["group", "topic", "in/s", "out/s", "lag"]
    assert lines[1].split()[:4] == ["billing", "orders", "0", "0"]
