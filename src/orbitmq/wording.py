"""Words in texts for people: plurals, counts, masked secrets."""

from __future__ import annotations

import re

_IRREGULAR = {"delivery": "deliveries", "entry": "entries"}
_SECRET = re.compile(r"secret|(?<!Reveal)password|credential|token|initAuthenticationUser", re.IGNORECASE)


def plural(number: int, what: str) -> str:
    """The noun without its number: ``message`` for 1, ``messages`` for all other numbers."""
    return what if number == 1 else _IRREGULAR.get(what, f"{what}s")


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 file``, ``2,000 files``."""
    return f"{number:,} {plural(number, what)}"


class Remark(str):
    """A line of progress that stays on the screen, and in a log: the next line does not replace it."""

    __slots__ = ()


def masked(key: str, value: str) -> str:
    """The shown value of a setting; ``***`` for a secret."""
    return "***" if value and _SECRET.search(key) else value
