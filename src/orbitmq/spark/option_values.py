"""Parses the values of options. The text of each ValueError completes a sentence: "option x=y is not a
number".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from orbitmq.message import numbers
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import group_fault, topic_fault
from orbitmq.wire.addresses import AddressError, several

_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h)?", re.IGNORECASE)
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_BYTES = re.compile(r"([0-9]{1,15})\s*([kmgt]?)b?", re.IGNORECASE)
# The advice for a body that is JSON.
JSON_BODY = "read it with Spark's from_json(CAST(body AS STRING), 'id INT, price DOUBLE')"
_EARLY_MS = 9_999_999
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas or semicolons."""
    found = tuple(part.strip() for part in re.split(r"[,;]", text) if part.strip())
    if not found:
        raise ValueError("is empty")
    return found


def addresses(text: str) -> tuple[str, ...]:
    """Addresses, each ``host:port``, separated by semicolons or commas."""
    names(text)
    try:
        return tuple(several(text))
    except AddressError as error:
        raise ValueError(f"has {error.address!r}, which is not host:port{error.hint}") from error


def text(value: str) -> str:
    """Any text except an empty one."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def folder(value: str) -> str:
    """A folder, as a path or a URL."""
    if text(value).lower() == "cluster":
        raise ValueError("is no folder: brokers keep no state of writers; name a folder (./cluster is one)")
    return value.strip()


def group(value: str) -> str:
    """The name of a consumer group."""
    fault = group_fault(text(value))
    if fault is not None:
        raise ValueError(f"cannot name a group: {fault}")
    return value.strip()


def topic(value: str) -> str:
    """The name of a topic."""
    fault = topic_fault(text(value))
    if fault is not None:
        raise ValueError(f"cannot name a topic: {fault}")
    return value.strip()


def topics(value: str) -> tuple[str, ...]:
    """Names of topics, separated by commas or semicolons."""
    return tuple(topic(name) for name in names(value))


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return value.strip()


def count(value: str) -> int:
    """A whole number above 0."""
    number = whole_number(value.strip())
    if not number:
        raise ValueError("is not a whole number above 0, of 19 digits at most")
    return number


def boolean(value: str) -> bool:
    """``true`` or ``false``."""
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.strip().lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of one of ``words``, in upper or lower case."""

    def read(value: str) -> str:
        if value.strip().lower() not in words:
            raise ValueError(f"is not {', '.join(words[:-1])} or {words[-1]}")
        return value.strip().lower()

    return read


def value_format(value: str) -> str:
    """The type of the body."""
    if value.strip().lower() == "json":
        raise ValueError(f"is not binary or string: {JSON_BODY}")
    return one_of("binary", "string")(value)


def duration_ms(value: str) -> int:
    """A time with its unit, in milliseconds."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("is not a time such as 500ms, 30s or 15m")
    return int(match[1]) * _UNITS_MS[(match[2] or "").lower()]


def size_bytes(value: str) -> int:
    """A size with its unit, in bytes."""
    match = _BYTES.fullmatch(value.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError("is not a size such as 65536, 256k, 4m or 2g")
    return int(match[1]) * _BYTE_UNITS[match[2].lower()]


def instant_ms(value: str) -> int:
    """Milliseconds since 1970, or a time in ISO 8601, in UTC if it has no zone."""
    stripped = value.strip()
    # Numbers with fewer digits are dates or times in seconds.
    early = whole_number(stripped, _EARLY_MS)
    return early or numbers.instant_ms(stripped)
