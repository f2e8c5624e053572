"""The records of a message trace: what they say, read from the text of TraceDataEncoder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

# Between the fields and behind each record (TraceConstants).
FIELD = "\x01"
RECORD = "\x02"
# What Java's client writes for a field without a value.
NONE = "null"

# ConsumeReturnType, row CR-19.
_RESULTS = ("success", "timeout", "exception", "nothing returned", "failure")


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that happened to a message, as the client told that did it.

    Attributes:
        kind: sent, given to a consumer, its transaction ended, taken back before its time.
        at_ms: when it began, milliseconds since the epoch.
        group: of the producer or the consumer.
        client: the client's address, as the broker saw it.
        result: ``success``, ``failure``, and of deliveries also ``exception``, ``timeout`` and ``unknown``:
            nobody told how it ended; of transactions RocketMQ's name of the state.
        cost_ms: how long it took, ``None``: not known.
        topic: ``None``: deliveries do not tell it.
        broker: the address of the broker that stored it, ``None``: not told.
        redeliveries: of a delivery: how many there were before.
    """

    kind: Literal["send", "delivery", "transaction", "recall"]
    at_ms: int
    group: str
    client: str
    result: str
    cost_ms: int | None = None
    topic: str | None = None
    broker: str | None = None
    redeliveries: int | None = None


def steps(texts: Iterable[tuple[str, str]], message_id: str) -> list[TraceStep]:
    """What the records of trace messages say of one message, the oldest first.

    Args:
        texts: the body of each trace message, and the address of the client that sent it. Records that
            cannot be read are left out: any client may send them.
    """
    found: list[TraceStep] = []
    begun: dict[tuple[str, str], TraceStep] = {}
    ended: dict[tuple[str, str], TraceStep] = {}
    for text, client in texts:
        for fields in _records(text):
            try:
                kind, names_it = fields[0], message_id in fields[_ID_AT.get(fields[0], 0)].split(",")
                if not names_it:
                    continue
                if kind == "SubBefore":
                    begun[fields[4], client] = _begun(fields, client)
                elif kind == "SubAfter":
                    ended[fields[1], client] = _ended(fields, client)
                else:
                    found.append(_other(fields, client))
            except (IndexError, ValueError):
                continue
    for key, step in begun.items():
        end = ended.pop(key, None)
        found.append(step if end is None else replace(step, result=end.result, cost_ms=end.cost_ms))
    return sorted([*found, *ended.values()], key=lambda step: step.at_ms)


# Where the message's id stands in a record; a batch has several, joined by commas.
_ID_AT = {"Pub": 5, "SubBefore": 5, "SubAfter": 2, "EndTransaction": 5, "Recall": 5}
_TYPES = re.compile("|".join(_ID_AT))


def _records(text: str) -> Iterator[Sequence[str]]:
    for record in text.split(RECORD):
        if _TYPES.match(record):
            yield record.split(FIELD)


def _begun(fields: Sequence[str], client: str) -> TraceStep:
    return TraceStep("delivery", int(fields[1]), fields[3], client, "unknown", redeliveries=int(fields[6]))


def _ended(fields: Sequence[str], client: str) -> TraceStep:
    """A delivery of which only the end is known; clients before 4.6 tell neither time nor group."""
    code = int(fields[6]) if len(fields) > 6 else 0 if fields[4] == "true" else 4
    result = _RESULTS[code] if 0 <= code < len(_RESULTS) else str(code)
    cost_ms = int(fields[3])
    at_ms, group = (int(fields[7]) - cost_ms, fields[8]) if len(fields) > 8 else (0, NONE)
    return TraceStep("delivery", at_ms, group, client, result, cost_ms=cost_ms)


def _other(fields: Sequence[str], client: str) -> TraceStep:
    kind, at_ms, group, topic = fields[0], int(fields[1]), fields[3], fields[4]
    if kind == "Recall":
        return TraceStep("recall", at_ms, group, client, _success(fields[6]), topic=topic)
    if kind == "EndTransaction":
        return TraceStep("transaction", at_ms, group, client, fields[11], topic=topic, broker=fields[8])
    # The record of a send grew: success is the 13th field of old clients, the 14th of others.
    success = fields[12] if len(fields) == 13 else fields[13]
    return TraceStep(
        "send", at_ms, group, client, _success(success), int(fields[10]), topic=topic, broker=fields[8]
    )


def _success(text: str) -> str:
    return "success" if text == "true" else "failure"
