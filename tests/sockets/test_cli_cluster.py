"""The ``orbitmq`` command against servers that it started itself: real processes, loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq import Message, Producer
from orbitmq.cluster.processes import ProcessCluster

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
READY_LIMIT_S = 180


def start(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "orbitmq", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def broker_settings(folder: str) -> list[str]:
    """Flags of a broker on loopback, on any free port for slaves and gRPC clients on its own."""
    settings = (f"storePathRootDir={folder}", "brokerIP1=127.0.0.1", "haListenPort=0", "grpcServerPort=0")
    return [flag for setting in settings for flag in ("--set", setting)]


def stop(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    process.send_signal(number)
    assert process.stdout is not None
    assert process.stderr is not None
    # Not communicate(): it does not see what readline() has already taken from the pipe.
    with process:
        return process.wait(READY_LIMIT_S), process.stdout.read(), process.stderr.read()


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    process = start(
        "up", "--port", "0", "--json", "--dir", str(folder), "--set", "mappedFileSizeCommitLog=4194304"
    )
    line = first_line(process)
    if not line:
        pytest.fail(process.communicate()[1])
    try:
        yield json.loads(line)["name_server"]
    finally:
        assert stop(process) == (0, "", "")


@pytest.fixture
def orbitmq(name_server: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command, with that cluster as its default."""
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    return command


def test_what_is_sent_is_received_in_every_form(orbitmq: Command) -> None:
    assert "SEND_OK" in orbitmq("send", "forms", "héllo", "--tag", "A", "--key", "k1", "--property", "a=b")
    assert orbitmq("receive", "forms") == "héllo\n"
    assert orbitmq("receive", "forms", "--format", "%t %g %k %s|") == "forms A k1 héllo|"
    shown = json.loads(orbitmq("receive", "forms", "--json"))
    assert shown["body"] == "héllo"
    assert shown["properties"]["a"] == "b"


