"""What a job tells while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbitmq.runtime.worker import this_worker

TELL_EVERY_S = 2.0


@dataclass(slots=True)
class Report:
    """What a job did.

    Attributes:
        job: its name.
        summary: one line: what was done, and whether all is well.
        facts: numbers by name; sizes in bytes, times in seconds.
        headings, rows: a table of details.
        good: nothing is missing and nothing is there twice.
    """

    job: str
    summary: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    headings: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    good: bool = True

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it: the rows as objects."""
        names = [heading.replace(" ", "_") for heading in self.headings]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        return {"job": self.job, "good": self.good, "summary": self.summary, **self.facts, "rows": rows}


Tell = Callable[[str], None]


def silent(line: str) -> None:
    """Tell nobody."""


class Teller:
    """Tells how far a job is, every two seconds at most.

    Args:
        total: of how many; 0: not known.
    """

    def __init__(self, tell: Tell, what: str, total: int = 0) -> None:
        self._tell = tell
        self._what = what
        self._total = total
        self._clock = this_worker().clock
        self._began = self._told = self._clock.monotonic()
        self.done = 0

    @property
    def seconds(self) -> float:
        """Since the job began."""
        return self._clock.monotonic() - self._began

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.done / max(self.seconds, 0.001)

    def add(self, rows: int) -> None:
        """So many more are done."""
        self.done += rows
        now = self._clock.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            of = f" of {self._total:,}" if self._total else ""
            self._tell(f"{self.done:,}{of} {self._what}, {self.rate:,.0f}/s")


def size_text(size_bytes: float) -> str:
    """A size as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def duration_text(seconds: float) -> str:
    """A time span as people read it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
