"""The command without standard streams, with pipes that nobody reads, and in encodings that lack letters."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Message
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Producer
from orbitmq.testing import RunningCluster, running_cluster

LIMIT_S = 180
COMMAND = f"{sys.executable} -m orbitmq.cli.main"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster"))) as cluster:
        with Producer("g", name_servers=cluster.name_server) as producer:
            producer.send(Message("letters", "ü 漢", tags="ü"))
        yield cluster


def shell(line: str, server: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    line = f"set -o pipefail; {line.replace('orbitmq', COMMAND)}"
    env = {**os.environ, "NAMESRV_ADDR": server, **environment}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False
    )


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("words", ["topic list", "send closed x", "receive letters", "--help", "nosuch"])
def test_any_stream_may_be_closed(cluster: RunningCluster, words: str, closed: str) -> None:
    done = shell(f"orbitmq {words} {closed}", cluster.name_server)
    assert done.returncode == (2 if words == "nosuch" else 0), done.stderr
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
    if words == "topic list" and ">&-" not in closed.replace("2>&-", ""):
        assert "letters" in done.stdout


def test_lines_cannot_come_from_a_closed_input(cluster: RunningCluster) -> None:
    done = shell("orbitmq send t - <&-", cluster.name_server)
    assert (done.returncode, done.stderr) == (
        2,
        "orbitmq send: standard input is closed: nothing can be read from '-'\n",
    )


@pytest.mark.parametrize(
    "words",
    ["--help", "topic list --help", "topic list", "topic list --json", "cluster list --json --watch",
     "receive letters --json", "mqadmin", "mqadmin topicList", "mqadmin brokerStatus -c DefaultCluster",
     "top --json --interval 0.5"],
)  # fmt: skip
def test_a_reader_that_goes_away_is_no_error(cluster: RunningCluster, words: str) -> None:
    done = shell(f"orbitmq {words} | (exec 0<&-; sleep 0.2)", cluster.name_server)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "topic list --help",
        "topic list",
        "send full x",
        "receive letters --json",
        "mqadmin topicList",
    ],
)
def test_an_output_that_cannot_be_written_is_told(
    cluster: RunningCluster, words: str, unbuffered: str
) -> None:
    done = shell(f"orbitmq {words} > /dev/full", cluster.name_server, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        1,
        "orbitmq: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["ascii", "C"],
)
def test_letters_that_an_encoding_lacks_are_escaped(
    cluster: RunningCluster, environment: dict[str, str]
) -> None:
    done = shell("orbitmq receive letters --json", cluster.name_server, **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["body"] == "ü 漢"
    done = shell("orbitmq receive letters --format '%s %g\\n'", cluster.name_server, **environment)
    assert done.returncode == 0, done.stderr
    done = shell("orbitmq topic status ü", cluster.name_server, **environment)
    assert done.returncode != 0
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-"])
def test_a_server_starts_without_any(closed: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    line = f"exec {COMMAND} nameserver --port {port} --set kvConfigPath={tmp_path}/kv.json {closed}"
    server = subprocess.Popen(["bash", "-c", line])
    try:
        until_it_listens(server, port)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(LIMIT_S)
    assert code == 0


def until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    """Return when the server listens: it has set its handlers of signals before."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, "it serves"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_of_a_program_without_streams_sends(cluster: RunningCluster) -> None:
    program = (
        "from orbitmq import Message; from orbitmq.sync import Producer; import sys; "
        "p = Producer('g', name_servers=sys.argv[1]); p.start(); p.send(Message('closed', b'x')); p.close()"
    )
    line = f'{sys.executable} -c "{program}" {cluster.name_server} <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", line], timeout=LIMIT_S, check=False).returncode == 0
