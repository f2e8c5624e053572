"""Which messages of the slots that have begun were taken back (TW-10). No I/O."""

from __future__ import annotations

from orbitmq.broker.timers.forms import Timer
from orbitmq.broker.timers.units import SECOND_MS


class Recalled:
    """Recalled keys by second: if ``timerPrecisionMs`` was changed, a recall may have an earlier slot than
    its message."""

    def __init__(self) -> None:
        self._keys: dict[int, set[str]] = {}

    def note(self, recall: Timer) -> None:
        """Note a recall whose slot has begun."""
        if recall.deletes is not None:
            self._keys.setdefault(recall.out_ms // SECOND_MS, set()).add(recall.deletes)

    def has(self, timer: Timer) -> bool:
        """Whether a message was taken back."""
        return timer.key in self._keys.get(timer.out_ms // SECOND_MS, ())

    def pass_by(self, out_ms: int) -> None:
        """Forget the recalls of the slot of this time, which has ended."""
        self._keys.pop(out_ms // SECOND_MS, None)

    def forget(self) -> None:
        """Forget all recalls."""
        self._keys.clear()
