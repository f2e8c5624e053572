"""Words of texts for people."""

from __future__ import annotations

import re

_IRREGULAR = {"delivery": "deliveries", "entry": "entries"}
_SECRET = re.compile(r"secret|(?<!Reveal)password|credential|token|initAuthenticationUser", re.IGNORECASE)


def plural(number: int, what: str) -> str:
    """The noun alone as it stands behind a number: ``message`` behind 1, ``messages`` behind all others."""
    return what if number == 1 else _IRREGULAR.get(what, f"{what}s")


def counted(number: int, what: str) -> str:
    """A number with its noun: ``1 file``, ``2,000 files``."""
    return f"{number:,} {plural(number, what)}"


class Remark(str):
    """A line of progress that stays on the screen, and in a log: the next one does not replace it."""

    __slots__ = ()


def masked(key: str, value: str) -> str:
    """A setting as it is shown: secrets are ``***``."""
    return "***" if value and _SECRET.search(key) else value
