"""The progress of a running job, and the report of a finished one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbitmq.runtime.worker import this_worker

TELL_EVERY_S = 2.0


@dataclass(slots=True)
class Report:
    """The result of a job.

    Attributes:
        job: the job's name.
        summary: the result in one line.
        facts: numbers by name; sizes in bytes, times in seconds.
        headings, rows: a table of details.
        ok: whether no message is missing or doubled.
    """

    job: str
    summary: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    headings: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    ok: bool = True

    @property
    def keys(self) -> list[str]:
        """The headings as names of fields."""
        return [heading.replace(" ", "_") for heading in self.headings]

    def to_json(self) -> dict[str, Any]:
        """The form of ``--json``: facts, and the rows as objects. The summary is for people only."""
        rows = [dict(zip(self.keys, row, strict=True)) for row in self.rows]
        return {"job": self.job, "ok": self.ok, **self.facts, "rows": rows}


# Called with a line of progress. A line replaces the previous one, unless that is a Remark (orbitmq.wording).
Progress = Callable[[str], None]


def silent(line: str) -> None:
    """Show no progress."""


class Teller:
    """Counts the finished rows of a job, and reports the number every two seconds at most.

    Args:
        total: the number of all rows; 0 if it is not known.
    """

    def __init__(self, progress: Progress, what: str, total: int = 0) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._clock = this_worker().clock
        self._began = self._told = self._clock.monotonic()
        self.done = 0

    @property
    def seconds(self) -> float:
        """Seconds since the job began."""
        return self._clock.monotonic() - self._began

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.done / max(self.seconds, 0.001)

    def add(self, rows: int) -> None:
        """Count finished rows."""
        self.done += rows
        now = self._clock.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            of = f" of {self._total:,}" if self._total else ""
            self._progress(f"{self.done:,}{of} {self._what}, {self.rate:,.0f}/s")


def size_text(size_bytes: float) -> str:
    """A size as text, such as ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def duration_text(seconds: float) -> str:
    """A duration as text, such as ``3.4 s``."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
