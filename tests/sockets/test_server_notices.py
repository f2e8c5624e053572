"""Servers under systemd: what the processes tell it, as a socket of the test hears it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
NAME_SERVER = ("nameserver", "kvConfigPath={folder}/kv.json", "listenPort=0")
BROKER = (
    "broker", "storePathRootDir={folder}/store", "listenPort=0", "grpcServerPort=0", "haListenPort=0",
    "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1048576",
)  # fmt: skip
both = pytest.mark.parametrize("server", [NAME_SERVER, BROKER], ids=["name server", "broker"])


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def start(server: tuple[str, ...], folder: Path, heard: socket.socket) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orbitmq", server[0]]
    for setting in server[1:]:
        command += ["--set", setting.format(folder=folder)]
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": heard.getsockname()}
    environment |= {"WATCHDOG_USEC": "200000"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def until(heard: socket.socket, notice: str) -> list[str]:
    """The lines of all notices up to the one with this line."""
    found: list[str] = []
    while notice not in found:
        found += heard.recv(4096).decode().split("\n")
    return found


def left(heard: socket.socket) -> list[str]:
    """The lines of the notices that are there."""
    heard.setblocking(False)
    found: list[str] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found += heard.recv(4096).decode().split("\n")
    return found


@pytest.mark.behaviour("CS-15")
@both
def test_a_server_says_that_it_serves_lives_and_stops(
    server: tuple[str, ...], tmp_path: Path, heard: socket.socket
) -> None:
    process = start(server, tmp_path, heard)
    try:
        begin = until(heard, "READY=1")
        assert begin[0] == "STATUS=starting"
        assert "WATCHDOG=1" not in begin
        assert process.stdout is not None
        assert begin[-1] == f"STATUS={process.stdout.readline().strip()}"
        until(heard, "WATCHDOG=1")
        until(heard, "WATCHDOG=1")
        process.terminate()
        until(heard, "STOPPING=1")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "NOTIFY_SOCKET" not in errors
        assert left(heard) == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.behaviour("CS-15")
def test_a_server_that_hangs_gives_no_sign_of_life(tmp_path: Path, heard: socket.socket) -> None:
    process = start(NAME_SERVER, tmp_path, heard)
    try:
        until(heard, "READY=1")
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        left(heard)
        time.sleep(0.5)
        assert left(heard) == []
        process.send_signal(signal.SIGCONT)
        heard.settimeout(60)
        until(heard, "WATCHDOG=1")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.behaviour("CS-15")
def test_a_start_that_fails_never_says_that_it_serves(tmp_path: Path, heard: socket.socket) -> None:
    (tmp_path / "store").write_text("a file in the place of the folder")
    process = start(BROKER, tmp_path, heard)
    try:
        _, errors = process.communicate(timeout=60)
        assert process.returncode != 0, errors
        assert "READY=1" not in left(heard)
    finally:
        process.kill()
        process.communicate()
