"""``orbitmq mqadmin``: the commands of 4.9 for the accounts of ACL 1.0, at a broker that has some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq.testing import RunningCluster, running_cluster

ACL = """
accounts:
- accessKey: rootuser
  secretKey: root-secret-1
  admin: true
"""
SECRETS = ("root-secret-1", "new-secret-1")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The folder with the accounts."""
    folder = tmp_path / "conf"
    folder.mkdir()
    path = folder / "plain_acl.yml"
    path.write_text(ACL)
    path.chmod(0o600)
    return folder


@pytest.fixture
def secured(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    with running_cluster(str(tmp_path / "cluster"), settings=settings) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "rootuser")
        monkeypatch.setenv("ORBITMQ_SECRET_KEY", "root-secret-1")
        yield cluster


def lines(printed: str) -> list[str]:
    """What a command printed, without addresses and times, and with one space where columns end."""
    hidden = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", printed)
    hidden = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", hidden)
    return [" ".join(line.split()) for line in hidden.splitlines()]


@pytest.mark.behaviour("CS-49")
@pytest.mark.usefixtures("secured")
@pytest.mark.parametrize("delete", ["deleteAclConfig", "deleteAccessConfig"])
@pytest.mark.parametrize("show", ["getAclConfig", "getAccessConfigSubCommand"])
def test_an_account_is_made_shown_and_deleted(command: Command, files: Path, delete: str, show: str) -> None:
    where = ("-c", "DefaultCluster")
    flags = "-a newuser1 -s new-secret-1 -i DENY -u SUB -t a=PUB|SUB,b=SUB -g g=SUB -w 10.0.0.1 -m true"
    made = command("mqadmin", "updateAclConfig", *flags.split(" "), *where)
    assert lines(made)[0] == "create or update plain access config to ADDRESS success."
    assert "new-secret-1" in (files / "plain_acl.yml").read_text()
    shown = command("mqadmin", show, *where)
    assert lines(shown)[-9:-1] == [
        "accessKey : newuser1",
        "secretKey :",
        "whiteRemoteAddress: 10.0.0.1",
        "admin : true",
        "defaultTopicPerm : DENY",
        "defaultGroupPerm : SUB",
        "topicPerms : [a=PUB|SUB, b=SUB]",
        "groupPerms : [g=SUB]",
    ]
    assert lines(shown)[:5] == ["", "globalWhiteRemoteAddresses: []", "", "accounts:", "accessKey : rootuser"]
    assert not any(secret in made + shown for secret in SECRETS)
    deleted = command("mqadmin", delete, "-a", "newuser1", *where)
    assert lines(deleted) == [
        "delete plain access config account from ADDRESS success.",
        "account's accesskey is:newuser1",
    ]
    assert "newuser1" not in command("mqadmin", show, *where)


@pytest.mark.behaviour("CS-49")
@pytest.mark.usefixtures("secured")
def test_versions_white_addresses_and_refusals(command: Command, files: Path) -> None:
    where = ("-c", "DefaultCluster")
    said = command("mqadmin", "updateGlobalWhiteAddr", "-g", "10.10.103.*,192.168.0.*", *where)
    assert lines(said) == ["update global white remote addresses to ADDRESS success."]
    title, row, end = lines(command("mqadmin", "clusterAclConfigVersion", *where))
    assert title.startswith("#Cluster Name #Broker Name #Broker Addr #AclFilePath #AclConfigVersionNum")
    assert row == f"DefaultCluster broker-a ADDRESS {files}/plain_acl.yml 1 TIME"
    assert end == "get cluster's plain access config version success."
    assert "[10.10.103.*, 192.168.0.*]" in command("mqadmin", "getAclConfig", *where)
    refused = command("mqadmin", "updateAclConfig", "-a", "newuser1", "-s", "no", *where, code=1)
    assert "answered code 209: The accessKey=newuser1 and secretKey=*** cannot be null" in refused
    refused = command("mqadmin", "updateGlobalWhiteAddr", "-g", "1.2.3.4", "-p", "/no", *where, code=1)
    assert "answered code 211" in refused
    assert "answered code 210" in command("mqadmin", "deleteAclConfig", "-a", "nobody", *where, code=1)


@pytest.mark.behaviour("CS-49")
def test_a_broker_without_accounts_is_named(
    orbitmq_cluster: RunningCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    for name in ("getAclConfig", "clusterAclConfigVersion"):
        said = command("mqadmin", name, "-c", "DefaultCluster", code=1)
        assert "the broker has no accounts of ACL 1.0 (code 5" in said
