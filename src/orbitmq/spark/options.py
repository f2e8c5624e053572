"""The options of the data source: names, types, defaults. Unknown names are an error.

Spark hands option names over in lower case, so that is how they are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from orbitmq.spark.errors import OptionError
from orbitmq.spark.offsets import Offsets

# Options that Spark itself puts among ours.
_SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h)?", re.IGNORECASE)
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_BYTES = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_BYTE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Start(Enum):
    """A named place in every queue."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


Position = Start | Offsets


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader needs to know. Times are milliseconds."""

    topics: tuple[str, ...]
    name_servers: tuple[str, ...] = ("127.0.0.1:9876",)
    columns: tuple[str, ...] = ()
    tags: str = "*"
    consumer_group: str = "orbitmq-spark"
    starting: Position = Start.EARLIEST
    starting_timestamp_ms: int = 0
    ending: Position = Start.LATEST
    ending_timestamp_ms: int = 0
    max_rows: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 900_000
    fail_on_data_loss: bool = True
    on_bad_message: str = "fail"
    parallelism: int | None = None
    batch_bytes: int = 4 << 20
    pull_messages: int = 32
    pull_depth: int = 16
    request_timeout_ms: int = 10_000
    offset_timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer needs to know. Times are milliseconds."""

    topic: str | None = None
    name_servers: tuple[str, ...] = ("127.0.0.1:9876",)
    producer_group: str = "orbitmq-spark"
    state_location: str | None = None
    batch_bytes: int = 256 << 10
    pipeline: int = 8
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000


class _Option(NamedTuple):
    name: str
    field: str
    parse: Callable[[str], Any]


def _names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in re.split(r"[,;]", text) if part.strip())
    if not found:
        raise ValueError("is empty")
    return found


def _addresses(text: str) -> tuple[str, ...]:
    found = _names(text)
    for address in found:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"has {address!r}, which is not host:port")
    return found


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError("is not a whole number above 0")
    return int(text)


def _bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.strip().lower() == "true"


def _bad_message(text: str) -> str:
    if text.strip().lower() not in ("fail", "null", "raw"):
        raise ValueError("is not fail, null or raw")
    return text.strip().lower()


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a time such as 500ms, 30s or 15m")
    return int(match[1]) * _UNITS_MS[(match[2] or "").lower()]


def _bytes(text: str) -> int:
    match = _BYTES.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError("is not a size such as 65536, 256k or 4m")
    return int(match[1]) * _BYTE_UNITS[match[2].lower()]


def _position(text: str) -> Position:
    stripped = text.strip()
    if not stripped.startswith("{"):
        try:
            return Start(stripped.lower())
        except ValueError:
            raise ValueError("is not earliest, latest, timestamp or offsets as JSON") from None
    try:
        return Offsets.from_json(json.loads(stripped))
    except ValueError as error:
        raise ValueError(f"cannot be read as offsets: {error}") from error


_READ = (
    _Option("topic", "topics", _names),
    _Option("nameServers", "name_servers", _addresses),
    _Option("columns", "columns", _names),
    _Option("tags", "tags", _text),
    _Option("consumerGroup", "consumer_group", _text),
    _Option("startingOffsets", "starting", _position),
    _Option("startingTimestamp", "starting_timestamp_ms", _count),
    _Option("endingOffsets", "ending", _position),
    _Option("endingTimestamp", "ending_timestamp_ms", _count),
    _Option("maxRowsPerTrigger", "max_rows", _count),
    _Option("minRowsPerTrigger", "min_rows", _count),
    _Option("maxTriggerDelay", "max_delay_ms", _duration),
    _Option("failOnDataLoss", "fail_on_data_loss", _bool),
    _Option("onBadMessage", "on_bad_message", _bad_message),
    _Option("parallelism", "parallelism", _count),
    _Option("batchBytes", "batch_bytes", _bytes),
    _Option("pullMessages", "pull_messages", _count),
    _Option("pullDepth", "pull_depth", _count),
    _Option("requestTimeout", "request_timeout_ms", _duration),
    _Option("offsetTimeout", "offset_timeout_ms", _duration),
)

