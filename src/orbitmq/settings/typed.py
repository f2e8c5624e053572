"""Settings in RocketMQ's own format: typed dataclasses whose fields carry the key and the parser.

RocketMQ ignores unknown keys and reads ``yes`` as false. Here a wrong value is an error that names key,
value, line and the expected form, and every key without effect gets one sentence.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, replace
from typing import Any, Self, cast

from orbitmq.errors import OrbitError
from orbitmq.runtime.paths import expanded
from orbitmq.settings import properties_text
from orbitmq.wire.addresses import (
    AddressError,
    is_of_one_machine,
    is_unspecified,
    normal_host,
    several,
    shown,
    source,
)

Parser = Callable[[str, str], Any]
HIDDEN = "***"


class ConfigError(OrbitError, ValueError):
    """A setting that cannot be used. The text names key, value, what was expected and, if known, the line."""

    def __init__(self, key: str, value: str, expected: str, line: int | None = None) -> None:
        at = f"line {line}: " if line else ""
        super().__init__(f"{at}{key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected
        self.line = line


def setting(default: Any, key: str, parse: Parser, *, live: bool = False, secret: bool = False) -> Any:
    """A field of the settings: its RocketMQ key and its parser.

    Args:
        live: whether a running server may change it.
        secret: whether it is shown as ``***`` only; its parser hides it in errors, too.
    """
    return field(default=default, metadata={"key": key, "parse": parse, "live": live, "secret": secret})


def group(kind: type[Settings]) -> Mapping[str, Any]:
    """The metadata of a field that holds settings of its own; their keys stand in the same file."""
    return {"group": kind}


class Settings:
    """The methods of dataclasses with :func:`setting` fields."""

    __slots__ = ()

    def without_effect(self, key: str, value: str) -> str:
        """The sentence for a key that names no field."""
        from difflib import get_close_matches  # imported only after a typing error

        near = get_close_matches(key, self.to_properties(), 1, cutoff=0.8)
        hint = f", did you mean {near[0]}?" if near else ""
        return f"{key} is not a setting of RocketMQ: ignored{hint}"

    def updated(self, settings: Mapping[str, str]) -> tuple[Self, list[str]]:
        """A copy with ``settings`` (RocketMQ's keys) put over it, and a sentence for each key without effect.

        Raises:
            ConfigError: a value of the wrong kind.
        """
        known = _by_key(type(self))
        changes: dict[str, Any] = {}
        warnings: list[str] = []
        inner: set[str] = set()
        for name, keys in _groups(type(self)).items():
            of_group = {key: value for key, value in settings.items() if key in keys}
            if of_group:
                changes[name], _ = getattr(self, name).updated(of_group)
                inner.update(of_group)
        for key, value in settings.items():
            if key in inner:
                continue
            entry = known.get(key)
            if entry is None:
                warnings.append(self.without_effect(key, value))
            else:
                changes[entry.name] = entry.metadata["parse"](key, value.strip())
        return replace(cast(Any, self), **changes), warnings

    def loaded(self, text: str, overrides: Mapping[str, str]) -> tuple[Self, list[str]]:
        """:meth:`updated` from the text of a configuration file and ``overrides``, which win over it.

        An error about a value of the text names its line, too.
        """
        try:
            return self.updated({**properties_text.parse(text), **overrides})
        except ConfigError as error:
            line = None if error.key in overrides else line_of(text, error.key)
            raise ConfigError(error.key, error.value, error.expected, line) from None

    def live_changes(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """New values by attribute, for a server that is running.

        Raises:
            ConfigError: a key that must not change while it runs, or a value of the wrong kind.
        """
        known = _by_key(type(self))
        inner = {key: entry for kind in _group_kinds(type(self)) for key, entry in _by_key(kind).items()}
        changes: dict[str, Any] = {}
        for key, value in settings.items():
            entry = known.get(key) or inner.get(key)
            if entry is None:
                raise ConfigError(key, value, "a setting that this server has")
            if key in inner or not entry.metadata["live"]:
                shown = HIDDEN if entry.metadata["secret"] else value
                raise ConfigError(
                    key,
                    shown,
                    "a setting that may change while the server runs: change this one in the configuration "
                    "file, and start the server again",
                )
            changes[entry.name] = entry.metadata["parse"](key, value.strip())
        return changes

    def live_keys(self) -> list[str]:
        """The keys that a running server may change, in order."""
        return sorted(key for key, entry in _by_key(type(self)).items() if entry.metadata["live"])

    def to_properties(self) -> dict[str, str]:
        """Every setting by its RocketMQ key, secrets as ``***``."""
        found = {key: _shown(getattr(self, entry.name), entry) for key, entry in _by_key(type(self)).items()}
        for name in _groups(type(self)):
            found.update(getattr(self, name).to_properties())
        return found


def _by_key(kind: type[Any]) -> dict[str, Field[Any]]:
    return {entry.metadata["key"]: entry for entry in fields(kind) if "key" in entry.metadata}


def _group_kinds(kind: type[Any]) -> list[type[Any]]:
    return [entry.metadata["group"] for entry in fields(kind) if "group" in entry.metadata]


def _groups(kind: type[Any]) -> dict[str, frozenset[str]]:
    """The keys of each field that holds settings of its own."""
    return {
        entry.name: frozenset(_by_key(entry.metadata["group"]))
        for entry in fields(kind)
        if "group" in entry.metadata
    }


def _shown(value: object, entry: Field[Any]) -> str:
    if entry.metadata["secret"] and value:
        return HIDDEN
    return str(value).lower() if isinstance(value, bool) else str(value)


def line_of(text: str, key: str) -> int | None:
    """The last line of ``text`` that sets ``key``, counted from 1: Java lets the last one win."""
    found = None
    for number_, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*{re.escape(key)}\s*[=:\s]", line):
            found = number_
    return found


def text(key: str, value: str) -> str:
    """Any text but the empty one."""
    if not value:
        raise ConfigError(key, value, "a text that is not empty")
    return value


def host(key: str, value: str) -> str:
    """A name or an IP address, in its normal form; IPv6 with brackets or without."""
    try:
        return normal_host(text(key, value))
    except ValueError as error:
        expected = "a name or an IP address, without a port"
        raise error if isinstance(error, ConfigError) else ConfigError(key, value, expected) from error


def own_host(key: str, value: str) -> str:
    """As :func:`host`, for an address that is sent to others, by which they reach this machine."""
    found = host(key, value)
    if not is_of_one_machine(found):
        raise ConfigError(key, value, "the address of this machine: nobody can connect to this one")
    return found


def bind_host(key: str, value: str) -> str:
    """As :func:`host`, to listen at: an address of this machine, or all of them (0.0.0.0, ::)."""
    found = host(key, value)
    if not is_unspecified(found) and not is_of_one_machine(found):
        raise ConfigError(key, value, "an address of this machine, or 0.0.0.0: nobody can listen at this one")
    return found


def path(key: str, value: str) -> str:
    """A file or folder; ``~`` is the home folder."""
    return expanded(text(key, value))


def flag(key: str, value: str) -> bool:
    """``true`` or ``false``, in upper or lower case."""
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key, value, "true or false")
    return lowered == "true"


def number(low: int, high: int) -> Parser:
    """A whole number from ``low`` to ``high``."""

    def parse(key: str, value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", value) or not low <= int(value) <= high:
            raise ConfigError(key, value, f"a whole number from {low} to {high}")
        return int(value)

    return parse


def one_of(*choices: str) -> Parser:
    """A value that is one of some words."""

    def parse(key: str, value: str) -> str:
        if value not in choices:
            raise ConfigError(key, value, "one of " + ", ".join(choices))
        return value

    return parse


def name_servers(key: str, value: str) -> str:
    """``host:port;host:port``, an address server's URL, ``dns://name:port``, or nothing: the normal form."""
    try:
        return shown(source(value))
    except AddressError as error:
        raise ConfigError(key, value, f"addresses as host:port, separated by ';': {error}") from error


def networks(key: str, value: str) -> str:
    """Addresses and networks in their normal form, ``10.0.0.1/32;10.1.0.0/16``, or nothing."""
    expected = "IP addresses and networks separated by ';', as 10.0.0.1;10.1.0.0/16;fd00::/8"
    try:
        return ";".join(str(ipaddress.ip_network(one)) for one in value.replace(" ", "").split(";") if one)
    except ValueError as error:
        raise ConfigError(key, value, f"{expected}: {error}") from error


def addresses(key: str, value: str) -> str:
    """``host:port;host:port`` in their normal form, or nothing."""
    try:
        return ";".join(several(value))
    except AddressError as error:
        raise ConfigError(key, value, f"addresses as host:port, separated by ';': {error}") from error


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def log_levels(key: str, value: str) -> str:
    """``logger:LEVEL;logger:LEVEL``, or nothing."""
    for name, level in levels_of(value).items():
        if not re.fullmatch(r"orbitmq(\.[a-z0-9_]{1,50}){0,10}", name) or level not in _LEVELS:
            expected = (
                f"logger:LEVEL, separated by ';', as orbitmq.transport:INFO; levels: {', '.join(_LEVELS)}"
            )
            raise ConfigError(key, value, expected)
    return value


def levels_of(value: str) -> dict[str, str]:
    """The levels by their loggers; a logger without a level has an empty one."""
    pairs = (part.strip().rpartition(":") for part in value.split(";") if part.strip())
    return {name or level: level if name else "" for name, _, level in pairs}
