"""Real processes and real sockets: children start, are watched, and end; a cluster of them serves."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from orbitmq.admin import Admin
from orbitmq.cluster.layout import ClusterError
from orbitmq.cluster.local import LocalCluster
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.runtime import system_runtime
from orbitmq.runtime.ports import free_ports, release
from orbitmq.runtime.processes import ChildProcess, ProcessError

LIMIT_SECONDS = 180


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT_SECONDS))


def test_a_child_ends_on_sigterm_and_its_output_is_kept() -> None:
    async def main() -> None:
        script = "import time; print('up', flush=True); print('x' * 200_000, flush=True); time.sleep(60)"
        child = await ChildProcess.start("sleeper", [sys.executable, "-c", script])
        while "up" not in child.last_lines:
            await asyncio.sleep(0.01)
        assert child.exit_code is None
        assert await child.stop(5) == -signal.SIGTERM
        assert await child.stop(5) == -signal.SIGTERM, "stopping twice is no error"

    run(main())


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    async def main() -> None:
        script = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "print('up', flush=True); time.sleep(60)"
        )
        child = await ChildProcess.start("stubborn", [sys.executable, "-c", script])
        while "up" not in child.last_lines:
            await asyncio.sleep(0.01)
        assert await child.stop(0.2) == -signal.SIGKILL

    run(main())


def test_a_child_that_fails_shows_its_last_lines() -> None:
    async def main() -> None:
        child = await ChildProcess.start("bad", [sys.executable, "-c", "print('why'); raise SystemExit(3)"])
        assert await child.wait() == 3
        assert str(child.ended()) == "bad ended with exit code 3\nwhy"
        with pytest.raises(ProcessError, match="cannot start /no/such"):
            await ChildProcess.start("none", ["/no/such"])

    run(main())


def test_children_do_not_outlive_a_killed_parent() -> None:
    script = """
import asyncio, sys, time
from orbitmq.runtime.processes import ChildProcess
async def main():
    child = await ChildProcess.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    source = str(Path(sys.modules["orbitmq"].__file__ or "").parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + LIMIT_SECONDS
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether the process exists and is not a zombie waiting for its new parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_free_ports_are_different_and_free() -> None:
    ports = sorted(free_ports(5))
    assert all(second - first >= 4 for first, second in itertools.pairwise(ports))
    release(ports)


def test_a_port_that_was_given_is_not_given_to_another_process_though_nobody_listens() -> None:
    """A cluster's name server found its port taken by a test that ran beside it."""
    (port,) = free_ports(1)
    claims = f"from orbitmq.runtime.ports import claim; print(claim(range({port}, {port + 1})))"

    def claimed_elsewhere() -> str:
        return subprocess.run(
            [sys.executable, "-c", claims], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert claimed_elsewhere() == "False"
    release([port])
    assert claimed_elsewhere() == "True"


def test_a_cluster_of_processes_serves_and_survives_a_kill(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            ProcessCluster(brokers=2, root=str(tmp_path)) as cluster,
            Admin(cluster.name_server) as admin,
        ):
            await admin.topics.create("TopicA", queues=2)
            assert len((await admin.topics.status("TopicA")).whole()) == 4
            addresses = dict(cluster.brokers)
            await cluster.stop_broker("broker-a", kill=True)
            while len(await admin.brokers.list()) == 2:
                await asyncio.sleep(0.01)
            await cluster.start_broker("broker-a")
            assert {b.name: b.address for b in await admin.brokers.list()} == addresses
            processes = list(cluster.processes.values())
        assert [process.exit_code for process in processes] == [0, 0, 0]

    run(main())


def test_a_process_that_ends_at_once_is_the_error_of_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = ProcessCluster(brokers=1, root=str(tmp_path), settings={"flushDiskType": "NEVER"})
        with pytest.raises(ClusterError, match="flushDiskType=NEVER"):
            await cluster.start()
        assert not cluster.processes

    run(main())


def test_a_taken_name_server_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            cluster = ProcessCluster(brokers=1, root=str(tmp_path), name_server_port=port)
            with pytest.raises(ClusterError, match=f"port {port} of the name server is in use"):
                await cluster.start()
            assert not cluster.processes

    run(main())


def test_processes_run_under_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with ProcessCluster(brokers=1, root=str(tmp_path)) as cluster:
            processes = list(cluster.processes.values())
        assert [process.exit_code for process in processes] == [0, 0]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_an_embedded_cluster_serves_on_loopback(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            LocalCluster(system_runtime(), brokers=1, root=str(tmp_path)) as cluster,
            Admin(cluster.name_server) as admin,
        ):
            await admin.topics.create("TopicA", queues=2)
            assert len((await admin.topics.status("TopicA")).whole()) == 2

    run(main())
