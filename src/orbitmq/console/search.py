"""Searches a topic from a place on, within limits.

A search ends when a page is full, after 100,000 messages, after 10 s, or when the browser stops it. It can be
continued from a cursor, the text of each queue's offset, for which the console keeps no state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.client.consumer.options import ReaderStart
from orbitmq.client.consumer.reader import Reader, ReadStep
from orbitmq.console.bodies import first_line
from orbitmq.console.model import Row, Said, said
from orbitmq.durations import datetime, instant
from orbitmq.errors import NotAllReadError, ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.numbers import INT32, INT64, whole_number

# A search ends after this many messages or seconds, and its page tells so. Messages that the filter excludes
# count.
MOST_READ: Final = 100_000
LONGEST_S: Final = 10.0
MOST_SHOWN: Final = 50
# The most queues of a cursor, which is part of an address; servers read addresses of up to 64 KiB.
MOST_QUEUES: Final = 1000
MOST_NAME: Final = 127


class MakesReader(Protocol):
    """Makes a reader of a topic, for the cluster of the pages."""

    def __call__(self, topic: str, *, start: ReaderStart, tags: str, sql: str | None) -> Reader: ...


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that a search found, at most ``MOST_SHOWN``.

    Attributes:
        rows: the rows of the messages; their bodies are not kept.
        read: how many messages were read, also those that the filter excluded.
        cursor: the place from which the search continues; empty if all messages were read.
        ended: why the search ended early; ``None`` if it did not.
        left_out: the brokers that were not read, with the reason.
    """

    rows: Sequence[Row]
    read: int
    cursor: str
    ended: Said | None
    left_out: Sequence[str]


class Search:
    """One search.

    Args:
        start: the offsets or the time at which it begins.
        tag, sql: the filter; at most one of them is given.
        newest: whether the last messages are wanted, for which all messages from the start on are read.
        bodies: whether rows have the beginning of the body.

    Raises:
        ValidationError: tag and SQL92 are both given.
    """

    def __init__(
        self, topic: str, start: ReaderStart, tag: str, sql: str, *, newest: bool, bodies: bool
    ) -> None:
        if tag and sql:
            raise ValidationError("give a tag or an SQL92 expression, not both")
        self._topic, self._start, self._tag, self._sql = topic, start, tag, sql
        self._newest, self._bodies = newest, bodies
        self._rows: list[Row] = []
        # The offset up to which each queue was read.
        self._after: dict[MessageQueue, int] = {}
        self._read = 0

    def stopped(self) -> str:
        """The cursor from which a stopped search continues. It lies before the messages that the
        search found, because no page has shown them.

        It is empty if the topic has too many queues for a cursor, or no queue was read.
        """
        self._go_back(self._rows)
        return self._cursor()

    def _cursor(self) -> str:
        return cursor_of(self._after) if len(self._after) <= MOST_QUEUES else ""

    def _go_back(self, rows: Sequence[Row]) -> None:
        """Move the cursor before these messages, so that a later page shows them."""
        for row in rows:
            queue = MessageQueue(self._topic, row["broker"], row["queue"])
            self._after[queue] = min(self._after[queue], row["offset"])

    async def run(self, make: MakesReader) -> Found:
        """Read until a limit is reached.

        Raises:
            OrbitError: no queue could be read.
        """
        if isinstance(self._start, Mapping) and not self._start:
            return Found((), 0, "", None, ())
        ended, left_out = None, list[str]()
        try:
            async with (
                asyncio.timeout(LONGEST_S),
                make(self._topic, start=self._start, tags=self._tag or "*", sql=self._sql or None) as reader,
            ):
                self._after = await reader.offsets(self._start)
                ended = await self._read_on(reader)
        except TimeoutError:
            ended = said("ended_time", s=int(LONGEST_S), read=self._read)
        except NotAllReadError as error:
            left_out = [f"{name}: {why}" for name, why in error.left_out.items()]
        return self._found(ended, left_out)

    async def _read_on(self, reader: Reader) -> Said | None:
        """Read on; returns why reading ended before the end of the queues."""
        most = MOST_SHOWN * max(1, len(self._after))
        async with aclosing(reader.steps()) as steps:
            async for step in steps:
                self._take(step)
                if self._newest:
                    self._rows = _first(self._rows, newest=True)
                elif len(self._rows) >= most:
                    return said("ended_enough", n=MOST_SHOWN)
                if self._read >= MOST_READ:
                    return said("ended_read", read=self._read)
        return None

    def _take(self, step: ReadStep) -> None:
        self._rows += [message_row(message, bodies=self._bodies) for message in step.messages]
        self._read += max(
            len(step.messages), step.next_offset - self._after.get(step.queue, step.next_offset)
        )
        self._after[step.queue] = step.next_offset

    def _found(self, ended: Said | None, left_out: Sequence[str]) -> Found:
        shown = _first(self._rows, newest=self._newest)
        if not self._newest:
            rest = sorted(self._rows, key=_stored)[MOST_SHOWN:]
            self._go_back(rest)
            ended = ended or (said("ended_enough", n=MOST_SHOWN) if rest else None)
        cursor = self._cursor()
        if ended is not None and len(self._after) > MOST_QUEUES:
            ended = said("ended_wide", n=MOST_QUEUES)
        return Found(shown, self._read, cursor if ended else "", ended, left_out)


def _stored(row: Row) -> datetime:
    at: datetime = row["stored"]
    return at


def _first(rows: Sequence[Row], *, newest: bool) -> list[Row]:
    """The first rows by their store time, as many as a page shows."""
    return sorted(rows, key=_stored, reverse=newest)[:MOST_SHOWN]


def cursor_of(after: Mapping[MessageQueue, int]) -> str:
    """The offsets of queues as text: ``broker-a:0:17,1:4,broker-b:0:9``."""
    parts: list[str] = []
    broker = ""
    for queue in sorted(after, key=lambda one: (one.broker_name, one.queue_id)):
        name = "" if queue.broker_name == broker else f"{queue.broker_name}:"
        parts.append(f"{name}{queue.queue_id}:{after[queue]}")
        broker = queue.broker_name
    return ",".join(parts)


def places(topic: str, cursor: str) -> Mapping[MessageQueue, int]:
    """The offsets of queues in a cursor.

    Raises:
        ValidationError: the text is not a cursor.
    """
    found: dict[MessageQueue, int] = {}
    broker = ""
    parts = cursor.split(",", MOST_QUEUES)
    if len(parts) > MOST_QUEUES:
        raise ValidationError(f"cursor: it has more than {MOST_QUEUES} queues")
    for part in parts:
        rest, _, offset_text = part.rpartition(":")
        name, _, queue_text = rest.rpartition(":")
        broker = name or broker
        offset, queue_id = whole_number(offset_text, INT64), whole_number(queue_text, INT32)
        if not 0 < len(broker) <= MOST_NAME or offset is None or queue_id is None:
            raise ValidationError(f"cursor: {part[:80]}: expected BROKER:QUEUE:OFFSET")
        queue = MessageQueue(topic, broker, queue_id)
        if queue in found:
            raise ValidationError(f"cursor: queue {broker[:80]}:{queue_id} is there twice")
        found[queue] = offset
    return found


def message_row(message: ReceivedMessage, *, bodies: bool) -> Row:
    """The row of a message in a list."""
    return {
        "stored": instant(message.store_timestamp_ms),
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tag": message.tags or "",
        "keys": " ".join(message.keys),
        "size": len(message.body),
        "body": first_line(message.body) if bodies else "",
        "message": message.message_id,
    }
