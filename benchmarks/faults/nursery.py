"""Brokers that start without imports: they are forked from a process that has imported all their modules.

The import of all modules takes most of a broker's start, half a second of CPU, and does not matter for the
recovery of a killed broker from its disk. Each broker is still a separate process that shares only the files
with its predecessor.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.servers import ROOT, Ours, Server, broker_properties, child_settings, write_properties

MODULES = (
    "uvloop",
    "orbitmq.cli.serve",
    "orbitmq.cluster.brokers",
    "orbitmq.runtime.store_files",
    "orbitmq.runtime.system",
)


class Forked:
    """A process that is not a child of this one: like :class:`subprocess.Popen`, but without the exit
    code.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self.returncode = 0  # the process ended before this call

    def poll(self) -> int | None:
        """0 if the process has ended, whatever its exit code."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            subprocess.TimeoutExpired: the process did not end in time.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked broker", timeout or 0.0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], timeout_s)[0]:
            self.returncode = 0
            os.close(self._handle)
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)


class Nursery:
    """The process that forks brokers. The brokers end with it.

    Args:
        preload: a library for LD_PRELOAD, for this process and the brokers.
    """

    def __init__(self, preload: Path | None = None) -> None:
        more = {} if preload is None else {"LD_PRELOAD": str(preload)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faults.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **more},
            preexec_fn=child_settings,
        )

    def start(
        self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None, planted: str = ""
    ) -> Forked:
        """Run a command of ``orbitmq`` in a separate process.

        Args:
            planted: ``module:function``, which is called first in the process and plants a bug.
        """
        asked, told = self._pipes()
        wanted = {"arguments": list(arguments), "log": str(log), "env": dict(env or {}), "planted": planted}
        asked.write(json.dumps(wanted) + "\n")
        asked.flush()
        return Forked(int(told.readline()))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def close(self) -> None:
        for pipe in self._pipes():
            pipe.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def nursery(preload: Path | None = None, planted: str = "") -> Iterator[OursForked]:
    """OrbitMQ's servers, with brokers from a nursery that ends with the block."""
    opened = Nursery(preload)
    try:
        yield OursForked(nursery=opened, planted=planted)
    finally:
        opened.close()


@dataclass(frozen=True)
class OursForked(Ours):
    """OrbitMQ's servers, with brokers that are forked from the nursery."""

    nursery: Nursery = field(kw_only=True)
    planted: str = ""

    def broker(
        self, folder: Path, name_server: str, *, port: int = 0, name: str = "broker-a", **more: object
    ) -> Server:
        """Start a broker without waiting for it."""
        settings = {"grpcServerPort": "0"}
        settings |= {key: value for key, value in more.items() if isinstance(value, str)}
        properties = broker_properties(port, folder / "store", name_server, name=name, **settings)
        conf = write_properties(folder / f"{name}.conf", properties)
        log = folder / f"our-{name}.log"
        process = self.nursery.start(["broker", "-c", str(conf)], log, self.env, self.planted)
        return Server(log.stem, process, port, log)


def main() -> None:
    """Fork a process for each line of standard input."""
    for module in MODULES:
        importlib.import_module(module)
    # Frozen, imported objects are never visited by the collector, and their pages stay shared.
    gc.freeze()
    # Ended processes are reaped without a wait.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(**asked)
        print(pid)


def _become(arguments: list[str], log: str, env: dict[str, str], planted: str) -> None:
    """Run a command in the forked process; never returns."""
    code = 1
    try:
        child_settings()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, number)
        os.environ.update(env)
        if planted:
            module, _, function = planted.partition(":")
            getattr(importlib.import_module(module), function)()
        from orbitmq.cli.main import main as orbitmq

        code = orbitmq(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
