"""A broker process that has much to recover: it says so at once, and ends at once when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.runtime.ports import free_ports
from orbitmq.runtime.system import system_runtime
from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
RECORDS = 300_000
LIMIT_S = 60.0


def store_that_was_killed(folder: str) -> None:
    """Records that no checkpoint knows."""

    async def write() -> None:
        config = StoreConfig(
            root=folder, sync_flush=False, checkpoint_interval_ms=3_600_000, index=False,
            commit_log_file_bytes=128 << 20,
        )  # fmt: skip
        store = MessageStore(system_runtime(), config)
        await store.start()
        store.set_topic("T", read_queues=4, write_queues=4, perm=6)
        for number in range(RECORDS // 200):
            store.put_many([NewMessage("T", number % 4, b"x" * 50, b"") for _ in range(200)])
            await asyncio.sleep(0)
        os._exit(0)

    asyncio.run(write())


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    # Uncompiled, so that the recovery takes some seconds on any machine.
    environment = {**os.environ, "PYTHONPATH": path, "ORBITMQ_PURE": "1"}
    here = Path(__file__)
    subprocess.run(
        [sys.executable, "-c", f"from {here.stem} import *; store_that_was_killed({str(tmp_path)!r})"],
        cwd=here.parent, env={**environment, "ORBITMQ_PURE": ""}, check=True,
    )  # fmt: skip
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "orbitmq", "broker", "--set", f"storePathRootDir={tmp_path}"]
    ports = (f"listenPort={port}", "haListenPort=0", "grpcServerPort=0")
    for setting in (*ports, "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=134217728"):
        command += ["--set", setting]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    # On a busy machine the test gets a processor before the broker has recovered.
    os.setpriority(os.PRIO_PROCESS, process.pid, 5)
    yield process, port
    process.kill()
    process.communicate()


def first_answer(port: int) -> Command:
    """The answer to the first request that the port accepts."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            with BlockingConnection(f"127.0.0.1:{port}", timeout_ms=30_000) as connection:
                return connection.request(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        except TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_it_refuses_at_once_and_obeys_a_signal(recovering: tuple[subprocess.Popen[str], int]) -> None:
    process, port = recovering
    answer = first_answer(port)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "is starting" in (answer.remark or "")
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    # The broker prints a line when it serves; without the line it stopped before.
    assert printed == ""
