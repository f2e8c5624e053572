"""The first message of a queue that was stored at a time or later, whatever the broker's version.

Brokers can search by time, but RocketMQ 4.9 returns the nearest message, or any message of the same
millisecond, and the last message if all are older. Therefore each answer is checked, and if it is wrong, a
binary search follows here.
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
    """The search in one queue: the result is an offset from ``low`` to ``high``, both included."""

    at_ms: int
    low: int
    high: int

    def saw(self, offset: int, stored_ms: int | None) -> None:
        """Use a message's store time; ``None`` for a message that was just deleted, which counts as
        too old.
        """
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
        group: the consumer group named in the requests.
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
        """The offset of that message in each queue of ``times_ms``; the queue's end if all messages are
        older.

        Args:
            queues: for each queue, the address of its broker.
            first, last: the first and the next offset of each queue.

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
        # If the broker's answer is right, these two messages prove it.
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
        """Request the store times of some messages, for the searches."""
        inside = {
            queue: offset for queue, offset in places if searches[queue].low <= offset < searches[queue].high
        }
        for address, owned in by_address({queue: owners[queue] for queue in inside}).items():
            asked = [messages_at(queue, inside[queue], 1, self._group) for queue in owned]
            for queue, answer in zip(owned, self._brokers.ask(address, asked), strict=True):
                searches[queue].saw(inside[queue], _time_of(answer, inside[queue], address))


def _time_of(answer: Command, offset: int, address: str) -> int | None:
    """The store time in an answer; ``None`` if the message is deleted, or is being deleted.

    Raises:
        UnreachableError: the broker is busy, or is a slave that is behind: the message may still exist.
        BrokerError: the broker refuses.
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
    """The store time of the first message in the answer to a pull; ``None`` if the answer has no message."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        record = next(iter(iter_records(answer.body)), None)
    except MessageFormatError:
        return None
    return record.store_timestamp if record is not None else None