def test_lines_of_standard_input_become_messages(
    orbitmq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_text("one\n\ntwo\r\nthree")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        results = [json.loads(line) for line in orbitmq("send", "lines", "-", "--json").splitlines()]
    assert [result["status"] for result in results] == ["SEND_OK"] * 3
    assert sorted(orbitmq("receive", "lines").split()) == ["one", "three", "two"]


def test_one_ordering_key_keeps_the_order(orbitmq: Command, tmp_path: Path) -> None:
    orbitmq("topic", "create", "ordered", "--queues", "4")
    for number in range(5):
        orbitmq("send", "ordered", str(number), "--ordering-key", "same", "--quiet")
    assert orbitmq("receive", "ordered").split() == ["0", "1", "2", "3", "4"]


def test_looking_leaves_no_trace_and_a_group_has_progress(orbitmq: Command) -> None:
    orbitmq("send", "progress", "m", "--count", "4", "--quiet")
    assert len(orbitmq("receive", "progress").split()) == 4
    assert len(orbitmq("receive", "progress", "--count", "2").split()) == 2
    assert len(orbitmq("receive", "progress", "--group", "readers", "--count", "3").split()) == 3
    assert len(orbitmq("receive", "progress", "--group", "readers", "--count", "1").split()) == 1
    assert len(orbitmq("receive", "progress").split()) == 4


def test_tags_and_time_choose(orbitmq: Command) -> None:
    orbitmq("send", "chosen", "a", "--tag", "A", "--quiet")
    orbitmq("send", "chosen", "b", "--tag", "B", "--quiet")
    assert orbitmq("receive", "chosen", "--tags", "B || C") == "b\n"
    assert orbitmq("receive", "chosen", "--from", "last") == ""
    assert sorted(orbitmq("receive", "chosen", "--from", "10m").split()) == ["a", "b"]
    assert sorted(orbitmq("receive", "chosen", "--from", "2020-01-01T00:00").split()) == ["a", "b"]
    assert "expected first" in orbitmq("receive", "chosen", "--from", "never", code=2)


def test_a_topic_from_creation_to_deletion(orbitmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 queues" in orbitmq("topic", "create", "life", "--queues", "3")
    assert "life" in orbitmq("topic", "list").split()
    assert "TBW102" not in orbitmq("topic", "list")
    assert "TBW102" in orbitmq("topic", "list", "--all")
    assert "--cluster none: there is no such cluster; there are: DefaultCluster" in orbitmq(
        "topic", "list", "--cluster", "none", code=2
    )
    route = json.loads(orbitmq("topic", "route", "life", "--json"))
    assert [(entry["broker"], entry["write_queues"]) for entry in route["brokers"]] == [
        ("broker-a", 3),
        ("broker-b", 3),
    ]
    orbitmq("send", "life", "m", "--count", "2", "--quiet")
    status = json.loads(orbitmq("topic", "status", "life", "--json"))
    assert sum(entry["messages"] for entry in status["queues"]) == 2
    assert status["left_out"] == []
    assert "2 messages in 6 queues" in orbitmq("topic", "status", "life")

    assert "would delete life: 6 queues, 2 messages" in orbitmq("topic", "delete", "life", "--dry-run")
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert "--yes" in orbitmq("topic", "delete", "life", code=2)
    assert "life" in orbitmq("topic", "list").split()
    orbitmq("topic", "delete", "life", "--yes")
    assert "life" not in orbitmq("topic", "list").split()
    assert "no broker has the topic life" in orbitmq("topic", "status", "life", code=1)


def test_the_cluster_is_listed(orbitmq: Command) -> None:
    brokers = json.loads(orbitmq("cluster", "list", "--json"))["brokers"]
    assert [(one["broker"], one["broker_id"]) for one in brokers] == [("broker-a", 0), ("broker-b", 0)]
    assert "broker-b" in orbitmq("cluster", "list")


def test_the_cluster_is_watched(name_server: str) -> None:
    process = start("cluster", "list", "--watch", "--json", "-n", name_server)
    for _ in range(2):
        brokers = json.loads(first_line(process))["brokers"]
        assert [(broker["role"], broker["special_services"]) for broker in brokers] == [("master", True)] * 2
    code, _, errors = stop(process)
    assert (code, errors) == (130, "")


def test_a_watch_into_a_pipe_comes_at_once_and_goes_on_without_a_name_server(tmp_path: Path) -> None:
    settings = ("--set", f"kvConfigPath={tmp_path}/kv.json")
    names = start("nameserver", "--port", "0", *settings)
    port = first_line(names).strip().rpartition(":")[2]
    watch = start("cluster", "list", "--watch", "-n", f"127.0.0.1:{port}")
    limit = threading.Timer(READY_LIMIT_S, watch.kill)
    limit.start()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\n", first_line(watch))
    assert first_line(watch) == "no broker is registered\n"
    stop(names)
    assert watch.stderr is not None
    assert watch.stderr.readline().endswith("Connection refused): looking again\n")
    names = start("nameserver", "--port", port, *settings)
    assert "serves" in first_line(names)
    while "no broker is registered" not in first_line(watch):
        assert watch.poll() is None
    stop(names)
    limit.cancel()
    code, _, errors = stop(watch)
    assert code == 130
    assert len(errors.splitlines()) <= 1  # said once for each loss


def test_the_bench_reads_back_what_it_sent(orbitmq: Command) -> None:
    for batch in ("1", "8"):
        results = json.loads(orbitmq("bench", "--messages", "500", "--batch", batch, "--json"))["phases"]
        assert [(result["phase"], result["messages"]) for result in results] == [
            ("send", 500),
            ("receive", 500),
        ]


def test_nobody_there_is_one_line(orbitmq: Command) -> None:
    for command in (["cluster", "list"], ["send", "t", "b"], ["receive", "t"], ["topic", "list"]):
        line = orbitmq(*command, "-n", "127.0.0.1:1", code=1)
        assert "127.0.0.1:1" in line
        assert len(line.splitlines()) == 1


def test_a_topic_that_is_not_there_is_said_at_once(orbitmq: Command, name_server: str) -> None:
    assert "topic 'nosuch' is unknown" in orbitmq("receive", "nosuch", code=1)
    waiting = start("receive", "nosuch", "--group", "waiting", "-n", name_server)
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    assert said == "no broker has the topic nosuch; waiting until one has it: Ctrl-C ends this\n"
    code, out, err = stop(waiting)
    assert code in (0, 130)  # 130: the member has not begun
    assert (out, err) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_servers_say_when_they_serve_and_stop_cleanly(tmp_path: Path, number: int) -> None:
    names = start("nameserver", "--port", "0", "--set", f"kvConfigPath={tmp_path}/kv.json")
    line = first_line(names)
    assert line.startswith("name server serves 0.0.0.0:")
    address = f"127.0.0.1:{line.strip().rpartition(':')[2]}"
    settings = broker_settings(f"{tmp_path}/store")
    broker = start("broker", "--port", "0", "-n", address, *settings)
    assert first_line(broker).startswith("broker broker-a (id 0) serves 127.0.0.1:")
    assert names.stderr is not None
    assert "broker registered: broker-a id 0 at 127.0.0.1:" in names.stderr.readline()
    assert broker.stderr is not None
    assert f"registered with name server {address} as 127.0.0.1:" in broker.stderr.readline()
    code, out, err = stop(broker, number)
    assert (code, out) == (0, ""), err
    code, out, err = stop(names, number)
    assert (code, out) == (0, ""), err
    assert "broker unregistered: broker-a at 127.0.0.1:" in err
    assert len(err.splitlines()) == 1


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        process = start("nameserver", "--port", str(port))
        out, err = process.communicate(timeout=READY_LIMIT_S)
    assert (process.returncode, out) == (1, "")
    assert str(port) in err
    assert os.strerror(errno.EADDRINUSE).lower() in err.lower()
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_server_starts_though_its_log_is_on_a_full_disk(tmp_path: Path, unbuffered: str) -> None:
    """As one that is to delete its oldest files for that."""
    settings = (*broker_settings(str(tmp_path)), "--set", "aWord=1", "-n", "127.0.0.1:1")
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "orbitmq", "broker", "--port", "0", *settings],
            stdout=full,
            stderr=full,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": unbuffered},
        )
    try:
        deadline = time.monotonic() + READY_LIMIT_S
        while not (tmp_path / "abort").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    finally:
        process.terminate()
    assert process.wait(READY_LIMIT_S) == 0


