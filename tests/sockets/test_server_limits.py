"""Limits of a broker's ports, met by more sockets than they allow."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Message
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Admin, Producer

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
OPEN_FILES = 600
LIMIT_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str, str, Path]]:
    """A name server and a broker whose process may open 600 files; their addresses, that of the broker's HA
    port, and what they warn of.
    """
    name_server, broker, ha = free_ports(3)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((SOURCE, os.environ.get("PYTHONPATH", "")))}
    warned = tmp_path / "stderr"

    def start(kind: str, *settings: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "orbitmq", kind]
        for setting in ("bindAddress=127.0.0.1", *settings):
            command += ["--set", setting]
        with warned.open("a") as errors:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, OPEN_FILES)),
            )
        assert process.stdout is not None
        assert "serves" in process.stdout.readline()
        return process

    processes = [
        start("nameserver", f"listenPort={name_server}", f"configStorePath={tmp_path / 'ns.properties'}")
    ]
    try:
        processes.append(
            start(
                "broker",
                f"listenPort={broker}",
                f"namesrvAddr=127.0.0.1:{name_server}",
                f"storePathRootDir={tmp_path / 'store'}",
                "brokerIP1=127.0.0.1",
                f"haListenPort={ha}",
                "grpcServerPort=0",
            )
        )
        yield f"127.0.0.1:{name_server}", f"127.0.0.1:{broker}", f"127.0.0.1:{ha}", warned
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def connected(address: str, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), LIMIT_S, source_address=(source, 0))


@pytest.mark.behaviour("LM-03")
def test_strangers_leave_the_store_its_descriptors(server: tuple[str, str, str, Path]) -> None:
    name_server, broker, ha, warned = server
    assert f"maxConnections is {OPEN_FILES // 2} instead of 10000" in warned.read_text()
    with Admin(name_server) as admin:  # the broker may serve before name servers know it
        until = time.monotonic() + LIMIT_S
        while not admin.brokers.list():
            assert time.monotonic() < until
            time.sleep(0.05)
    with Producer("limits", name_servers=name_server, timeout=LIMIT_S) as producer:
        producer.send(Message("limits-before", b"x"))
        # The HA port has a share of the broker's connections, of which no address gets all.
        strangers = [connected(ha, f"127.0.1.{1 + number % 9}") for number in range(OPEN_FILES)]
        until = time.monotonic() + LIMIT_S
        while sum(not _is_closed(stranger, 0.01) for stranger in strangers) > OPEN_FILES // 2 // 8:
            assert time.monotonic() < until
        for stranger in strangers:
            stranger.close()
        strangers = [connected(broker) for _ in range(OPEN_FILES)]
        assert all(_is_closed(stranger, LIMIT_S) for stranger in strangers[OPEN_FILES // 2 :])
        assert not _is_closed(strangers[0], 0.01)
        # Files of the index and of further queues are opened now.
        for number in range(20):
            producer.send(Message("limits-before", b"x", keys=str(number)))
        for stranger in strangers:
            stranger.close()
    assert f"all {OPEN_FILES // 2} connections are in use" in warned.read_text()
    assert "Too many open files" not in warned.read_text()


def _is_closed(connection: socket.socket, timeout_s: float) -> bool:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
