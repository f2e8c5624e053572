"""Keeps messages of a deleted topic out of the queues of a later topic with the same name.

A broker that sees both events deletes the queues in between. A broker that was away meanwhile, and queues
rebuilt from the log, have the records of both topics. A queue with new records begins anew at 0 with the
first of them; a queue without new records has to be emptied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.store.log.appender import Appender
from orbitmq.store.model import Made
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.queues import Queues
from orbitmq.store.queues.reading import Reader

logger = logging.getLogger(__name__)


class TopicIncarnations:
    """Keeps when topics were made, and empties queues with messages of earlier topics of their names.

    Args:
        update_clock: sets the store time of messages put next; returns it, ms.

    Attributes:
        doubtful: whether queues were read from the log, and may hold messages deleted in an earlier run.
        rebuilt: whether all queues were read from the log.
        ours: whether the folder was last used by OrbitMQ. After a RocketMQ broker used it, creation times
            prove nothing.
        newest_ms: the latest time of a message when the store was opened. The clock may be behind it.
    """

    def __init__(
        self, queues: Queues, appender: Appender, reader: Reader, update_clock: Callable[[], int]
    ) -> None:
        self._queues = queues
        self._appender = appender
        self._reader = reader
        self._update_clock = update_clock
        self._known: dict[str, Made] = {}
        # Topics whose queues are checked when another broker sends the topic once more.
        self._awaited: set[str] = set()
        self.doubtful = False
        self.rebuilt = False
        self.ours = True
        self.newest_ms = 0

    def now(self, topic: str) -> Made | None:
        """The creation to note for a topic made now; ``None``: all messages in its queues belong to it.

        Messages may be here before their topic, if they come from a master that has not sent its topics yet.
        """
        end = self._appender.end
        if not end or any(slot >= 0 and self._next_of(slot) for slot in self._queues.slots_of(topic)):
            return None
        return Made(end, max(self._update_clock(), self.newest_ms) + 1)

    def resume(self, topic: str, made: Made, *, copies: bool = False) -> None:
        """Note at the start of the store a topic's creation that was already known.

        Args:
            copies: whether another broker will send the topic once more.
        """
        self._note(topic, made)
        if self.doubtful and self.ours:
            self._empty_older(topic, made, quiet=False)
        elif copies:
            # A clean stop does not prove that the last changes were sent again before it.
            self._awaited.add(topic)

    def take(self, topic: str, made: Made) -> None:
        """Note a topic's creation that has just become known.

        A log shorter than ``made.log_offset`` may not be the log in which the topic was made; so the queues
        are checked again when a new link sends the topic once more and the log reaches that place.
        """
        news = self._known.get(topic) != made
        if news:
            self._note(topic, made)
        elif topic not in self._awaited or made.log_offset > self._appender.end:
            return
        else:
            self._awaited.discard(topic)
        try:
            self._empty_older(topic, made, quiet=news)
        except OSError as error:
            self.forget(topic)  # when it is sent again, the topic counts as new
            logger.error(
                "queues of topic %s keep older messages until its master sends it again: %s", topic, error
            )

    def forget(self, topic: str) -> None:
        """Forget the creation of a deleted topic."""
        self._known.pop(topic, None)
        self._awaited.discard(topic)

    def last_stored_ms(self, topic: str) -> int:
        """When the newest message in the topic's queues was stored; -1 when they have no messages."""
        ends = [(slot, self._next_of(slot)) for slot in self._queues.slots_of(topic) if slot >= 0]
        return max((self._reader.store_time(slot, following - 1) for slot, following in ends), default=-1)

    def _note(self, topic: str, made: Made) -> None:
        self._known[topic] = made
        self._awaited.discard(topic)
        if made.log_offset > self._appender.end:
            self._awaited.add(topic)
            # Messages put here from now on belong to this topic: their times must show it, whatever this
            # broker's clock shows.
            self._appender.now_ms = max(self._appender.now_ms, made.time_ms)

    def _next_of(self, slot: int) -> int:
        return self._appender.get(slot, table.Q_NEXT)

    def _empty_older(self, topic: str, made: Made, *, quiet: bool) -> None:
        """Empty the queues with messages of an earlier topic.

        A queue has messages of one topic only: the first message of another begins it anew.

        Args:
            quiet: whether to empty also queues whose messages have all expired: their next offset is sent
                later, if at all.
        """
        emptied = []
        for queue_id, slot in enumerate(self._queues.slots_of(topic)):
            if slot < 0 or not (following := self._next_of(slot)):
                continue
            low = self._appender.get(slot, table.Q_MIN)
            if self._is_older(slot, low, made) if low < following else quiet:
                self._queues.restart(slot, 0)
                emptied.append(queue_id)
        if emptied:
            text = "topic %s was deleted and made again: the earlier messages of its queues %s are removed"
            logger.info(text, topic, emptied)

    def _is_older(self, slot: int, low: int, made: Made) -> bool:
        known = self._appender.get(slot, table.Q_MIN_PLACE)
        if known >= made.log_offset:
            return False
        place, size, _ = self._queues.entry(slot, low)
        if size <= 0:
            # The file is damaged, or was emptied after the positions were saved: then its last entry was
            # restored from the log, or there is none.
            place, size, _ = self._queues.entry(slot, self._next_of(slot) - 1)
            if size <= 0:
                return known >= 0
        return place < made.log_offset and 0 <= self._reader.store_time_at(place) < made.time_ms
