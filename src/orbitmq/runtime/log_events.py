"""The stable names of a server's warnings, found by the text of a log line before its values are put in."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

# The attribute with the catalogue's text, for a record whose own text differs.
TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One entry of the catalogue."""

    name: str
    texts: tuple[str, ...]
    cause: str
    cure: str


@lru_cache(maxsize=1)
def catalogue() -> Sequence[LogEvent]:
    """All events (``log_events.toml`` in this package)."""
    import tomllib

    # Opened without importlib.resources, whose import alone takes twice as long as reading the file.
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "log_events.toml")
    with open(path, "rb") as file:
        data = tomllib.load(file)
    return [LogEvent(**{**entry, "texts": tuple(entry["texts"])}) for entry in data["event"]]


@lru_cache(maxsize=1)
def _by_text() -> Mapping[str, str]:
    return MappingProxyType({text: event.name for event in catalogue() for text in event.texts})


def load() -> None:
    """Read the catalogue now, where that delays no request."""
    _by_text()


def event_of(record: logging.LogRecord) -> str:
    """The name of the event; empty below the level WARNING, and for lines that are not in the catalogue."""
    if record.levelno < logging.WARNING:
        return ""
    return _by_text().get(getattr(record, TEMPLATE, record.msg), "")
