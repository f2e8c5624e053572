"""What was delivered before a start: its unit in the timer log counts no more (no I/O)."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.broker.timers import units
from orbitmq.broker.timers.progress import Progress, mark

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Over:
    """The messages and recalls that need no look.

    Attributes:
        progress: what was delivered.
        unread_ms: when the first message was stored that nobody had looked at.
    """

    progress: Progress = field(default_factory=Progress)
    unread_ms: int = NEVER_MS

    def has(self, unit: units.Unit) -> bool:
        """Whether the message of a unit is one of them."""
        due_ms = units.due_ms(unit.out_ms, unit.extra)
        return self.would_have(unit.magic, unit.out_ms, due_ms, unit.physical)

    def would_have(self, magic: int, out_ms: int, due_ms: int, physical: int) -> bool:
        """The same for where a message is to wait.

        A recall is done with the last message of its slot, not before it. And a copy of a long wait is stored
        before it is due, so one that nobody has looked at may be there for slots behind ``unread_ms``.
        """
        if magic & units.DELETE:
            latest_ms = units.latest_ms(out_ms)
            return self.progress.passed(latest_ms, physical) and latest_ms <= self.unread_ms
        return self.progress.delivered(mark(due_ms, physical))
