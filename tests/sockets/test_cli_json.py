"""The JSON form of every command that asks a cluster, against one golden file each.

After a change that is meant: ``ORBITMQ_WRITE_GOLDEN=1 pytest tests/sockets/test_cli_json.py``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, server_context
from tests.sockets.conftest import Command, until
from tests.sockets.test_blocking_secured import checking
from tests.sockets.test_cli_secured import NO_BROKERS

from orbitmq import ConsumeFrom, Message
from orbitmq.cli.main import main
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster

GOLDEN = Path(__file__).parent / "golden_cli"
# What differs from run to run: addresses, ids, handles, times, sizes in the log.
CHANGING = [
    (re.compile(r"^\d{4}-\d\d-\d\d[T ][\d:.]+Z?$"), "TIME"),
    (re.compile(r"^\d{13}-[0-9a-f]{8}$"), "RUN"),
    (re.compile(r"^(\d+\.){3}\d+:\d+$"), "ADDRESS"),
    (re.compile(r"^[0-9A-F]{32,}$"), "ID"),
    (re.compile(r"^djE[\w=-]+$"), "HANDLE"),
    (re.compile(r"^\S+@\d+#\w+$"), "CLIENT"),
]
NUMBERS = {
    *("log_end", "lag_bytes", "epoch", "store_size", "version", "age", "took", "disk_used"),
    *("seconds", "per_second", "p50", "p99", "p999", "latency", "size_bytes", "merged_bytes"),
}

SETTINGS = {"traceTopicEnable": "true", "recallMessageEnable": "true"}
with_cluster = pytest.mark.parametrize(
    "orbitmq_cluster", [{"brokers": 1, "settings": SETTINGS}], indirect=True
)


def fixed(value: object, key: str = "") -> Any:
    """The value with what changes from run to run replaced by words."""
    if isinstance(value, dict):
        return {fixed(name): fixed(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [fixed(one) for one in value]
    if key == "properties":
        return value
    if isinstance(value, str):
        return next((word for pattern, word in CHANGING if pattern.match(value)), value)
    if key in NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        return "NUMBER"
    return value


def check(name: str, text: str) -> dict[str, Any]:
    """Compare one JSON object with its golden file; the object as it was."""
    told = json.loads(text)
    assert isinstance(told, dict)
    shown = fixed(told)
    for one in [shown, *shown.get("messages", [])] if isinstance(shown.get("messages"), list) else [shown]:
        if "properties" in one:
            one["properties"] = sorted(one["properties"])
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ORBITMQ_WRITE_GOLDEN"):
        path.write_text(json.dumps(shown, indent=2) + "\n")
    assert shown == json.loads(path.read_text()), name
    return told


@pytest.fixture
def orbitmq(
    orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    return command


@with_cluster
def test_topics_messages_and_brokers(orbitmq: Command) -> None:
    check("topic-create", orbitmq("topic", "create", "orders", "--queues", "1", "--json"))
    check("topic-list", orbitmq("topic", "list", "--json"))
    check("topic-route", orbitmq("topic", "route", "orders", "--json"))
    sent = check("send", orbitmq("send", "orders", "hello", "--tag", "A", "--key", "k1", "--json"))
    check("receive", orbitmq("receive", "orders", "--json"))
    check("topic-status", orbitmq("topic", "status", "orders", "--json"))
    check("cluster-list", orbitmq("cluster", "list", "--json"))
    check("message-get", orbitmq("message", "get", sent["offset_message_id"], "--json"))
    until_found(["message", "find", "orders", "--key", "k1", "--json"])
    check("message-find", orbitmq("message", "find", "orders", "--key", "k1", "--json"))
    later = json.loads(orbitmq("send", "orders", "later", "--delay", "3600", "--json"))
    until_found(["timer", "show", later["message_id"], "--json"])
    check("timer-show", orbitmq("timer", "show", later["message_id"], "--json"))
    timers = json.loads(orbitmq("timer", "list", "--json"))
    timers["brokers"][0]["minutes"] = {"TIME": sum(timers["brokers"][0]["minutes"].values())}
    check("timer-list", json.dumps(timers))
    check("timer-cancel", orbitmq("timer", "cancel", later["message_id"], "--yes", "--json"))
    check("topic-delete", orbitmq("topic", "delete", "orders", "--yes", "--json"))


@pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 2}], indirect=True)
def test_running_brokers(orbitmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.cli.broker.QUIET_S", 0.2)
    orbitmq("topic", "create", "orders", "--queues", "1")
    check("broker-list", orbitmq("broker", "list", "--json"))
    status = json.loads(orbitmq("broker", "status", "broker-a", "--json"))
    assert len(status["status"]) > 30
    status["status"] = {"brokerActive": status["status"]["brokerActive"]}
    check("broker-status", json.dumps(status))
    check("broker-config-get", orbitmq("broker", "config", "get", "broker-a", "brokerName", "--json"))
    wanted = ["broker", "config", "set", "broker-a", "autoCreateTopicEnable=false", "--yes", "--json"]
    check("broker-config-set", orbitmq(*wanted))
    differing = json.loads(orbitmq("broker", "config", "diff", "--json"))
    of_key = [one for one in differing["settings"] if one["key"] == "autoCreateTopicEnable"]
    check("broker-config-diff", json.dumps({**differing, "settings": of_key}))
    drained = json.loads(orbitmq("broker", "drain", "broker-a", "--yes", "--json"))
    assert drained["topics"] > 0
    check("broker-drain", json.dumps({**drained, "topics": "NUMBER"}))


@pytest.mark.parametrize(
    "orbitmq_cluster",
    [
        {
            "brokers": 1,
            "settings": {
                "authenticationEnabled": "true",
                "authorizationEnabled": "true",
                "initAuthenticationUser": '{"username":"root","password":"secret of root"}',
            },
        }
    ],
    indirect=True,
)
def test_users_and_rules(orbitmq: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "secret of root")
    (tmp_path / "secret").write_text("secret of app\n")
    check("user-create", orbitmq("user", "create", "app", "--secret-file", "secret", "--json"))
    check(
        "acl-allow",
        orbitmq("acl", "allow", "app", "--topic", "orders*", "Pub,Sub", "--from", "10.0.0.0/8", "--json"),
    )
    check("acl-deny", orbitmq("acl", "deny", "app", "--group", "billing", "Sub", "--json"))
    check("acl-list", orbitmq("acl", "list", "app", "--json"))
    check("acl-test", orbitmq("acl", "test", "app", "Pub", "Topic:orders", "--from", "10.0.0.9", "--json"))
    check("acl-delete", orbitmq("acl", "delete", "app", "Group:billing", "--yes", "--json"))
    check("quota-set", orbitmq("quota", "set", "--user", "app", "--in", "2msg/s", "--out", "1MB/s", "--json"))
    check("quota-list", orbitmq("quota", "list", "--json"))
    check("quota-delete", orbitmq("quota", "delete", "--user", "app", "--json"))
    check("user-change", orbitmq("user", "change", "app", "--disable", "--json"))
    check("user-list", orbitmq("user", "list", "--json"))
    monkeypatch.delenv("ORBITMQ_ACCESS_KEY")
    monkeypatch.delenv("ORBITMQ_SECRET_KEY")
    orbitmq("user", "list", code=1)
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "secret of root")
    check("acl-refusals", orbitmq("acl", "refusals", "--json"))
    check("user-delete", orbitmq("user", "delete", "app", "--yes", "--json"))


@with_cluster
def test_a_look_at_all(orbitmq: Command, capfd: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])  # the exit code depends on the machine
    told = json.loads(capfd.readouterr().out)
    assert {one["check"] for one in told["findings"]} >= {"compiled modules", "versions", "address", "clock"}
    told["findings"] = [one for one in told["findings"] if one["check"] == "clock"]
    check("doctor", json.dumps(told))


@with_cluster
def test_groups_and_traces(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    orbitmq("topic", "create", "orders", "--queues", "1")
    check("group-create", orbitmq("group", "create", "billing", "--retries", "3", "--json"))
    with Producer("pg", name_servers=servers, trace=True) as producer:
        sent = producer.send(Message("orders", b"1"))
    check("group-list", orbitmq("group", "list", "--json"))
    with Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        message = next(iter(consumer))
        message.ack()
        told = json.loads(orbitmq("group", "show", "billing", "--json"))
        # Whether the member has committed by now is chance.
        check("group-show", json.dumps({**told, "lag": 0, "in_flight": 0, "why": []}))
        clients = json.loads(orbitmq("client", "list", "--group", "billing", "--json"))
        check("client-list", json.dumps(clients))
        name = clients["clients"][0]["client_id"]
        running = json.loads(orbitmq("client", "show", "billing", name, "--stacks", "--json"))
        assert running["properties"]
        assert running["stacks"]
        still = {"properties": {}, "stacks": "STACKS", "queues": running["queues"][:0]}
        check("client-show", json.dumps({**running, **still}))
    with Consumer("direct", name_servers=servers) as member:
        member.subscribe("orders")
        worker = threading.Thread(target=member.run, args=(lambda _message: None,))
        worker.start()
        name = member_of("direct", orbitmq)
        of_member = ["--topic", "orders", "--group", "direct", "--client", name, "--json"]
        until_found(["message", "consume", sent.message_id, *of_member])
        check("message-consume", orbitmq("message", "consume", sent.message_id, *of_member))
    worker.join()
    check("group-lag", orbitmq("group", "lag", "billing", "--topic", "orders", "--json"))
    moves = orbitmq("group", "reset", "billing", "orders", "--to", "first", "--dry-run", "--json")
    check("group-reset-dry-run", moves)
    check("group-reset", orbitmq("group", "reset", "billing", "orders", "--to", "first", "--yes", "--json"))
    check("group-skip", orbitmq("group", "skip", "billing", "orders", "--yes", "--json"))
    check("group-clone", orbitmq("group", "clone", "billing", "copy", "--yes", "--json"))
    check("group-delete", orbitmq("group", "delete", "billing", "--yes", "--json"))
    until_found(["message", "trace", sent.message_id, "--json"])
    check("message-trace", orbitmq("message", "trace", sent.message_id, "--json"))


@with_cluster
def test_dead_letters(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("topic", "create", "%DLQ%billing", "--queues", "1")
    orbitmq("send", "%DLQ%billing", "dead", "--json")
    check("dlq-list", orbitmq("dlq", "list", "--json"))
    check("dlq-show", orbitmq("dlq", "show", "billing", "--json"))
    check("dlq-export", orbitmq("dlq", "export", "billing"))
    check("dlq-redrive-dry-run", orbitmq("dlq", "redrive", "billing", "--dry-run", "--json"))
    orbitmq("dlq", "redrive", "billing", "--to-topic", "orders")
    until(lambda: json.loads(orbitmq("dlq", "status", "--json"))["jobs"][0]["state"] == "done")
    check("dlq-status", orbitmq("dlq", "status", "--json"))


@with_cluster
def test_watched_and_measured(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    check("send-watch", orbitmq("send", "orders", "hello", "--watch", "--json"))
    load = ["bench", "orders", "--messages", "100", "--json"]
    check("bench", orbitmq(*load))
    check("bench-watch", orbitmq(*load, "--watch"))
    check("top", orbitmq("top", "--once", "--interval", "0.5", "--json"))
    words = [sys.executable, "-m", "orbitmq", "cluster", "list", "--watch", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        check("cluster-list-watch", process.stdout.readline())
        process.send_signal(signal.SIGINT)


@with_cluster
def test_a_slow_redrive(orbitmq: Command, orbitmq_cluster: RunningCluster) -> None:
    orbitmq("topic", "create", "orders", "--queues", "1")
    orbitmq("topic", "create", "%DLQ%billing", "--queues", "1")
    orbitmq("send", "%DLQ%billing", "dead", "--count", "30", "--quiet")
    check(
        "dlq-redrive",
        part(orbitmq("dlq", "redrive", "billing", "--to-topic", "orders", "--rate", "1", "--json")),
    )
    check("dlq-pause", part(orbitmq("dlq", "pause", "billing", "--json")))
    check("dlq-resume", part(orbitmq("dlq", "resume", "billing", "--json")))
    check("dlq-stop", part(orbitmq("dlq", "stop", "billing", "--json")))


def part(text: str) -> str:
    """The jobs without how far they are."""
    told = json.loads(text)
    for job in told["jobs"]:
        job["sent"] = job["remaining"] = "NUMBER"
    return json.dumps(told)


def until_found(words: list[str]) -> None:
    """Return when the command finds what it looks for: indexes and traces take a moment."""
    until(lambda: main(words) == 0)


def member_of(group: str, orbitmq: Command) -> str:
    """The client id of the group's member, when its first heartbeat has reached the broker."""
    members = until(lambda: json.loads(orbitmq("client", "list", "--group", group, "--json"))["clients"])
    return str(members[0]["client_id"])


