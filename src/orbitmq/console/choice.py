"""Reads the choice of dead letters in a form, such as ``broker-a:3,broker-a:5-9``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.errors import ValidationError

_ONE: Final = re.compile(r"([^:,\s]{1,127}):([0-9]{1,18})(?:-([0-9]{1,18}))?")


def ranges(text: str) -> Mapping[str, Sequence[tuple[int, int]]] | None:
    """The ranges (first, last + 1) by broker, in order; ``None`` for an empty choice, which means all.

    Raises:
        ValidationError: a part is not BROKER:OFFSET or BROKER:FIRST-LAST.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = _ONE.fullmatch(part)
        first, last = (int(match[2]), int(match[3] or match[2])) if match else (1, 0)
        if match is None or last < first:
            raise ValidationError(f"chosen: {part[:80]}: expected BROKER:OFFSET or BROKER:FIRST-LAST")
        found.setdefault(match[1], []).append((first, last + 1))
    return {name: sorted(own) for name, own in found.items()} or None
