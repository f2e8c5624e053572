"""An official client's program that runs while a cell of `make interop-grpc` does something else."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable

from benchmarks.servers import child_settings
from tests.interop.grpc_clients import LIMIT_S, Client, Line


class Running:
    """A client's program while it runs; its lines arrive in order."""

    def __init__(self, client: Client, role: str, endpoint: str, topic: str, group: str, count: int) -> None:
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*client.command, role, endpoint, topic, group, str(count)],
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
                    self.lines.append(json.loads(line))
                    self._changed.notify_all()

    def bodies(self, name: str) -> list[str]:
        with self._changed:
            return [line[name] for line in self.lines if name in line]

    def wait_for(self, done: Callable[[], bool]) -> bool:
        """Whether it is done before the limit."""
        with self._changed:
            return self._changed.wait_for(done, LIMIT_S)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