_WRITE = (
    _Option("topic", "topic", _text),
    _Option("nameServers", "name_servers", _addresses),
    _Option("producerGroup", "producer_group", _text),
    _Option("stateLocation", "state_location", _text),
    _Option("batchBytes", "batch_bytes", _bytes),
    _Option("pipeline", "pipeline", _count),
    _Option("requestTimeout", "request_timeout_ms", _duration),
    _Option("retryTimeout", "retry_timeout_ms", _duration),
)


def _parse(options: Mapping[str, str], known: tuple[_Option, ...], what: str) -> dict[str, Any]:
    table = {option.name.lower(): option for option in known}
    values: dict[str, Any] = {}
    for key, text in options.items():
        option = table.get(key.lower())
        if option is None:
            if key.lower() in _SPARK_OWN:
                continue
            names = ", ".join(sorted(entry.name for entry in known))
            raise OptionError(f"unknown option {key!r} for {what} topics; known: {names}")
        try:
            values[option.field] = option.parse(text)
        except ValueError as error:
            raise OptionError(f"option {option.name}={text!r} {error}") from error
    return values


class Reading(Enum):
    """How topics are read: the options that make no sense there, and why."""

    BATCH = "a batch read"
    STREAM = "a stream"


_REFUSED = {
    Reading.BATCH: (
        ("maxRowsPerTrigger", "minRowsPerTrigger", "maxTriggerDelay"),
        "it has no triggers: limit it by endingOffsets or by LIMIT",
    ),
    Reading.STREAM: (
        ("endingOffsets", "endingTimestamp"),
        "it has no end: use trigger(availableNow=True), which ends at what is there when it begins",
    ),
}


def read_options(options: Mapping[str, str], reading: Reading | None = None) -> ReadOptions:
    """The options of a reader. ``load("orders")`` names the topic as the option does.

    Args:
        reading: refuse what has no effect there; ``None``: not known yet.

    Raises:
        OptionError: an option is unknown (the text lists the known), wrong, without effect, or missing.
    """
    given = {key.lower(): key for key in options}
    if reading is not None:
        names, why = _REFUSED[reading]
        for name in names:
            if name.lower() in given:
                raise OptionError(f"option {name} has no effect on {reading.value}: {why}")
    values = _parse(options, _READ, "reading")
    if "path" in given:
        if "topics" in values:
            raise OptionError("name the topic once: in load(...) or in the option topic")
        values["topics"] = _names(options[given["path"]])
    if "topics" not in values:
        raise OptionError("option topic is missing: name one topic, or several separated by commas")
    made = ReadOptions(**values)
    for name, place, timestamp in (
        ("starting", made.starting, made.starting_timestamp_ms),
        ("ending", made.ending, made.ending_timestamp_ms),
    ):
        if (place is Start.TIMESTAMP) != bool(timestamp):
            raise OptionError(f"{name}Offsets=timestamp and {name}Timestamp=<ms since 1970> go together")
    if made.max_rows is not None and made.min_rows is not None and made.min_rows > made.max_rows:
        raise OptionError(f"minRowsPerTrigger={made.min_rows} is above maxRowsPerTrigger={made.max_rows}")
    return made


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a writer; the state of its batches lies beside the checkpoint unless told otherwise.

    Raises:
        OptionError: an option is unknown (the text lists the known) or wrong.
    """
    values = _parse(options, _WRITE, "writing")
    checkpoint = next((text for key, text in options.items() if key.lower() == "checkpointlocation"), "")
    if checkpoint and "state_location" not in values:
        values["state_location"] = checkpoint.rstrip("/") + "/orbitmq-sink"
    return WriteOptions(**values)
