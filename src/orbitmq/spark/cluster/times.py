"""The first message of a queue that was stored at a time or later, whatever the broker's version.

Brokers search by time, but RocketMQ 4.9 answers with the nearest message, or any one of the same millisecond,
and with the last one when all are older. So each answer is checked, and we search ourselves when it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.errors import BrokerError
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import iter_records
from orbitmq.spark.cluster.brokers import Brokers, by_address, is_busy, messages_at, offset_at
from orbitmq.spark.errors import UnreachableError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageResponse


@dataclass(slots=True)
class _Search:
    """One queue: the answer is from ``low`` to ``high``, both included."""

    at_ms: int
    low: int
    high: int

    def saw(self, offset: int, stored_ms: int | None) -> None:
        """A message's time; ``None``: it was just deleted, which makes it too old."""
        if stored_ms is not None and stored_ms >= self.at_ms:
            self.high = min(self.high, offset)
        else:
            self.low = max(self.low, offset + 1)

    @property
    def is_over(self) -> bool:
        return self.low >= self.high


class TimeSearch:
    """Searches queues by time.

    Args:
        group: the consumer group in the requests.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group

    def first_at(
        self,
        queues: Mapping[MessageQueue, str],
        times_ms: Mapping[MessageQueue, int],
        first: Mapping[MessageQueue, int],
        last: Mapping[MessageQueue, int],
    ) -> dict[MessageQueue, int]:
        """The offset of that message in each queue of ``times_ms``; the queue's end when all are older.

        Args:
            queues: the address of the broker that is asked about each queue.
            first, last: where each queue begins and ends.

        Raises:
            UnreachableError, BrokerError: as with :meth:`orbitmq.spark.cluster.brokers.Brokers.offsets`.
        """
        owners = {queue: queues[queue] for queue in times_ms}
        told = self._brokers.offsets(owners, lambda queue: offset_at(queue, times_ms[queue]))
        searches = {
            queue: _Search(at_ms, first[queue], last[queue])
            for queue, at_ms in times_ms.items()
            if first[queue] < last[queue]
        }
        guesses = {queue: max(search.low, told[queue]) for queue, search in searches.items()}
        # If the broker is right, these two messages prove it.
        self._look(set(guesses.items()), owners, searches)
        self._look({(queue, guess - 1) for queue, guess in guesses.items()}, owners, searches)
        while open_ones := {queue: search for queue, search in searches.items() if not search.is_over}:
            middles = {(queue, (search.low + search.high) // 2) for queue, search in open_ones.items()}
            self._look(middles, owners, searches)
        return {queue: searches[queue].low if queue in searches else last[queue] for queue in times_ms}

    def _look(
        self,
        places: set[tuple[MessageQueue, int]],
        owners: Mapping[MessageQueue, str],
        searches: Mapping[MessageQueue, _Search],
    ) -> None:
        """Give the searches the store times of some messages."""
        inside = {
            queue: offset for queue, offset in places if searches[queue].low <= offset < searches[queue].high
        }
        for address, owned in by_address({queue: owners[queue] for queue in inside}).items():
            asked = [messages_at(queue, inside[queue], 1, self._group) for queue in owned]
            for queue, answer in zip(owned, self._brokers.ask(address, asked), strict=True):
                searches[queue].saw(inside[queue], _time_of(answer, inside[queue], address))


def _time_of(answer: Command, offset: int, address: str) -> int | None:
    """The store time in an answer; ``None``: the message is gone, or is being removed.

    Raises:
        UnreachableError: the broker is busy, or a slave that is behind: the message may well be there.
        BrokerError: it refuses.
    """
    if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        return stored_ms(answer)
    moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
    if moved and PullMessageResponse.from_ext(answer.ext).min_offset > offset:
        return None
    if moved or answer.code == ResponseCode.PULL_NOT_FOUND or is_busy(answer.code):
        why = f"{answer.code} {answer.remark or ''}"
        raise UnreachableError(f"{address} does not show offset {offset}: {why}")
    raise BrokerError(answer.code, answer.remark, address)


def stored_ms(answer: Command) -> int | None:
    """The store time of the first message in the answer to a pull; ``None``: it has no message."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        record = next(iter(iter_records(answer.body)), None)
    except MessageFormatError:
        return None
    return record.store_timestamp if record is not None else None
