"""Numbers, names and pairs as users type them on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.cli.failures import UsageError


def at_least(least: int, **options: int | None) -> None:
    """Check the numbers of some options; ``None`` for an option that is not given.

    Raises:
        UsageError: a number is smaller than ``least``.
    """
    for name, value in options.items():
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected {least} or more")


def pairs(
    option: str, words: Sequence[str] | None, form: str = "NAME=VALUE", *, empty: bool = True
) -> dict[str, str]:
    """The values of an option that may be given more than once, by name. ``empty``: a value may be empty.

    Raises:
        UsageError: a value has another form.
    """
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name.strip() and equals and (value or empty)):
            raise UsageError(f"{option} {word}: expected {form}" + ("" if empty else ", neither empty"))
        found[name.strip()] = value.strip() if empty else value
    return found


def named(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
