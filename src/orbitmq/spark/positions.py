"""Places such as ``earliest`` as offsets of every queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.brokers import Brokers, Patience, max_offset, min_offset, offset_at
from orbitmq.spark.errors import DataLossError, OffsetError, UnreachableError
from orbitmq.spark.offsets import Offsets, begin_of
from orbitmq.spark.options import Position, ReadOptions, Start
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.spark")


class Positions:
    """Asks the brokers where queues begin and end.

    Args:
        options: topics and name servers.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.brokers = Brokers(options.name_servers, options.request_timeout_ms)

    def earliest(self) -> Offsets:
        """The first offset of every readable queue."""
        return self._all(min_offset)

    def latest(self) -> Offsets:
        """The offset after the last message of every readable queue."""
        return self._all(max_offset)

    def _all(self, request: Callable[[MessageQueue], Command]) -> Offsets:
        return Offsets(self.brokers.offsets(self._queues(), request))

    def latest_where_possible(self) -> tuple[dict[MessageQueue, int], dict[str, UnreachableError]]:
        """:meth:`latest` of the brokers that answer, and what is wrong with the others, by address."""
        return self.brokers.offsets_where_possible(self._queues(), max_offset)

    def first_of(self, queues: set[MessageQueue]) -> dict[MessageQueue, int]:
        """The first offset of some queues, of those whose brokers answer."""
        if not queues:
            return {}
        owners = {queue: at for queue, at in self._queues().items() if queue in queues}
        return self.brokers.offsets_where_possible(owners, min_offset)[0]

    def is_told_by_master(self, queue: MessageQueue) -> bool:
        """Whether the queue's offsets come from a master; a slave may only be behind."""
        address = self.brokers.route(queue.topic).readable.get(queue, "")
        return self.brokers.is_master(queue.topic, address)

    def start(self) -> Offsets:
        """Where the options say that a query begins.

        Raises:
            OffsetError: they name a queue that does not exist.
            DataLossError: they name a message that is gone or never came, and ``failOnDataLoss`` is on.
            UnreachableError: the cluster was away for longer than ``offsetTimeout``.
        """
        options = self.options
        return self._patiently(
            lambda: self._resolve(options.starting, options.starting_timestamp_ms, Start.EARLIEST)
        )

    def end(self) -> Offsets:
        """Where the options say that a batch query ends. Errors as with :meth:`start`."""
        options = self.options
        return self._patiently(
            lambda: self._resolve(options.ending, options.ending_timestamp_ms, Start.LATEST)
        )

    def latest_patiently(self) -> Offsets:
        """:meth:`latest`, tried again while the cluster is away, up to ``offsetTimeout``."""
        return self._patiently(self.latest)

    def _patiently(self, resolve: Callable[[], Offsets]) -> Offsets:
        patience = Patience(self.options.offset_timeout_ms)
        while True:
            try:
                return resolve()
            except (UnreachableError, TopicNotFoundError) as error:
                # A name server that just started knows no topics yet.
                if patience.is_over or isinstance(error, TopicNotFoundError):
                    raise
                patience.pause()

    def _resolve(self, place: Position, timestamp_ms: int, other: Start) -> Offsets:
        """The offsets of ``place``; queues that it does not name are at ``other``."""
        if place is Start.TIMESTAMP:
            return self._all(lambda queue: offset_at(queue, timestamp_ms))
        if isinstance(place, Start):
            return self.earliest() if place is Start.EARLIEST else self.latest()
        first, last = self.earliest(), self.latest()
        unknown = [queue for queue in place if queue not in first]
        if unknown:
            raise OffsetError(
                f"offsets name {unknown[0]}, which is not a readable queue of {self.options.topics}"
            )
        others = first if other is Start.EARLIEST else last
        return Offsets({q: self._within(q, place.get(q, others[q]), first[q], last[q]) for q in first})

    def _within(self, queue: MessageQueue, offset: int, first: int, last: int) -> int:
        if first <= offset <= last:
            return offset
        if offset < first:
            self.lost(f"offset {offset} of {queue} is gone, the first one left is {first}")
            return first
        self.lost(f"offset {offset} of {queue} is not there, the queue ends at {last}")
        return last

    def lost(self, text: str) -> None:
        """Tell a loss: an error with ``failOnDataLoss``, else a warning.

        Raises:
            DataLossError: with ``failOnDataLoss``.
        """
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false goes on with what is there")
        log.warning("%s", text)

    def checked_ends(self, start: Offsets, end: Offsets) -> Offsets:
        """``end`` of a batch query, never before ``start``.

        Raises:
            DataLossError: a queue ends before it begins and ``failOnDataLoss`` is on.
        """
        table: dict[MessageQueue, int] = {}
        for queue, offset in end.items():
            begin = begin_of(start, end, queue)
            if offset < begin:
                self.lost(f"{queue} ends at {offset}, before the begin of the read at {begin}")
            table[queue] = max(offset, begin)
        return Offsets(table)

    def unknown_firsts(self, start: Offsets, end: Offsets) -> Mapping[MessageQueue, int]:
        """The first messages of queues of which neither place tells the begin.

        Raises:
            UnreachableError: a broker does not tell.
        """
        unknown = {queue for queue in end if queue not in start and queue not in end.begins}
        owners = {queue: at for queue, at in self._queues().items() if queue in unknown} if unknown else {}
        return self.brokers.offsets(owners, min_offset)

    def _queues(self) -> dict[MessageQueue, str]:
        # Routes are asked for anew each time: queues are added and brokers move while a query runs.
        return self.brokers.readable(self.options.topics, refresh=True)
