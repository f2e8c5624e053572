"""The processes of the demo: JSON lines come out of them, the word ``finish`` goes in."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The lines of a child's log that are shown when it fails.
LOG_LINES = 12
LINE_LIMIT_BYTES = 16 << 20
# How long a process gets to end by itself; the cluster stops its servers meanwhile.
STOP_S = 20.0


class ChildError(Exception):
    """A process of the demo ended before its time."""


class Child:
    """One process of the demo.

    Args:
        name: names its log file ``<out>/<name>.log``.
        out: the demo's folder.
        on_line: called with each JSON line that it prints.
    """

    def __init__(self, name: str, out: Path, on_line: Callable[[dict[str, Any]], None]) -> None:
        self.name = name
        self.log = out / f"{name}.log"
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self, module: str, *arguments: str) -> None:
        """Run ``python -m <module>`` with these arguments."""
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LINE_LIMIT_BYTES,
            )
        self._reader = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"{"):
                self._on_line(json.loads(line))

    def check(self) -> None:
        """Raise ChildError if it is not running any more."""
        code = None if self._process is None else self._process.returncode
        if code is not None:
            raise ChildError(f"{self.name} ended with code {code}; the end of {self.log}:\n{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join("  " + line for line in lines[-LOG_LINES:])

    def tell(self, word: str) -> None:
        """Write one line to its standard input. Errors as with :meth:`check`."""
        self.check()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def finish(self, timeout_s: float) -> None:
        """Tell it to finish and wait until it has.

        Raises:
            ChildError: it ended with an error, or not in time.
        """
        self.tell("finish")
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        try:
            async with asyncio.timeout(timeout_s):
                await reader
                code = await process.wait()
        except TimeoutError:
            raise ChildError(f"{self.name} did not finish in {timeout_s:.0f} s, see {self.log}") from None
        if code:
            raise ChildError(f"{self.name} failed with code {code}; the end of {self.log}:\n{self._tail()}")

    async def stop(self) -> None:
        """End it, and kill it when it does not end in time."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)


def say(**facts: Any) -> None:
    """Print one JSON line to the parent."""
    print(json.dumps(facts), flush=True)
