"""Where queues go on that no record of the log speaks of any more: what a copy of the log alone does not say.

The next offset of a queue is known from its records. When all of them are expired it is in the files of who
had them only; a broker that copies the log afterwards would begin the queue at 0, and consumers, which are
further, would skip what is stored there next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

from orbitmq.broker.change_feed import QUEUE_ENDS, ChangeFeed, FedTable
from orbitmq.runtime.log_limiter import LogLimiter

log = logging.getLogger(__name__)

Ends = list[tuple[int, int]]


class EndsInStore(Protocol):
    """What the store tells of its queues, see ``MessageStore``."""

    def quiet_ends(self) -> Iterator[tuple[str, Ends]]: ...

    def go_on_at(self, topic: str, queue_id: int, offset: int) -> bool: ...


class QueueEnds:
    """A table of the change feed that the store is behind: by topic, queue ids and the offsets of their ends.

    It is told as a whole only. Both brokers of a link see what expires there from then on: each has the
    queue's end, and nothing changes in it before the next record, which says where it belongs. What is told
    moves an empty queue forward and nothing else, so neither what is old in it, nor what a topic of the same
    name had before, undoes anything; nor does what the teller does not have.
    """

    def __init__(self, feed: ChangeFeed, store: EndsInStore) -> None:
        self._store = store
        self._limiter = LogLimiter(log)
        table = FedTable(list, self._apply, items=store.quiet_ends, is_news=lambda _topic, _ends: True)
        feed.register(QUEUE_ENDS, table)

    def _apply(self, topic: str, ends: Any) -> None:
        """Take over what another broker's queues have.

        Raises:
            TypeError, ValueError: it is not of the form.
        """
        told = [(int(queue_id), int(offset)) for queue_id, offset in ends or ()]
        moved = [queue_id for queue_id, offset in told if self._store.go_on_at(topic, queue_id, offset)]
        if moved:
            self._limiter.write(
                logging.INFO,
                "queues go on",
                "queues %s of topic %s, which have no message here, go on where they ended elsewhere",
                moved,
                topic,
            )
