"""Finds messages: by key in the brokers' indexes, else by reading a topic for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.cli.formats import date
from orbitmq.cli.reading import read, reader_of
from orbitmq.cli.where import Servers
from orbitmq.durations import instant
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut
    from orbitmq.message.model import ReceivedMessage

# Limits of a search without a key: messages read, and seconds.
MOST_READ = 100_000
LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search for messages. ``begin_ms``, ``end_ms``: limits of the store time, the second one exclusive."""

    topic: str
    key: str | None
    tag: str | None
    begin_ms: int | None
    end_ms: int | None
    count: int

    @property
    def text(self) -> str:
        parts = [f"has the {name} {one}" for name, one in (("key", self.key), ("tag", self.tag)) if one]
        if self.begin_ms is not None:
            parts.append(f"was stored from {date(self.begin_ms)} on")
        if self.end_ms is not None:
            parts.append(f"was stored before {date(self.end_ms)}")
        return " and ".join(parts)

    def takes(self, message: ReceivedMessage) -> bool:
        at_ms = message.store_timestamp_ms
        within = (self.begin_ms or 0) <= at_ms and (self.end_ms is None or at_ms < self.end_ms)
        return within and (self.tag is None or message.tags == self.tag)


@dataclass(frozen=True, slots=True)
class Found:
    """The messages found, the oldest first. ``why_not_all``: the reason why the search was incomplete; empty
    if it was complete.
    """

    messages: Sequence[ReceivedMessage]
    left_out: Sequence[LeftOut]
    why_not_all: str = ""


async def by_index(servers: Servers, wanted: Wanted) -> Found:
    """The messages with a key, from the brokers' indexes."""
    from orbitmq.admin import Admin

    async with Admin(**servers.options) as admin:
        answer = await admin.messages.find(
            wanted.topic,
            key=wanted.key or "",
            begin=None if wanted.begin_ms is None else instant(wanted.begin_ms),
            end=None if wanted.end_ms is None else instant(wanted.end_ms),
            max_messages=wanted.count,
        )
    return Found([one for one in answer.found if wanted.takes(one)], answer.left_out)


async def by_reading(servers: Servers, wanted: Wanted) -> Found:
    """The messages with a tag, or between two times, from all queues of the topic."""
    begin = "first" if wanted.begin_ms is None else wanted.begin_ms
    reader = reader_of(wanted.topic, begin, servers, tags=wanted.tag or "*")
    messages: list[ReceivedMessage] = []
    lost: list[LeftOut] = []
    seen, why = 0, ""
    try:
        async with asyncio.timeout(LONGEST_S), aclosing(read(reader, lost)) as batches:
            async for batch in batches:
                seen += len(batch)
                messages += filter(wanted.takes, batch)
                if len(messages) >= wanted.count:
                    break
                if seen >= MOST_READ:
                    why = f"the search ended after {counted(seen, 'message')}: give a later --from"
                    break
    except TimeoutError:
        why = f"the search ended after {LONGEST_S:g} s and {counted(seen, 'message')}: give a later --from"
    messages.sort(key=lambda message: message.store_timestamp_ms)
    return Found(messages[: wanted.count], lost, why)
