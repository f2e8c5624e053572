"""Times as users type them on the command line."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.failures import UsageError
from orbitmq.durations import instant
from orbitmq.message.numbers import INT32, instant_ms, whole_number

if TYPE_CHECKING:
    from datetime import datetime

_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@Parameter(name="*")
@dataclass(frozen=True)
class Between:
    """Options of the commands that take messages stored within some time.

    Attributes:
        begin: Only messages stored from this time on (2026-11-21T14:00, UTC, or milliseconds, 13 digits), or
            within this span before now (10m; s, m, h, d).
        end: Only messages stored before this time, in the same form.
    """

    begin: Annotated[str | None, Parameter(name=["--from"])] = None
    end: Annotated[str | None, Parameter(name=["--to"])] = None

    @property
    def times(self) -> tuple[datetime | None, datetime | None]:
        """Both times as datetimes; errors as for :attr:`times_ms`."""
        begin_ms, end_ms = self.times_ms
        return (
            None if begin_ms is None else instant(begin_ms),
            None if end_ms is None else instant(end_ms),
        )

    @property
    def times_ms(self) -> tuple[int | None, int | None]:
        """Both times in milliseconds since the epoch; ``None`` for no limit.

        Raises:
            UsageError: an option has no valid time, or the begin is not before the end.
        """
        begin_ms = None if self.begin is None else time_ms(self.begin, "--from")
        end_ms = None if self.end is None else time_ms(self.end, "--to")
        if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
            raise UsageError(f"--from {self.begin} is not before --to {self.end}")
        return begin_ms, end_ms


def time_ms(text: str, option: str, others: str = "") -> int:
    """Parse a time (2026-11-21T14:00, UTC, or 13 digits) or a time span before now (10m); returns
    milliseconds since the epoch.

    Args:
        option: the option that has this value, for the error.
        others: other values that the option accepts, for the error.

    Raises:
        UsageError: the text is neither.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000))
    try:
        return instant_ms(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: expected {others}a time, or how long ago (10m); it {error}"
        ) from error


def rate_per_s(text: str) -> int:
    """Parse a rate of messages per second, such as 500 or 500/s.

    Raises:
        UsageError: the text has another form.
    """
    number = whole_number(text.removesuffix("/s"), INT32)
    if not number:
        raise UsageError(f"--rate {text}: expected messages a second, 1 or more, as 500 or 500/s")
    return number