def test_a_folder_in_use_is_one_line(tmp_path: Path) -> None:
    settings = broker_settings(str(tmp_path))
    first = start("broker", "--port", "0", "-n", "127.0.0.1:1", *settings)
    assert "serves" in first_line(first)
    second = start("broker", "--port", "0", "-n", "127.0.0.1:1", *settings)
    out, err = second.communicate(timeout=READY_LIMIT_S)
    assert (second.returncode, out) == (1, "")
    assert str(tmp_path) in err
    assert len(err.splitlines()) == 1
    assert stop(first)[0] == 0


def test_a_broker_id_in_use_is_one_line(tmp_path: Path) -> None:
    names = start("nameserver", "--port", "0", "--set", f"kvConfigPath={tmp_path}/kv.json")
    address = f"127.0.0.1:{first_line(names).strip().rpartition(':')[2]}"

    def broker(folder: str) -> subprocess.Popen[str]:
        return start("broker", "--port", "0", "-n", address, *broker_settings(f"{tmp_path}/{folder}"))

    first = broker("first")
    try:
        words = first_line(first).split()
        served = words[words.index("serves") + 1].rstrip(",")
        second = broker("second")
        out, err = second.communicate(timeout=READY_LIMIT_S)
    finally:
        ends = [stop(first)[0], stop(names)[0]]
    assert (second.returncode, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert f"the broker at {served} is broker-a with brokerId 0 already" in err
    assert ends == [0, 0]


def test_warnings_name_keys_without_effect(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\nhaListenPort=0\nnoSuchKey=1\n")
    process = start("broker", "-c", str(file), "--port", "0", "--set", "grpcServerPort=0")
    assert "serves" in first_line(process)
    code, _, err = stop(process)
    assert code == 0
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert any("noSuchKey" in line for line in warnings)
    assert any("no name server is known" in line for line in warnings)


def test_an_uncompiled_broker_serves_and_says_that_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITMQ_PURE", "1")
    settings = broker_settings(str(tmp_path))
    process = start("broker", "--port", "0", "-n", "127.0.0.1:1", *settings)
    assert "serves" in first_line(process)
    code, _, err = stop(process)
    assert code == 0
    assert "run uncompiled" in err


def test_up_says_that_the_port_of_grpc_clients_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # another program of this machine has the port
            other.bind(("127.0.0.1", 8081))
            other.listen()
        process = start("up", "--port", "0", "--brokers", "1", "--dir", str(tmp_path))
        _, broker = first_line(process), first_line(process).split()[1]
        code, out, _ = stop(process, signal.SIGTERM)
    assert code == 0
    assert f"Clients of RocketMQ 5: gRPC {broker} (port 8081 is taken)\n" in out


def test_up_stops_its_processes(tmp_path: Path) -> None:
    process = start(
        *("up", "--port", "0", "--brokers", "2", "--dir", str(tmp_path), "--set", "inSyncReplica=2")
    )
    lines = [first_line(process) for _ in range(2)]
    assert [line.split()[0] for line in lines] == ["name", "broker-a"]
    pid = process_of(tmp_path, "broker-a")
    code, out, errors = stop(process, signal.SIGTERM)
    assert code == 0
    # Of each broker, and told once.
    assert errors.startswith("orbitmq up: warning: inSyncReplica is not a setting of RocketMQ: ignored, did")
    assert len(errors.splitlines()) == 1
    assert "export NAMESRV_ADDR=" in out
    assert f", broker-a {pid}, broker-b " in out
    port = int(lines[1].strip().rpartition(":")[2])
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    pytest.fail(f"port {port} still answers")


def test_who_follows_a_topic_goes_on_when_a_broker_restarts(tmp_path: Path) -> None:
    """The answer of a broker that stops, and a route without it, ended the command."""

    async def main() -> None:
        async with ProcessCluster(brokers=1, root=str(tmp_path)) as cluster:
            async with Producer("p", name_servers=cluster.name_server) as producer:
                await producer.send(Message("T", b"before"))
            follow = start("receive", "T", "--follow", "--format", "%s\n", "-n", cluster.name_server)
            limit = threading.Timer(READY_LIMIT_S, follow.kill)
            limit.start()
            assert await asyncio.to_thread(first_line, follow) == "before\n"
            await cluster.stop_broker("broker-a")
            await asyncio.sleep(2)  # tries that find no broker in the route
            await cluster.start_broker("broker-a")
            async with Producer("p", name_servers=cluster.name_server) as producer:
                await producer.send(Message("T", b"after"))
            assert await asyncio.to_thread(first_line, follow) == "after\n"
            limit.cancel()
            code, _, errors = await asyncio.to_thread(stop, follow)
        assert code == 130
        # One line each, however many queues and tries.
        lost, back = errors.splitlines()
        assert lost.startswith("broker-a: ")
        assert lost.endswith("; trying again")
        assert back == "broker-a: answers again"

    asyncio.run(main())


def wait_until_copied(command: Command) -> None:
    """Return when the slave's log ends where its master's does."""
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        states = json.loads(command("cluster", "list", "--json"))["brokers"]
        if len({state["log_end"] for state in states}) == 1 and len(states) == 2:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.1)


def test_up_with_replicas_copies_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    settings = ("--set", "mappedFileSizeCommitLog=4194304")
    process = start(
        "up", "--port", "0", "--brokers", "1", "--replicas", "2", "--json", "--dir", str(tmp_path), *settings
    )
    try:
        started = json.loads(first_line(process))
        assert list(started["brokers"]) == ["broker-a", "broker-a-1"]
        monkeypatch.setenv("NAMESRV_ADDR", started["name_server"])
        for number in range(20):
            command("send", "copied", str(number))
        wait_until_copied(command)
    finally:
        assert stop(process)[0] == 0
    master, slave = (
        [path.read_bytes() for path in sorted((tmp_path / name / "commitlog").iterdir())]
        for name in ("broker-a", "broker-a-1")
    )
    assert master == slave


def process_of(folder: Path, name: str) -> int:
    """The process id of a broker of the cluster in ``folder``: its command line names its settings' file."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(word.startswith(str(folder)) and Path(word).stem == name for word in words):
            return int(path.parent.name)
    raise AssertionError(f"no process of {name}")


def test_a_slave_that_stands_still_is_listed_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    arguments = ("--port", "0", "--brokers", "1", "--replicas", "2", "--json", "--dir", str(tmp_path))
    process = start("up", *arguments, "--set", "mappedFileSizeCommitLog=4194304")
    try:
        monkeypatch.setenv("NAMESRV_ADDR", json.loads(first_line(process))["name_server"])
        command("send", "copied", "one")
        wait_until_copied(command)
        slave = process_of(tmp_path, "broker-a-1")
        os.kill(slave, signal.SIGSTOP)
        command("send", "copied", "x" * 1000)
        # No sender waits for it, and nobody has looked before.
        time.sleep(1.5)
        master, late = json.loads(command("cluster", "list", "--json"))["brokers"]
        os.kill(slave, signal.SIGCONT)
        assert (master["role"], late["role"]) == ("master", "slave")
        assert master["lag_bytes"] is None
        assert late["problem"]
        assert late["lag_bytes"] > 1000
        assert late["lag"] >= 1
        assert late["in_sync"] is False
        assert late["silent"] >= 1
    finally:
        assert stop(process)[0] == 0


def test_up_goes_on_while_a_group_has_a_broker(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--brokers", "1", "--replicas", "2", "--json", "--dir", str(tmp_path))
    process = start("up", *arguments, "--set", "mappedFileSizeCommitLog=4194304")
    limit = threading.Timer(READY_LIMIT_S, process.kill)
    limit.start()
    errors = ""
    try:
        started = json.loads(first_line(process))
        assert list(started["brokers"]) == ["broker-a", "broker-a-1"]
        os.kill(process_of(tmp_path, "broker-a"), signal.SIGKILL)
        assert process.stderr is not None
        # When both are killed at once, the end of either may be what it sees first.
        while "it starts again" not in errors:
            line = process.stderr.readline()
            assert line, errors
            errors += line
        os.kill(process_of(tmp_path, "broker-a-1"), signal.SIGKILL)
        errors += process.stderr.read()
        assert process.wait(READY_LIMIT_S) == 1
    finally:
        limit.cancel()
        process.kill()
        process.communicate()
    assert "its group has another broker, so the cluster goes on" in errors
    assert f"it starts again: orbitmq broker -c {tmp_path}/conf/broker-a.conf\n" in errors
    assert "broker-a-1 ended with exit code -9" in errors


def test_a_topic_does_not_get_fewer_queues(orbitmq: Command) -> None:
    orbitmq("topic", "create", "shrunk", "--queues", "4")
    refused = orbitmq("topic", "create", "shrunk", "--queues", "2", code=2)
    assert "no consumer gets the messages in queues 2 to 3 any more. Keep 4 queues, or send" in refused
    orbitmq("topic", "create", "shrunk", "--queues", "4", "--permission", "4")
