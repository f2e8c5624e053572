"""Reads times given by users: durations in seconds or as a timedelta, instants as a datetime with a zone."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from datetime import datetime as datetime  # for annotations in modules that may not read the clock
from typing import TypeAlias

from orbitmq.errors import ValidationError

Duration: TypeAlias = float | timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The longest delay that clients accept for a message; brokers accept 3 days by default (timerMaxDelaySec).
MAX_DELAY_S = 3650 * 24 * 3600


def seconds(name: str, value: object, least: float, most: float, *, above: bool = False) -> float:
    """A duration that a user gave, in seconds.

    Args:
        name: the duration's name in the error.
        least: the shortest duration in seconds; with ``above`` the duration must exceed it.
        most: the longest duration in seconds.

    Raises:
        ValidationError: the duration is out of its range; the text names the duration, range and unit.
    """
    wanted = f"above {least:,} to {most:,} seconds" if above else f"{least:,} to {most:,} seconds"
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValidationError(f"{name} must be {wanted}, as a number or a timedelta, got {shown(value)}")
    if not least <= number <= most or (above and number == least):
        hint = ""
        if number is value and max(most, least * 1000) < number <= most * 1000:
            given, written = f"{number:,.3f}", f"{number / 1000:.6f}"
            hint = f"; time is in seconds here: for {_short(given)} milliseconds write {_short(written)}"
        raise ValidationError(f"{name} must be {wanted}, got {shown(value)}{hint}")
    return float(number)


def _short(number: str) -> str:
    """A number without zeros at the end of its fraction."""
    return number.rstrip("0").rstrip(".")


def as_seconds(value: Duration) -> float:
    """A duration in seconds, whose range was checked before."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def milliseconds(value: Duration) -> int:
    """A duration in whole milliseconds, as brokers get it, rounded up."""
    return math.ceil(round(as_seconds(value) * 1000, 6))


def instant_ms(name: str, value: object) -> int:
    """An instant that a user gave, in milliseconds since 1970.

    Raises:
        ValidationError: the value is not a datetime with a time zone, or is before 1970.
    """
    example = "such as datetime.now(timezone.utc) + timedelta(minutes=5)"
    if not isinstance(value, datetime):
        raise ValidationError(f"{name} must be a datetime with a time zone, {example}, got {shown(value)}")
    if value.utcoffset() is None:
        raise ValidationError(
            f"{name} must have a time zone, {example}; {value!r} has none: "
            "astimezone() gives it this machine's"
        )
    if value < EPOCH:
        raise ValidationError(f"{name} must be an instant from 1970 to 9999, got {value!r}")
    return since_1970_ms(value)


def since_1970_ms(at: datetime) -> int:
    """An instant in whole milliseconds since 1970."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def instant(at_ms: int) -> datetime:
    """The instant this many milliseconds after 1970, in UTC."""
    return EPOCH + timedelta(milliseconds=at_ms)


def shown(value: object) -> str:
    """A user's value for an error text, shortened. A number may have too many digits for ``repr``."""
    try:
        text = repr(value)
    except ValueError:
        return "a number with too many digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
