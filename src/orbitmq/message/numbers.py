"""Numbers and times parsed from text of users, peers and files.

``str.isdigit`` accepts characters that ``int`` refuses (²). ``int`` accepts other scripts' digits, blanks and
underscores, and raises for more than 4,300 digits.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1

_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.IGNORECASE,
)
MS_DIGITS: Final = 13


def whole_number(text: str, most: int = INT64) -> int | None:
    """The number written in ASCII digits, without a sign; ``None`` for other texts and above ``most``."""
    if not is_digits(text) or len(text) > 19:
        return None
    number = int(text)
    return number if number <= most else None


def is_digits(text: str) -> bool:
    """Whether the text is ASCII digits only, as in the names of files."""
    return text.isascii() and text.isdigit()


def instant_ms(text: str) -> int:
    """Milliseconds since 1970: 13 digits, or a time as ISO 8601 writes it; without a zone it is UTC.

    Raises:
        ValueError: the text is neither; the error's text ends a sentence that begins with the option. Digits
            of another length may be seconds, or a date without hyphens.
    """
    if is_digits(text):
        if len(text) != MS_DIGITS:
            raise ValueError(
                f"has {len(text)} digits: {MS_DIGITS} are milliseconds since 1970, other times are written "
                "as 2026-11-22T13:00:00Z"
            )
        return int(text)
    try:
        at = datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
        made = None if at is None else int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        made = None
    if made is None:
        raise ValueError("is neither milliseconds since 1970 nor a time such as 2026-11-22T13:00:00Z")
    if made < 1:
        raise ValueError("is before 1970")
    return made
