"""Log lines that a peer or a broken disk causes again and again, written at most once in a while."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from orbitmq.runtime.log_events import TEMPLATE

PERIOD_S = 1.0


@dataclass(slots=True)
class _Suppressed:
    """The lines that were left out of the log since the last written line of one kind."""

    count: int = 0
    level: int = logging.INFO
    last: str = ""
    template: str = ""


class LogLimiter:
    """Writes the first line of a kind at once, then at most one line a period for that kind.

    The lines left out are counted: one line at the end of the period gives their number and the last of them.
    To be used on the event loop.

    Args:
        log: where the lines go.
        period_s: a second for lines that peers cause; longer for work that is tried again by itself.
    """

    def __init__(self, log: logging.Logger, period_s: float = PERIOD_S) -> None:
        self._log = log
        self._period_s = period_s
        self._period = "a second" if period_s == PERIOD_S else f"{period_s:g} seconds"
        self._kinds: dict[str, _Suppressed] = {}

    def write(
        self, level: int, kind: str, text: str, *args: object, error: BaseException | None = None
    ) -> None:
        """Write or count one line.

        Args:
            level: of ``logging``.
            kind: lines of one kind share a period; take it from the program, never from a peer.
            error: its traceback is written below the line.
        """
        suppressed = self._kinds.get(kind)
        if suppressed is None:
            self._kinds[kind] = _Suppressed()
            self._log.log(level, text, *args, exc_info=error)
            self._plan(kind)
        elif self._log.isEnabledFor(level):
            suppressed.count += 1
            suppressed.level = level
            suppressed.last = text % args
            suppressed.template = text

    def _plan(self, kind: str) -> None:
        asyncio.get_running_loop().call_later(self._period_s, self._end_period, kind)

    def _end_period(self, kind: str) -> None:
        left_out = self._kinds.pop(kind)
        if not left_out.count:
            return
        summary = "%s: %d more within %s, the last: %s"
        values = kind, left_out.count, self._period, left_out.last
        self._log.log(left_out.level, summary, *values, extra={TEMPLATE: left_out.template})
        self._kinds[kind] = _Suppressed()
        self._plan(kind)
