"""``orbitmq generate systemd``: the units, and the settings that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.cli.main import main
from orbitmq.cli.units import SANDBOX, broker_unit, name_server_unit

GOLDEN = Path(__file__).parent / "golden"
PROGRAM = "/opt/orbitmq/bin/orbitmq"
BROKER = """\
brokerName=broker-a
namesrvAddr=10.0.0.9:9876
metricsExporterType=PROM
metricsTokenFile=/etc/orbitmq/metrics.token
tls.server.mode=enforcing
tls.server.certPath=/etc/orbitmq/mq-1.pem
tls.server.keyPath=/etc/orbitmq/mq-1.key
tls.enable=true
tls.client.trustCertPath=/etc/orbitmq/ca.pem
logFile=/var/log/orbitmq/broker.log
storePathCommitLog=/data/commitlog
"""
NAME_SERVER = "listenPort=9876\n"


def broker(conf: str = BROKER, path: str = "/etc/orbitmq/broker.conf", program: str = PROGRAM) -> str:
    return broker_unit(conf, path, program)


def name_server(conf: str = NAME_SERVER) -> str:
    return name_server_unit(conf, "/etc/orbitmq/namesrv.conf", PROGRAM)


def entries(unit: str) -> dict[str, list[str]]:
    """The values of each key of a unit."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        if line and line[0] not in "#[":
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize(
    ("name", "unit"), [("orbitmq-broker", broker()), ("orbitmq-nameserver", name_server())]
)
def test_the_unit_is_that_of_the_golden_file(name: str, unit: str) -> None:
    assert unit == (GOLDEN / f"{name}.service").read_text(encoding="utf-8")


@pytest.mark.behaviour("CS-16")
def test_keys_are_credentials_and_the_server_is_told_where_they_are() -> None:
    found = entries(broker())
    assert found["LoadCredential"] == [
        "broker.conf:/etc/orbitmq/broker.conf",
        "metrics-token:/etc/orbitmq/metrics.token",
        "tls-server-cert:/etc/orbitmq/mq-1.pem",
        "tls-server-key:/etc/orbitmq/mq-1.key",
    ]
    [command] = found["ExecStart"]
    words = command.split()
    assert words[:4] == [PROGRAM, "broker", "-c", "%d/broker.conf"]
    assert words[4::2] == ["--set"] * 4
    assert words[5::2] == [
        "storePathRootDir=/var/lib/orbitmq/broker-a",
        "metricsTokenFile=%d/metrics-token",
        "tls.server.certPath=%d/tls-server-cert",
        "tls.server.keyPath=%d/tls-server-key",
    ]


@pytest.mark.behaviour("CS-16")
def test_the_server_may_write_where_its_data_and_its_log_are_and_nowhere_else() -> None:
    found = entries(broker())
    assert found["ProtectSystem"] == ["strict"]
    assert found["StateDirectory"] == ["orbitmq/broker-a"]
    assert found["LogsDirectory"] == ["orbitmq"]
    assert found["ReadWritePaths"] == ["/data/commitlog"]
    found = entries(broker("storePathRootDir=/data/my store\n"))
    assert found["ReadWritePaths"] == ['"/data/my store"']
    assert "StateDirectory" not in found
    assert "--set" not in found["ExecStart"][0]
    assert entries(name_server())["StateDirectory"] == ["orbitmq/nameserver"]


@pytest.mark.behaviour("CS-16")
def test_a_server_that_requires_keys_finds_its_key_file_and_writes_its_users() -> None:
    keys = "authenticationEnabled=true\nauthKeyFile=/etc/orbitmq/auth.key\n"
    for unit in (broker(keys), name_server(keys)):
        found = entries(unit)
        assert "auth-key:/etc/orbitmq/auth.key" in found["LoadCredential"]
        assert "--set authKeyFile=%d/auth-key" in found["ExecStart"][0]
    # The service must not write into the home folder of its user.
    assert "--set authConfigPath=/var/lib/orbitmq/nameserver/config" in found["ExecStart"][0]
    assert found["StateDirectory"] == ["orbitmq/nameserver", "orbitmq/nameserver/config"]
    found = entries(name_server(f"{keys}authConfigPath=/data/users/\n"))
    assert found["ReadWritePaths"] == ["/data/users"]
    assert "authConfigPath" not in found["ExecStart"][0]


