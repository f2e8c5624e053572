"""What the processes of a session use: CPU time and memory, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

TICKS: int = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.2


def _stat(pid: str) -> list[str]:
    """The fields of /proc/PID/stat behind the name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def session_members(session: int) -> Iterator[tuple[str, list[str]]]:
    """The processes of a session, and their fields."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = _stat(entry.name)
            if fields and int(fields[3]) == session:
                yield entry.name, fields


def session_cpu_s(session: int) -> float:
    """User and system time of a session's processes, ended ones that were waited for included."""
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in session_members(session))
    return ticks / TICKS


def session_rss_mb(session: int) -> float:
    """Memory of a session's processes of their own, without files and what they share by forking."""
    total = 0
    for pid, _ in session_members(session):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon"))
    return total / 1024


def machine_cpu_s() -> float:
    """What all processors have worked so far."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft = map(int, fields[:7])
    return (user + nice + system + irq + soft) / TICKS


class MemoryWatch:
    """The most memory of a session while it is open."""

    def __init__(self, session: int) -> None:
        self.peak_mb = 0.0
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, session_rss_mb(self._session))
            if self._stop.wait(SAMPLE_S):
                return
