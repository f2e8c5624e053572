"""Reads the tables at the start, and writes them while the broker runs and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from orbitmq.broker.change_feed import (
    FORBIDDEN,
    GROUPS,
    LOCKS,
    LOCKS_COMPLETE,
    OFFSETS,
    POP_ORDERS,
    POPS,
    PROGRESS,
    REDRIVES,
    RESETS,
    TOPICS,
    UNTOLD,
)
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.component import Component, Table
from orbitmq.broker.events import Events, ResetDone, SlaveLagChanged
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs


class MetadataTables(Component):
    """Owns the tables of topics, subscription groups, consumer offsets and queue locks."""

    name = "metadata"

    def __init__(
        self,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        locks: QueueLocks,
    ) -> None:
        self._tables = (
            # Offsets and redrives are deleted in one frame with their topic or group: a new topic or group of
            # the same name must not find them.
            Table(TOPICS, topics, after=(OFFSETS, REDRIVES)),
            Table(GROUPS, groups, parts=(FORBIDDEN,), after=(OFFSETS,)),
            # A reset that a pop consumed and the position that the pop moved to become durable together. A
            # slave that lacks both would undo the reset, so the list of those slaves is written too.
            Table(OFFSETS, offsets, parts=(RESETS,), after=(POPS, POP_ORDERS, UNTOLD)),
            Table(LOCKS, locks, parts=(LOCKS_COMPLETE,)),
        )

    def tables(self) -> Sequence[Table]:
        return self._tables


class TableFiles(Component):
    """Keeps the tables of all components on disk.

    Args:
        max_age_s: the longest time until a change is in its table's file (flushConsumerOffsetInterval).
        not_kept: called when a table cannot be written at a stop.
    """

    name = "table files"
    stop_limit_s = None  # changes that are not written are lost

    def __init__(self, persistence: Persistence, max_age_s: float, not_kept: Callable[[], None]) -> None:
        self._persistence = persistence
        self._max_age_s = max_age_s
        self._not_kept = not_kept

    def keep(self, tables: Iterable[Table]) -> None:
        """Keep these tables from the start on."""
        for table in tables:
            self._persistence.register(
                table.name, table.source, parts=table.parts, after=table.after, private=table.private
            )

    async def start(self) -> None:
        """Read the tables that an earlier run has left.

        Raises:
            TableError: a table and its backup are damaged.
        """
        self._persistence.load()
        self._spawn(self._persistence.run(self._max_age_s), "table files")

    async def stop(self) -> None:
        await self.end_work()
        if not await self._persistence.close():
            self._not_kept()


class KeptAtOnce(Component):
    """Writes the offsets to the disk at once where a kill would cost more than repeated messages.

    Without that, a kill would bring back a consumed reset, which moves the group again. And when a slave
    begins to lack changes, the offsets of that moment must be on the disk, because the slave's own are older.

    No caller waits for this write; a refused write is tried again with the table files.
    """

    name = "offsets that are kept at once"

    def __init__(self, events: Events, persistence: Persistence) -> None:
        self._persistence = persistence
        self._wanted = asyncio.Event()
        events.subscribe(ResetDone, lambda _event: self._wanted.set())
        events.subscribe(SlaveLagChanged, lambda _event: self._wanted.set())

    async def start(self) -> None:
        self._spawn(self._keep(), "keep them")

    async def _keep(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with suppress(OSError):
                await self._persistence.flush(UNTOLD, *PROGRESS)
