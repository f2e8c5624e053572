"""Log lines that a peer can cause as often as it likes, written at most once a second."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

PERIOD_S = 1.0


@dataclass(slots=True)
class _Suppressed:
    """What was left out of the log since the last line of one kind."""

    count: int = 0
    level: int = logging.INFO
    last: str = ""


class LogLimiter:
    """Writes the first line of a kind at once, then at most one line a second for that kind.

    What is left out is counted: one line at the end of the second says how many lines there were and shows
    the last of them. To be used on the event loop.

    Args:
        log: where the lines go.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: dict[str, _Suppressed] = {}

    def write(
        self, level: int, kind: str, text: str, *args: object, error: BaseException | None = None
    ) -> None:
        """Write or count one line.

        Args:
            level: of ``logging``.
            kind: lines of one kind share a second; take it from the program, never from a peer.
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

    def _plan(self, kind: str) -> None:
        asyncio.get_running_loop().call_later(PERIOD_S, self._end_period, kind)

    def _end_period(self, kind: str) -> None:
        left_out = self._kinds.pop(kind)
        if not left_out.count:
            return
        summary = "%s: %d more within a second, the last: %s"
        self._log.log(left_out.level, summary, kind, left_out.count, left_out.last)
        self._kinds[kind] = _Suppressed()
        self._plan(kind)
