"""CPU time and memory of the processes of a session, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

TICKS: int = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.2


def _stat(pid: str) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty if the process is gone."""
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
    """User and system time of a session's processes, including ended processes that were waited for."""
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in session_members(session))
    return ticks / TICKS


def session_rss_mb(session: int) -> float:
    """The anonymous memory of a session's processes, without files and pages shared by forking."""
    total = 0
    for pid, _ in session_members(session):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon"))
    return total / 1024


def machine_cpu_s() -> float:
    """The CPU time that all processors have spent so far."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft = map(int, fields[:7])
    return (user + nice + system + irq + soft) / TICKS


class MemoryWatch:
    """Records the most memory of a session while the watch is open."""

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
