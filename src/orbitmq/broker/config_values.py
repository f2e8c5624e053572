"""Parsers of values in ``broker.conf`` that only the broker has: names, folders, addresses, labels, hours.

Each parser takes a key and its text, and returns the value. A text that cannot be used raises a ConfigError
with what was expected; :mod:`orbitmq.settings.typed` has the parsers that all servers share.
"""

from __future__ import annotations

import re

from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.message import reserved
from orbitmq.settings.typed import ConfigError, addresses, number, own_host, path

# Labels of OrbitMQ's own series, which an operator's labels may not replace.
METRIC_LABELS = frozenset(
    {
        "aggregation", "certificate", "cluster", "consume_mode", "consumer_group", "direction",
        "invocation_status", "is_long_polling", "is_retry", "is_system", "language", "le", "message_type",
        "node_id", "node_type", "processor", "protocol_type", "put_status", "queue_id", "quota",
        "request_code", "response_code", "result", "role", "storage_medium", "storage_type",
        "timer_bound_s", "topic", "version",
    }
)  # fmt: skip


def topic_like_name(key: str, value: str) -> str:
    """A name that becomes a topic and a folder, so the rules for topic names apply."""
    if reserved.topic_fault(value) is not None:
        raise ConfigError(key, value, "1 to 127 characters of %|a-zA-Z0-9_-")
    return value


def one_address(key: str, value: str) -> str:
    """host:port, or nothing."""
    address = addresses(key, value)
    if ";" in address:
        raise ConfigError(key, value, "one address as host:port")
    return address


def web_server(key: str, value: str) -> str:
    """A host, with a port or without, or nothing."""
    name, colon, port = value.partition(":")
    if colon and not (port.isdecimal() and port.isascii() and 0 < int(port[:6]) < 65536):
        raise ConfigError(key, value, "a host, or host:port")
    return host_or_none(key, name) + colon + port


def subgroup(key: str, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", value):
        raise ConfigError(key, value, "the last part of the address server's URL: letters, digits, _ . -")
    return value


def host_or_none(key: str, value: str) -> str:
    return own_host(key, value) if value else ""


def one_folder(key: str, value: str) -> str:
    """One folder. RocketMQ's list with commas is refused: it would name a new folder, with an empty log."""
    if "," in value:
        raise ConfigError(key, value, "one folder; of a log in several, move the files into one")
    return path(key, value)


def region(key: str, value: str) -> str:
    """A text that is written unchanged into JSON headers and message properties."""
    if not re.fullmatch(r"[ !#-\[\]-~]{1,127}", value):
        raise ConfigError(key, value, "1 to 127 printable ASCII characters without quotes and backslashes")
    return value


def hours(key: str, value: str) -> str:
    """``04`` or ``04;16``: hours of the day."""
    if not re.fullmatch(r"[0-9]{1,2}(;[0-9]{1,2})*", value) or any(
        int(hour) > 23 for hour in value.split(";")
    ):
        raise ConfigError(key, value, "hours from 00 to 23, separated by ';'")
    return value


def labels(key: str, value: str) -> str:
    """``name:value,name:value``, or nothing."""
    names = []
    for pair in value.split(",") if value else []:
        name, colon, _ = pair.strip().partition(":")
        if not colon or not re.fullmatch("[a-zA-Z][a-zA-Z0-9_]{0,60}", name) or name in METRIC_LABELS:
            raise ConfigError(
                key, value, "name:value,name:value; the names are none that metrics have themselves"
            )
        names.append(name)
    if len(set(names)) != len(names):
        raise ConfigError(key, value, "each name once")
    return value


def timer_precision(key: str, value: str) -> int:
    """RocketMQ uses the next lower of four values (MessageStoreConfig.setTimerPrecisionMs)."""
    return max(ms for ms in (100, 200, 500, 1000) if ms == 100 or ms <= number(0, 2**31 - 1)(key, value))


def delay_levels(_key: str, value: str) -> str:
    DelayLevels.parse(value)
    return value
