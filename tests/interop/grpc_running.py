"""What runs while a cell of `make interop-grpc` does something else: `orbitmq up`, a client, a relay."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults.relay import End, Link
from benchmarks.ports import free_ports
from benchmarks.servers import child_settings
from tests.interop.grpc_clients import LIMIT_S, ROOT, Client, Line


class Door:
    """One address, which leads to the broker that serves now."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        here = End("127.0.0.1", free_ports())
        self._link = Link("door", here, End("127.0.0.1", port))
        self.address = str(here)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wait(self._link.start())

    def lead_to(self, port: int) -> None:
        """New connections go to the broker at this port; those to another one break."""
        self._link.target = End("127.0.0.1", port)
        self._loop.call_soon_threadsafe(self._link.reset)

    def lose_answers(self) -> None:
        """Keep back what the broker says, until :meth:`heal`."""
        self._loop.call_soon_threadsafe(self._link.back.cut)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._link.heal)

    def close(self) -> None:
        self._wait(self._link.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)


@contextmanager
def cluster(folder: Path, *words: str) -> Iterator[dict[str, Any]]:
    """`orbitmq up` with these words, and what it prints."""
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "up",
        "--port",
        "0",
        "--json",
        "--dir",
        str(folder),
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S)


class Running:
    """A client's program while it runs; its lines arrive in order, each with its time in ``at``."""

    def __init__(self, client: Client, role: str, endpoint: str, topic: str, group: str, count: int) -> None:
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*client.command, role, endpoint, topic, group, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=child_settings,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                with self._changed:
                    self.lines.append({**json.loads(line), "at": time.monotonic()})
                    self._changed.notify_all()

    def bodies(self, name: str) -> list[str]:
        with self._changed:
            return [line[name] for line in self.lines if name in line]

    def wait_for(self, done: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
        """Whether it is done before the limit."""
        with self._changed:
            return self._changed.wait_for(done, limit_s)

    def times(self, name: str) -> list[tuple[str, float]]:
        """As :meth:`bodies`, each with its time."""
        with self._changed:
            return [(line[name], line["at"]) for line in self.lines if name in line]

    def go(self) -> None:
        """Let roles go on that wait for a line: late and hold."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def ended(self) -> int:
        """Wait until it has ended; its exit code."""
        return self._process.wait(LIMIT_S)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
