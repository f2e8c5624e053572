"""Records of RocketMQ's message trace, in the text format of messages of RMQ_SYS_TRACE_TOPIC. Pure functions.

The format is that of Java's TraceDataEncoder: fields end with ``\\x01``, records with ``\\x02``. Releases
have added fields at the end; a field that an older client did not write is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# The separator between fields, and the end of each record (TraceConstants).
FIELD, RECORD = "\x01", "\x02"
# The text that Java's client writes for a field without a value.
NONE = "null"
PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION, RECALL = (
    "Pub",
    "SubBefore",
    "SubAfter",
    "EndTransaction",
    "Recall",
)
UNREADABLE = "unreadable"
_NOTHING = (NONE, "")
MESSAGE_TYPES = ("normal", "half", "commit", "delay")


class TraceRecord(NamedTuple):
    """One record.

    Attributes:
        kind: ``Pub``, ``SubBefore``, ``SubAfter``, ``EndTransaction``, ``Recall``; ``unreadable``.
        message_id: the unique id; the ids of a batch joined by commas.
        at_ms: the time of the event, in milliseconds since 1970.
        broker: address of the broker that stored the message.
        cost_ms: the duration of the send or of the handling.
        retries: the number of the redelivery.
        request_id: the same id in both records of a delivery.
    """

    kind: str
    at_ms: int | None = None
    group: str | None = None
    topic: str | None = None
    message_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    broker: str | None = None
    body_bytes: int | None = None
    cost_ms: int | None = None
    message_type: str | None = None
    success: bool | None = None
    retries: int | None = None
    request_id: str | None = None


def records(body: bytes) -> Iterator[TraceRecord]:
    """The records in one message of the trace topic; a damaged one has the kind ``unreadable``."""
    for fields in split(body.decode("utf-8", "replace")):
        yield record_of(fields)


def split(text: str) -> Iterator[list[str]]:
    """The fields of each record."""
    for record in text.split(RECORD):
        if record:
            yield record.split(FIELD)


def record_of(fields: list[str]) -> TraceRecord:
    """The record with these fields; ``unreadable`` if they do not form one."""
    read = {
        PUB: _pub,
        SUB_BEFORE: _sub_before,
        SUB_AFTER: _sub_after,
        END_TRANSACTION: _end_transaction,
        RECALL: _recall,
    }.get(fields[0])
    try:
        return TraceRecord(UNREADABLE) if read is None else read(fields)
    except (IndexError, ValueError):
        return TraceRecord(UNREADABLE)


def _pub(f: list[str]) -> TraceRecord:
    # Clients of 4.4 write 13 fields, without the offset message id before the last one.
    return TraceRecord(
        PUB,
        *_sent(f),
        body_bytes=int(f[9]),
        cost_ms=int(f[10]),
        message_type=_type(f[11]),
        success=_flag(f[12] if len(f) == 13 else f[13]),
    )


def _sent(f: list[str]) -> tuple[int, str | None, str | None, str | None, str | None, str | None, str | None]:
    """The fields from time to broker, which records of sends and of transactions have in common."""
    return (int(f[1]), _text(f[3]), _text(f[4]), _text(f[5]), _text(f[6]), _text(f[7]), _text(f[8]))


def _sub_before(f: list[str]) -> TraceRecord:
    return TraceRecord(
        SUB_BEFORE,
        int(f[1]),
        _text(f[3]),
        message_id=_text(f[5]),
        keys=_text(f[7]) if len(f) > 7 else None,
        retries=int(f[6]),
        request_id=_text(f[4]),
    )


def _sub_after(f: list[str]) -> TraceRecord:
    # Old clients write no time, and Java's clients no group.
    return TraceRecord(
        SUB_AFTER,
        int(f[7]) if len(f) > 7 else None,
        _text(f[8]) if len(f) > 8 else None,
        message_id=_text(f[2]),
        keys=_text(f[5]) if len(f) > 5 else None,
        cost_ms=int(f[3]),
        success=_flag(f[4]),
        request_id=_text(f[1]),
    )


def _end_transaction(f: list[str]) -> TraceRecord:
    return TraceRecord(
        END_TRANSACTION, *_sent(f), message_type=_type(f[9]), success=f[11] == "COMMIT_MESSAGE"
    )


def _recall(f: list[str]) -> TraceRecord:
    return TraceRecord(RECALL, int(f[1]), _text(f[3]), _text(f[4]), _text(f[5]), success=_flag(f[6]))


def _text(value: str) -> str | None:
    return None if value in _NOTHING else value


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError(value)
    return value == "true"


def _type(value: str) -> str | None:
    """The name of a message type; ``None``: an unknown type of a later client."""
    number = int(value)
    return MESSAGE_TYPES[number] if 0 <= number < len(MESSAGE_TYPES) else None
