"""The history of one message, from the records of a message trace. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from orbitmq.client.observe.trace_records import (
    END_TRANSACTION,
    NONE,
    PUB,
    SUB_AFTER,
    SUB_BEFORE,
    UNREADABLE,
    TraceRecord,
    record_of,
    split,
)
from orbitmq.durations import EPOCH, instant
from orbitmq.message.numbers import whole_number

if TYPE_CHECKING:
    from datetime import datetime

# The names of ConsumeReturnType's values, in their order (row CR-19).
_RESULTS = ("success", "timeout", "exception", "nothing returned", "failure")
_KINDS: dict[str, Literal["send", "delivery", "transaction", "recall"]] = {
    PUB: "send",
    SUB_BEFORE: "delivery",
    SUB_AFTER: "delivery",
    END_TRANSACTION: "transaction",
}


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step in a message's history, as its client recorded it.

    Attributes:
        kind: a send, a delivery to a consumer, the end of a transaction, or a recall.
        at: the start of the step; ``None``: not recorded.
        group: the group of the producer or the consumer.
        client: the client's address, as the broker saw it.
        result: ``success`` or ``failure``; for deliveries also ``exception``, ``timeout``, and ``unknown`` if
            the end is not recorded; for transactions RocketMQ's name of the state.
        took: the duration in seconds; ``None``: not recorded.
        topic: the topic; ``None``: records of deliveries do not have it.
        broker_address: the broker that stored the message; ``None``: not recorded.
        redeliveries: the number of deliveries before this one.
    """

    kind: Literal["send", "delivery", "transaction", "recall"]
    at: datetime | None
    group: str
    client: str
    result: str
    took: float | None = None
    topic: str | None = None
    broker_address: str | None = None
    redeliveries: int | None = None


def steps(texts: Iterable[tuple[str, str]], message_id: str) -> list[TraceStep]:
    """The steps of one message from the records of trace messages, the oldest first.

    Args:
        texts: the body of each trace message, and the address of the client that sent it. Unreadable records
            are left out: any client can send a message to the trace topic.
    """
    found: list[TraceStep] = []
    begun: dict[tuple[str | None, str], TraceStep] = {}
    ended: dict[tuple[str | None, str], TraceStep] = {}
    for text, client in texts:
        for fields in split(text):
            record = record_of(fields)
            if record.kind == UNREADABLE or message_id not in (record.message_id or "").split(","):
                continue
            step = _step(record, _result(record, fields), client)
            if record.kind == SUB_BEFORE:
                begun[record.request_id, client] = step
            elif record.kind == SUB_AFTER:
                ended[record.request_id, client] = step
            else:
                found.append(step)
    for key, step in begun.items():
        end = ended.pop(key, None)
        found.append(step if end is None else replace(step, result=end.result, took=end.took))
    return sorted([*found, *ended.values()], key=lambda step: step.at or EPOCH)


def _step(record: TraceRecord, result: str, client: str) -> TraceStep:
    at_ms = record.at_ms or 0
    if record.kind == SUB_AFTER and at_ms:
        at_ms -= record.cost_ms or 0  # this record has the time of the end
    return TraceStep(
        _KINDS.get(record.kind, "recall"),
        instant(at_ms) if at_ms else None,
        record.group or NONE,
        client,
        result,
        took=None if record.cost_ms is None else record.cost_ms / 1000,
        topic=record.topic,
        broker_address=record.broker,
        redeliveries=record.retries,
    )


def _result(record: TraceRecord, fields: list[str]) -> str:
    """The result of a step. Clients before 4.6 do not record why a delivery failed."""
    if record.kind == SUB_BEFORE:
        return "unknown"
    if record.kind == END_TRANSACTION:
        return fields[11]
    code = whole_number(fields[6]) if record.kind == SUB_AFTER and len(fields) > 6 else None
    if code is not None:
        return _RESULTS[code] if code < len(_RESULTS) else str(code)
    return "success" if record.success else "failure"