@pytest.mark.behaviour("CS-16")
def test_the_accounts_of_acl_1_may_be_written() -> None:
    """`mqadmin updateAclConfig` changes these files."""
    found = entries(broker("aclEnable=true\nrocketmqHome=/opt/rocketmq/\n"))
    assert found["ReadWritePaths"] == ["/opt/rocketmq/conf"]


@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize("unit", [broker(), name_server()], ids=["broker", "name server"])
def test_systemd_waits_for_the_start_and_watches(unit: str) -> None:
    found = entries(unit)
    assert found["Type"] == ["notify"]
    assert found["NotifyAccess"] == ["main"]
    assert found["WatchdogSec"] == ["30s"]
    assert found["Restart"] == ["on-failure"]
    assert found["RestartPreventExitStatus"] == ["2"]
    assert [line for line in unit.splitlines() if line.startswith("[")] == [
        "[Unit]",
        "[Service]",
        "[Install]",
    ]
    assert SANDBOX in unit


@pytest.mark.behaviour("CS-16")
def test_what_systemd_would_replace_is_escaped() -> None:
    unit = broker(
        "brokerName=a%n\nstorePathRootDir=/data/50%$x\n", "/etc/mq 100%/b.conf", "/opt/or $b/orbitmq"
    )
    found = entries(unit)
    assert found["Description"] == ["OrbitMQ broker a%%n"]
    assert found["LoadCredential"] == ["broker.conf:/etc/mq 100%%/b.conf"]
    assert found["ExecStart"][0].startswith('"/opt/or $$b/orbitmq" broker -c %d/broker.conf')


@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize(
    ("conf", "words"),
    [
        (
            "storePathRootDir=/home/me/store",
            "storePathRootDir=/home/me/store: the unit hides the folders of users",
        ),
        ("storePathRootDir=store", "storePathRootDir=store: expected an absolute path"),
        ("logFile=/root/mq.log", "logFile=/root/mq.log: the unit hides"),
        ("storePathRootDir=/tmp/store", "storePathRootDir=/tmp/store: the unit hides"),
        ("storePathCommitLog=/var/tmp/log", "storePathCommitLog=/var/tmp/log: the unit hides"),
        ("metricsTokenFile=token", "metricsTokenFile=token: expected an absolute path"),
        ("grpcServerPort=443", "grpcServerPort=443: the unit's user may not listen below 1024"),
        ("storePathRootDir=/data/a\\nExecStart=/bin/sh", "a unit of systemd cannot hold this"),
        ("listenPort=many", "line 1: listenPort=many: expected"),
        ("aclEnable=true", "aclEnable=true: expected rocketmqHome beside it"),
        ("authKeyFile=auth.key", "authKeyFile=auth.key: expected an absolute path"),
    ],
)
def test_a_file_whose_server_could_not_work_in_a_unit_is_refused(
    conf: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(conf)
    assert main(["generate", "systemd", "broker", "-c", str(file), "--program", PROGRAM]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.behaviour("CS-16")
def test_a_program_below_a_users_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(NAME_SERVER)
    wanted = ["generate", "systemd", "nameserver", "-c", str(file), "--program"]
    assert main([*wanted, "/home/me/.venv/bin/orbitmq"]) == 2
    assert "--program=/home/me/.venv/bin/orbitmq: the unit hides" in capsys.readouterr().err
    assert main([*wanted, PROGRAM]) == 0
    assert f"LoadCredential=nameserver.conf:{file}\n" in capsys.readouterr().out
