"""``orbitmq export`` and ``orbitmq import`` at a cluster on real sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq.testing import RunningCluster


@pytest.fixture
def orbitmq(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


@pytest.mark.behaviour("CS-05")
def test_what_was_exported_is_made_again(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "2")
    orbitmq("group", "create", "billing", "--retries", "5")
    text = orbitmq("export")
    assert json.loads(text) == json.loads(orbitmq("export", "--json"))
    Path("cluster.json").write_text(text)
    assert "nothing is to be done" in orbitmq("import", "cluster.json")
    orbitmq("topic", "delete", "orders", "--yes")
    orbitmq("group", "create", "billing", "--retries", "16")
    wanted = "create topic orders (2 queues)\ngroup billing: retries 16 -> 5\n"
    assert orbitmq("import", "cluster.json", "--dry-run") == wanted
    assert "orders" not in orbitmq("topic", "list")
    assert "give --yes" in orbitmq("import", "cluster.json", code=2)
    assert orbitmq("import", "cluster.json", "--yes") == f"{wanted}made 2 changes\n"
    assert orbitmq("export") == text


@pytest.mark.behaviour("CS-05")
def test_an_import_that_would_hide_messages_does_nothing(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "2")
    Path("cluster.json").write_text(orbitmq("export"))
    orbitmq("topic", "create", "orders", "--queues", "4")
    said = orbitmq("import", "cluster.json", "--dry-run", code=1)
    assert "not possible: topic orders: queues 4 -> 2: topic orders has 4 queues" in said
    said = orbitmq("import", "cluster.json", "--yes", code=2)
    assert "nothing was done: not possible: topic orders" in said
    assert orbitmq("import", "none.json", code=2).endswith("none.json: No such file or directory\n")
    Path("other.json").write_text('{"users": []}')
    assert "other.json: no export of topics and groups" in orbitmq("import", "other.json", code=2)
