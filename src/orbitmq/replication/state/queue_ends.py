"""The next offsets of queues whose records have all expired: a copy of the log does not contain them.

The next offset of a queue is known from its records. When all have expired, only the queue files of the
brokers that had them show it. A broker that copies the log later would begin the queue at 0, and consumers,
which are further, would skip the messages that are stored there next.
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
    """The store's queues and their ends, see ``MessageStore``."""

    def quiet_ends(self) -> Iterator[tuple[str, Ends]]: ...

    def go_on_at(self, topic: str, queue_id: int, offset: int) -> bool: ...


class QueueEnds:
    """A table of the change feed, kept by the store: by topic, queue ids and the offsets of their ends.

    It is sent only as a whole. Both brokers of a link see records expire from then on: each has the queue's
    end, and nothing changes in it before the next record, which has its own queue offset. Sending it only
    moves an empty queue forward. So an old end, or one of an earlier topic of the same name, undoes nothing;
    nor does a queue that the sender lacks.
    """

    def __init__(self, feed: ChangeFeed, store: EndsInStore) -> None:
        self._store = store
        self._limiter = LogLimiter(log)
        table = FedTable(list, self._apply, items=store.quiet_ends, is_news=lambda _topic, _ends: True)
        feed.register(QUEUE_ENDS, table)

    def _apply(self, topic: str, ends: Any) -> None:
        """Take over the ends of another broker's queues.

        Raises:
            TypeError, ValueError: the value is malformed.
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
