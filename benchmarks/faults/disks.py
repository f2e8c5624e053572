"""Slow or full disks, without root: for one process, while it runs."""

from __future__ import annotations

import resource
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_disk.c")
# More than the header of a file, and less than the size that any file of a broker reaches.
FULL_BYTES = 4096


class SlowDisks:
    """Disks whose flushes can be delayed, one for each name.

    Args:
        folder: the folder for the compiled shim and its control files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shim = folder / "slow_disk.so"

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a process that uses this disk.

        Raises:
            subprocess.CalledProcessError: there is no C compiler.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._shim.exists():
            command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(self._shim), str(SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
        self.hold_up(name, 0.0)
        return {"LD_PRELOAD": str(self._shim), "SLOW_DISK": str(self._control(name))}

    def hold_up(self, name: str, seconds: float) -> None:
        """Make each later flush take this much longer."""
        with self._control(name).open("r+b" if self._control(name).exists() else "wb") as file:
            file.write(struct.pack("=q", int(seconds * 1e6)))

    def _control(self, name: str) -> Path:
        return self._folder / f"{name}.delay"


def fill(pid: int) -> None:
    """Let no file of a process grow: its writes fail with EFBIG, as they would with ENOSPC on a full disk."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))


def free(pid: int) -> None:
    """Undo :func:`fill`."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
