"""Messages delivered before a start, whose units in the timer log do not count (no I/O)."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.broker.timers import units
from orbitmq.broker.timers.progress import TimerProgress, mark

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class AlreadyDelivered:
    """The messages and recalls that were delivered, or stored again, before the start.

    Attributes:
        progress: the deliveries before the start.
        unread_ms: the store time of the first message that has not been looked at.
    """

    progress: TimerProgress = field(default_factory=TimerProgress)
    unread_ms: int = NEVER_MS

    def has(self, unit: units.Unit) -> bool:
        """Whether the message of a unit was delivered or stored again."""
        due_ms = units.due_ms(unit.out_ms, unit.extra)
        return self.would_have(unit.magic, unit.out_ms, due_ms, unit.physical)

    def would_have(self, magic: int, out_ms: int, due_ms: int, physical: int) -> bool:
        """Whether the message for this place was delivered or stored again.

        A recall counts until the last message of its slot is delivered. A copy for the rest of a long wait is
        stored before it is due, so a slot after ``unread_ms`` may get a copy that was not looked at yet.
        """
        if magic & units.DELETE:
            latest_ms = units.latest_ms(out_ms)
            return self.progress.passed(latest_ms, physical) and latest_ms <= self.unread_ms
        return self.progress.delivered(mark(due_ms, physical))
