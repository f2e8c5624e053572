"""Builds consume queue entries from the log (ReputMessageService): the Python half of the dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.dispatch import Dispatcher
from orbitmq.store.queues.queues import Queues

logger = logging.getLogger(__name__)

# A function of a record's properties and store time in ms: the number for its consume queue entry.
TagsCodeOf = Callable[[bytes, int], int]
# Decides on a record that does not follow the one before it in its queue, from its slot, queue offset, log
# offset and size: ``True``: try the record again, ``False``: it gets no entry.
Settle = Callable[[int, int, int, int], bool]


class Reput:
    """Dispatches pieces of the log, and handles each reason for which the compiled dispatcher stops.

    Args:
        codes: topics that keep a number of their own in place of the tags code.
        settle: decides on records that leave a gap or are repeated.
        found: called with the slot of a queue that was not in the dispatcher's table, and the queue offset of
            its first record.
    """

    def __init__(
        self,
        queues: Queues,
        appender: Appender,
        codes: Mapping[str, TagsCodeOf],
        settle: Settle,
        found: Callable[[int, int], None] | None = None,
    ) -> None:
        self._queues = queues
        self._appender = appender
        self._codes = codes
        self.settle = settle
        self._found = found
        self.dispatcher = Dispatcher(appender)

    def take(
        self,
        view: memoryview,
        start: int,
        stop: int,
        have: int,
        base: int,
        *,
        check_crc: bool,
        find_holes: bool = False,
    ) -> tuple[int, int]:
        """Dispatch the records from ``start`` on; see ``Dispatcher.scan``.

        Returns:
            SCAN_DONE, or the reason for the end: BLANK, CUT, BAD_*; and the place of that end.

        Raises:
            OSError: a consume queue could not be written.
        """
        dispatcher = self.dispatcher
        at = start
        while True:
            status = dispatcher.scan(view, at, stop, have, base, check_crc, find_holes)
            at = dispatcher.position
            if status == table.SCAN_NEW_QUEUE:
                self._add_queue(view)
            elif status == table.SCAN_TAIL_FULL:
                if not self._appender.prepare_tail(dispatcher.slot):
                    self._queues.save_unfinished(dispatcher.slot)
            elif status == table.SCAN_NEEDS_CODE:
                record = dispatcher.reader
                known, _ = self._queues.of_slot(dispatcher.slot)
                properties = bytes(view[record.props_at : record.props_end])
                dispatcher.give_code(self._codes[known.topic](properties, record.store_time))
            elif status in (table.SCAN_AHEAD, table.SCAN_BEHIND):
                record = dispatcher.reader
                if not self.settle(dispatcher.slot, record.queue_offset, record.physical, record.size):
                    at = dispatcher.skip()
            else:
                return status, at

    def _add_queue(self, view: memoryview) -> None:
        record = self.dispatcher.reader
        name = bytes(view[record.topic_at : record.topic_end])
        topic = name.decode("utf-8", "replace")
        slot = self._queues.register(topic, record.queue_id)
        if slot < 0:
            logger.error(
                "the record at %d names queue %d of topic %r: there can be no such queue, it is left out",
                record.physical, record.queue_id, topic,
            )  # fmt: skip
        elif self._found is not None:
            self._found(slot, record.queue_offset)
        self.dispatcher.add(name, record.queue_id, slot, needs_code=topic in self._codes)
