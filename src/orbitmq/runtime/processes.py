"""Starts and stops child processes: for a cluster of real processes and for tests.

Only the composition (command line, cluster, tests) uses this. No server starts a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orbitmq.errors import OrbitError
from orbitmq.runtime.system import require_linux

_TAIL_LINES = 200
_MAX_LINE_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_SOURCE = str(Path(__file__).resolve().parents[2])


class ProcessError(OrbitError):
    """A child could not be started, or ended unexpectedly; the text ends with its last lines of output."""


class ChildProcess:
    """A running child. It gets SIGTERM when the thread that started it ends, however that happens."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Use :meth:`start`."""
        self.name = name
        self._process = process
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._reader = asyncio.get_running_loop().create_task(self._read(), name=f"output of {name}")

    @classmethod
    async def start(
        cls, name: str, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start ``arguments`` (program first); its output is collected.

        Args:
            environment: added to this process's own.

        Raises:
            ProcessError: the program cannot be started.
            StartError: this system is not Linux.
        """
        require_linux()
        _libc()  # loaded here: between fork and exec the child must not import
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                limit=_MAX_LINE_BYTES,
                preexec_fn=_end_with_parent,
            )
        except OSError as error:
            raise ProcessError(f"{name}: cannot start {arguments[0]}: {error}") from error
        return cls(name, process)

    @classmethod
    async def start_python(
        cls, name: str, module: str, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start ``python -m module`` with this interpreter; the child imports the same OrbitMQ.

        Raises:
            ProcessError: the interpreter cannot be started.
        """
        source = _SOURCE
        path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        return await cls.start(
            name,
            (sys.executable, "-m", module, *arguments),
            environment={"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code: None while the child runs, negative when a signal ended it."""
        return self._process.returncode

    @property
    def last_lines(self) -> list[str]:
        """The last lines of the child's output."""
        return list(self._tail)

    async def wait(self) -> int:
        """Wait until the child ends by itself; returns the exit code."""
        await self._process.wait()
        await asyncio.shield(self._reader)
        return self._process.returncode or 0

    async def stop(self, timeout_s: float = 10.0) -> int:
        """End the child with SIGTERM, after ``timeout_s`` with SIGKILL; returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """End the child with SIGKILL; returns the exit code."""
        self.signal(signal.SIGKILL)
        return await self.wait()

    def signal(self, number: int) -> None:
        """Send the child a signal; no error when it has ended already."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def ended(self) -> ProcessError:
        """The error about the child's end, with its exit code and last lines of output."""
        lines = "\n".join(self._tail)
        return ProcessError(f"{self.name} ended with exit code {self.exit_code}\n{lines}".rstrip())

    async def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit: that piece is dropped, reading goes on
                continue
            if not line:
                return
            self._tail.append(line.decode(errors="replace").rstrip())


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Make the child end with its parent; runs in the child before the program.

    In a process group of its own the child does not get the terminal's Ctrl-C: the parent stops its children,
    in the right order.
    """
    os.setpgid(0, 0)
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
