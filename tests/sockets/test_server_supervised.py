"""A broker under a watchdog: killed, hung, stopped and back while messages are sent, nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq import ConsumeFrom, Message
from orbitmq.errors import OrbitError
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Producer, SimpleConsumer

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
WATCHDOG_S = 2.0
LIMIT_S = 120.0


class Supervisor:
    """Does what systemd does for the unit: waits for READY=1, watches, and starts again what did not stop.

    Attributes:
        starts: how often the broker has begun to serve.
        missed: how often it gave no sign of life in time.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._log = folder / "broker.log"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
        self._environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONFAULTHANDLER": "1",
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": str(int(WATCHDOG_S * 1_000_000)),
        }
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = self.missed = 0

    def start(self) -> None:
        """Start the broker, as `systemctl start`: returns when it serves."""
        self._stopping = False
        before = self.starts
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_for(lambda: self.starts > before)

    def stop(self) -> None:
        """Stop the broker, as `systemctl stop`: returns when it has ended."""
        self._stopping = True
        if self.process is not None and self._thread is not None:
            self.process.terminate()
            self._thread.join(LIMIT_S)

    def close(self) -> None:
        self._stopping = True
        if self.process is not None and self._thread is not None:
            self.process.kill()
            self._thread.join(LIMIT_S)
        self._socket.close()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _run(self) -> None:
        while not self._stopping:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
                self._watch(self.process)
                self.process.wait()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        limit_s, last = LIMIT_S, time.monotonic()
        while process.poll() is None:
            self._socket.settimeout(0.05)
            try:
                notice = self._socket.recv(4096).split(b"\n")
            except TimeoutError:
                if time.monotonic() - last > limit_s:
                    self.missed += 1
                    process.send_signal(signal.SIGABRT)
                    process.send_signal(signal.SIGCONT)
                    return
                continue
            last = time.monotonic()
            if b"READY=1" in notice:
                self.starts += 1
                limit_s = WATCHDOG_S
            elif b"STOPPING=1" in notice:
                limit_s = LIMIT_S


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Load:
    """Sends numbers until it is told to stop; keeps those that were acknowledged."""

    def __init__(self, name_servers: str) -> None:
        self.stored: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(name_servers,))
        self._thread.start()

    def _run(self, name_servers: str) -> None:
        with Producer("shop", name_servers=name_servers) as producer:
            number = 0
            while not self._end.is_set():
                number += 1
                try:
                    producer.send(Message("orders", str(number)))
                except OrbitError:
                    self._end.wait(0.1)
                else:
                    self.stored.append(number)

    def more(self) -> None:
        """Return when twenty more are stored."""
        before = len(self.stored)
        wait_for(lambda: len(self.stored) >= before + 20)

    def end(self) -> None:
        self._end.set()
        self._thread.join(LIMIT_S)


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """The address of a name server, which knows no other broker than the test's."""
    command = [sys.executable, "-m", "orbitmq", "nameserver", "--set", f"kvConfigPath={tmp_path}/kv.json"]
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    (port,) = free_ports(1)
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.behaviour("CS-15")
def test_a_broker_that_is_killed_hangs_and_is_upgraded_loses_nothing(
    tmp_path: Path, name_server: str
) -> None:
    port, ha_port = free_ports(2)
    command = [sys.executable, "-m", "orbitmq", "broker"]
    for setting in (
        f"namesrvAddr={name_server}", "brokerName=watched", f"listenPort={port}", f"haListenPort={ha_port}",
        f"storePathRootDir={tmp_path}/store", "brokerIP1=127.0.0.1", "grpcServerPort=0",
        "mappedFileSizeCommitLog=1048576",
    ):  # fmt: skip
        command += ["--set", setting]
    supervisor = Supervisor(command, tmp_path)
    try:
        supervisor.start()
        load = Load(name_server)
        try:
            load.more()
            for wound in (signal.SIGKILL, signal.SIGSTOP):
                before = supervisor.starts
                assert supervisor.process is not None
                supervisor.process.send_signal(wound)
                wait_for(lambda before=before: supervisor.starts > before)  # type: ignore[misc]
                load.more()
            supervisor.stop()  # the upgrade
            supervisor.start()
            load.more()
        finally:
            load.end()
        assert supervisor.missed >= 1
        assert "Fatal Python error: Aborted" in supervisor.log
        with SimpleConsumer("billing", name_servers=name_server, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("orders")
            missing = set(load.stored)
            end = time.monotonic() + LIMIT_S
            while missing and time.monotonic() < end:
                # On a busy machine the watchdog may end the broker once more: its messages come again.
                with contextlib.suppress(OrbitError):
                    for message in consumer.receive(32, 300, wait=5):
                        missing.discard(int(message.body))
                        message.ack()
        assert not missing
    finally:
        supervisor.close()
