"""A server process and its signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from orbitmq.cli.failures import EXIT_OK
from orbitmq.cli.serve import _until_stopped


class SlowServer:
    """A server whose start takes half a minute."""

    port = 1

    def __init__(self, start_s: float = 30.0) -> None:
        self.start_s = start_s
        self.seen: list[str] = []

    async def start(self) -> None:
        try:
            await asyncio.sleep(self.start_s)
        except asyncio.CancelledError:
            self.seen.append("start given up")
            raise
        self.seen.append("started")

    async def stop(self) -> None:
        self.seen.append("stopped")


def serve(server: SlowServer) -> int:
    async def main() -> int:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(_until_stopped(lambda: server, lambda _server: "it serves"), 5)

    return asyncio.run(main())


def test_a_signal_ends_a_start_that_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    server = SlowServer()
    assert serve(server) == EXIT_OK
    assert server.seen == ["start given up"]
    assert capsys.readouterr().out == ""


def test_a_signal_stops_a_server_that_serves(capsys: pytest.CaptureFixture[str]) -> None:
    server = SlowServer(start_s=0.0)
    assert serve(server) == EXIT_OK
    assert server.seen == ["started", "stopped"]
    assert capsys.readouterr().out == "it serves\n"


def test_a_start_that_fails_says_so() -> None:
    server = SlowServer()

    async def fails() -> None:
        raise OSError("the disk is gone")

    server.start = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk is gone"):
        serve(server)


@pytest.mark.behaviour("ST-04")
def test_a_server_may_open_as_many_files_as_the_system_grants() -> None:
    script = """
import resource
from orbitmq.cli import serve
from orbitmq.runtime.log_output import Output
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, min(hard, 4096)))
class Server:
    port = 1
    async def start(self):
        print(*resource.getrlimit(resource.RLIMIT_NOFILE))
        raise SystemExit
try:
    serve._serve(Server, lambda server: "", Output())
except SystemExit:
    pass
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    soft, hard = told.stdout.split()
    assert soft == hard
