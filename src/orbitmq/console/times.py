"""Reads the times that people enter in forms. Pure."""

from __future__ import annotations

import re
from typing import Final

from orbitmq.errors import ValidationError
from orbitmq.message.numbers import instant_ms

_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def time_ms(field: str, text: str, now_ms: int) -> int:
    """Milliseconds since the epoch, from a time (2026-11-21T14:00 in UTC, or 13 digits) or an age (10m).

    Raises:
        ValidationError: the text is neither.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(1, now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    try:
        return instant_ms(text)
    except ValueError as error:
        raise ValidationError(
            f"{field}: {text[:80]}: expected a time, or how long ago (10m); it {error}"
        ) from error
