"""Open transactions of a lost master: half messages go to another group's master, which checks them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from orbitmq.broker.change_feed import ESCAPED_HALVES
from orbitmq.broker.component import Component, Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.delivering import Pauses, take_stored
from orbitmq.broker.messaging.delivery_sink import DeliverySink, PendingDelivery, is_not_now
from orbitmq.broker.role import Role
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.broker.transactions.half_table import Half
from orbitmq.broker.transactions.reading import HalfQueue, HalfReader
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.runtime.seam import Clock
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
# How many half messages are handed on in one turn of the event loop.
_SLICE = 128


class HalfEscape(Component):
    """Hands each half message that has not ended to the sink, once, when its own timeout has passed.

    This broker checks no transaction: the broker that takes the half message does (behaviours TX-02 to
    TX-06). A half message not stored elsewhere when this broker stops acting stays with the returned master.
    """

    name = "open transactions of the master"
    runs_as = frozenset({Role.ACTING_MASTER})

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        queue: HalfQueue,
        sink: DeliverySink,
        escaped: EscapedHalves,
    ) -> None:
        self._clock = clock
        self._config = config
        self._queue = queue
        self._sink = sink
        self._pauses = Pauses(clock, sink, self.name)
        self._escaped = escaped
        self._halves = HalfReader(queue, config, None, lambda _: None)
        self._on_the_way: dict[int, PendingDelivery] = {}

    def tables(self) -> Sequence[Table]:
        return (Table(ESCAPED_HALVES, self._escaped),)

    async def start(self) -> None:
        self._halves.table, self._halves.marks = await self._queue.load()
        self._on_the_way.clear()
        self._halves.elsewhere = await self._queue.origins(list(self._escaped))
        for offset in self._escaped:
            self._halves.table.finish(offset)
        self._every(self._clock, TICK_SECONDS, self.tick, first_s=0.0)

    async def stop(self) -> None:
        """Wait until the messages handed over are stored, if possible, and note them."""
        await self.end_work()
        if self._on_the_way:
            await self._sink.settle()
            self._settle()

    async def tick(self) -> None:
        """Read new half messages, hand over those due, note those that are stored."""
        self._settle()
        await self._halves.read_new()
        await self._hand_due()

    async def _hand_due(self) -> None:
        now = self._clock.now_ms()
        while due := self._halves.table.due(now, _SLICE):
            for at, half in enumerate(due):
                if half.offset in self._on_the_way:
                    continue
                record = None if half.origin in self._halves.elsewhere else self._queue.half(half.offset)
                if record is None:
                    self._halves.table.finish(half.offset)
                    continue
                try:
                    self._hand(half, record)
                except RemotingError as error:
                    if not is_not_now(error):
                        # The refusal is about this message alone: the others must not wait for it.
                        log.error("the half message %s cannot be handed on: %s", half.unique_id, error)
                        self._halves.table.postpone(half, now + self._config.transaction_check_interval_ms)
                        continue
                    wait_ms = self._pauses.after_ms(error)
                    for late in due[at:]:
                        self._halves.table.postpone(late, now + wait_ms)
                    return
            await asyncio.sleep(0)

    def _hand(self, half: Half, record: Record) -> None:
        properties = decode_properties(record.properties)
        message = forms.handed_on(record, properties)
        self._on_the_way[half.offset] = self._sink.hand(message, decode_properties(message.properties))

    def _settle(self) -> None:
        for offset in take_stored(self._on_the_way):
            self._halves.table.finish(offset)
            self._escaped.add(offset)
            self._halves.elsewhere.add(self._queue.origin(offset))
        self._queue.note(self._halves.table, self._halves.marks)