def test_a_cluster_that_is_started(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "orbitmq",
        "up",
        "--port",
        "0",
        "--brokers",
        "1",
        "--dir",
        str(tmp_path),
        "--json",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            check("up", process.stdout.readline().replace(str(tmp_path), "FOLDER"))
        finally:
            process.send_signal(signal.SIGINT)


@with_cluster
def test_checks(orbitmq: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    orbitmq("group", "create", "billing")
    check("check-lag", orbitmq("check", "lag", "billing", "--warn", "1", "--critical", "2", "--json"))
    check("check-broker", orbitmq("check", "broker", "--json"))
    check("check-dlq", orbitmq("check", "dlq", "--json"))
    full = ["--warn", "100", "--critical", "100"]
    check("check-disk", rough(orbitmq("check", "disk", *full, "--json")))
    authority = Authority(tmp_path)
    with checking(server_context(authority.issue("server")), told=NO_BROKERS) as (address, _):
        monkeypatch.setenv("ORBITMQ_TLS_CA", authority.ca)
        check("check-cert", rough(orbitmq("check", "cert", "-n", address, "--json")))


def rough(text: str) -> str:
    """A check without the numbers that it measured."""
    told = json.loads(text)
    told["figures"] = dict.fromkeys(told["figures"], "NUMBER")
    told["text"] = re.sub(r"\d[\d.:T-]*", "N", told["text"])
    return json.dumps(told)


@with_cluster
def test_an_export_and_an_import(orbitmq: Command) -> None:
    orbitmq("topic", "create", "orders", "--queues", "2")
    orbitmq("group", "create", "billing", "--retries", "5")
    told = orbitmq("export", "--json")
    check("export", told)
    Path("cluster.json").write_text(told.replace('"queues": 2', '"queues": 4').replace("billing", "new"))
    check("import", orbitmq("import", "cluster.json", "--dry-run", "--json"))


def test_a_completion(command: Command) -> None:
    told = json.loads(command("completion", "bash", "--json"))
    check("completion", json.dumps({**told, "script": "SCRIPT"}))


def test_alerts_and_a_board(command: Command) -> None:
    told = json.loads(command("generate", "alerts", "--json"))
    check("generate-alerts", json.dumps({**told, "rules": "RULES"}))
    told = json.loads(command("generate", "grafana", "--json"))
    check("generate-grafana", json.dumps({**told, "board": "BOARD"}))


def test_units_and_files_for_containers(command: Command, tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=9876\n")
    program = ["--program", "/opt/orbitmq/bin/orbitmq"]
    told = json.loads(command("generate", "systemd", "nameserver", "-c", str(conf), *program, "--json"))
    check("generate-systemd", json.dumps({**told, "unit": "UNIT"}))
    told = json.loads(command("generate", "compose", "--image", "orbitmq:1", "--json"))
    check("generate-compose", json.dumps({**told, "file": "FILE"}))
    told = json.loads(command("generate", "kubernetes", "--image", "orbitmq:1", "--json"))
    check("generate-kubernetes", json.dumps({**told, "file": "FILE"}))


def test_contexts(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("NAMESRV_ADDR", "ORBITMQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    keys = ["--user", "ops", "--secret-command", "pass mq/ops"]
    check("context-create", command("context", "create", "prod", "-n", "mq-1:9876", *keys, "--json"))
    check("context-list", command("context", "list", "--json").replace(str(tmp_path), "FOLDER"))
    check("context-show", command("context", "show", "prod", "--json"))
    check("context-use", command("context", "use", "prod", "--json"))
    check("context-delete", command("context", "delete", "prod", "--yes", "--json"))


def test_an_archive(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from tests.unit.test_spark_jobs import DAY_MS, write

    from orbitmq.spark.jobs.folder import Folder

    for low in (0, 5):
        write(Folder(str(tmp_path)), [(0, n, DAY_MS) for n in range(low, low + 5)])
    check(
        "archive-verify",
        command("archive", "verify", str(tmp_path), "--json").replace(str(tmp_path), "FOLDER"),
    )
    check(
        "archive-compact",
        command("archive", "compact", str(tmp_path), "--json").replace(str(tmp_path), "FOLDER"),
    )


def test_an_audit_log(command: Command, tmp_path: Path) -> None:
    who = (
        '"time": "2026-11-29T20:00:01.000Z", "event": "change", "id": 1, "user": "ops", "from": "10.0.0.9:5"'
    )
    what = '"code": 17, "request": "UPDATE_AND_CREATE_TOPIC", "target": ["Topic:orders"]'
    ends = '"before": {"Topic:orders": null}, "verdict": "permitted"', '"verdict": "failed", "why": "no"'
    log = tmp_path / "audit.log"
    log.write_text("".join(f"{{{who}, {what}, {end}}}\n" for end in ends))
    check("audit-show", command("audit", "show", str(log), "--json"))


def test_certificates(command: Command, tmp_path: Path) -> None:
    def told(*words: str) -> str:
        return command("tls", *words, "--json").replace(str(tmp_path), "FOLDER")

    ca = str(tmp_path / "ca")
    check("tls-make-ca", told("make-ca", ca))
    check("tls-make-cert", told("make-cert", ca, str(tmp_path / "mq-1"), "--host", "10.0.0.5"))


def test_the_link_of_the_console() -> None:
    words = ["console", "--json", "-n", "127.0.0.1:1", "--port", str(free_ports(1)[0])]
    with subprocess.Popen([sys.executable, "-m", "orbitmq", *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
        finally:
            process.terminate()
    link = re.sub(r":\d+/\?token=[\w-]+$", ":PORT/?token=TOKEN", told["link"])
    check("console", json.dumps({**told, "link": link}))


def test_a_user_of_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "password", "anna", "viewer", "--generate", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    line = re.sub(r":[0-9a-f]{32}:[0-9a-f]{64}$", ":SALT:HASH", told["line"])
    check("console-password", json.dumps({**told, "line": line, "secret": "SECRET"}))
