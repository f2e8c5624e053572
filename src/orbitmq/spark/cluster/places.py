"""The begin or end of a read, as the options name it, before brokers are asked for offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.offsets import Offsets, queue_table

# Offsets that stand for a place, as in Spark's Kafka source.
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2


class Start(Enum):
    """A named place in every queue; ``GROUP`` is the committed offset of the group in option groupId."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each named queue; it may be :data:`EARLIEST_OFFSET` or :data:`LATEST_OFFSET`."""

    queues: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """In each queue, the first message that was stored at a time or later.

    Attributes:
        at_ms: the time for all queues, in milliseconds since 1970; ``None`` if only the queues in ``queues``
            have one.
        queues: the times of single queues.
    """

    at_ms: int | None
    queues: Mapping[MessageQueue, int] = field(default_factory=dict)


Place: TypeAlias = Start | AtOffsets | AtTime


def offsets_of(text: str) -> Place:
    """Parse the value of startingOffsets or endingOffsets.

    Raises:
        ValueError: the value has another form; the text names the allowed forms.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        try:
            return Start(stripped.lower())
        except ValueError:
            raise ValueError("is not earliest, latest, group or offsets as JSON") from None
    try:
        value = json.loads(stripped)
        table = dict(Offsets.from_json(value)) if "v" in value else queue_table(value)
    except ValueError as error:
        raise ValueError(f"cannot be read as offsets: {error}") from error
    low = next((queue for queue, offset in table.items() if offset < EARLIEST_OFFSET), None)
    if low is not None:
        raise ValueError(f"has offset {table[low]} for {low}; -2 is the first message, -1 the end")
    return AtOffsets(table)


def times_of(text: str) -> Mapping[MessageQueue, int]:
    """Parse the value of startingOffsetsByTimestamp or endingOffsetsByTimestamp.

    Raises:
        ValueError: the value is not ``{topic:{broker:{queue:milliseconds}}}``.
    """
    try:
        value: Any = json.loads(text)
        table = queue_table(value)
    except ValueError as error:
        raise ValueError(f'is not {{"topic":{{"broker":{{"0":milliseconds}}}}}}: {error}') from error
    if any(at < 0 for at in table.values()):
        raise ValueError("has a time before 1970")
    return table


def queues_of(text: str) -> frozenset[MessageQueue]:
    """Parse the value of the option assign.

    Raises:
        ValueError: the value is not ``{topic:{broker:[queue ids]}}``, or names no queue.
    """
    shape = 'is not {"topic":{"broker":[0,1]}}'
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{shape}: {error}") from error
    found: set[MessageQueue] = set()
    if not isinstance(value, dict) or not all(isinstance(brokers, dict) for brokers in value.values()):
        raise ValueError(shape)
    for topic, brokers in value.items():
        for broker, ids in brokers.items():
            if not isinstance(ids, list) or not all(type(number) is int and number >= 0 for number in ids):
                raise ValueError(f"{shape}: {topic}/{broker} has {ids!r}")
            found.update(MessageQueue(topic, broker, number) for number in ids)
    if not found:
        raise ValueError(f"{shape}: it names no queue")
    return frozenset(found)
