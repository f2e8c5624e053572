"""Queues of a topic that was deleted and made again hold nothing of the topic before.

Who sees both deletes the queues in between. A copy of the log that was away meanwhile, and queues that are
made anew from the log, have the records of both: a queue that got new ones begins anew at 0 with them, and
one that got none is to be emptied.
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
    """When topics were made, and what follows for their queues.

    Args:
        update_clock: sets the store time of what is put next; returns it, ms.

    Attributes:
        doubtful: queues were read from the log, and may hold what was deleted when the store was open last.
        rebuilt: all of them were.
        ours: no broker of RocketMQ used the folder since. After one has, creation times prove nothing.
        newest_ms: no message had a later time when the store was opened. The clock may be behind it.
    """

    def __init__(
        self, queues: Queues, appender: Appender, reader: Reader, update_clock: Callable[[], int]
    ) -> None:
        self._queues = queues
        self._appender = appender
        self._reader = reader
        self._update_clock = update_clock
        self._known: dict[str, Made] = {}
        # Those whose queues are looked at when another broker tells of them once more.
        self._awaited: set[str] = set()
        self.doubtful = False
        self.rebuilt = False
        self.ours = True
        self.newest_ms = 0

    def now(self, topic: str) -> Made | None:
        """For a topic that is made now; ``None``: whatever is there is its own.

        Its messages may be here before it: those of a master that has not told its topics yet.
        """
        end = self._appender.end
        if not end or any(slot >= 0 and self._next_of(slot) for slot in self._queues.slots_of(topic)):
            return None
        return Made(end, max(self._update_clock(), self.newest_ms) + 1)

    def resume(self, topic: str, made: Made, *, copies: bool = False) -> None:
        """At the start of the store: a topic was made then, as was known before.

        Args:
            copies: another broker tells of the topic once more.
        """
        self._note(topic, made)
        if self.doubtful and self.ours:
            self._empty_older(topic, made, quiet=False)
        elif copies:
            # Also after a clean stop: it may have come before what was told last was told once more.
            self._awaited.add(topic)

    def take(self, topic: str, made: Made) -> None:
        """A topic was made then, as is known now.

        A log that comes to the place only now may be another one than that in which the topic was made: that
        the topic is told once more, which a new link does, says that it is not.
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
            self.forget(topic)  # as news it is tried again
            logger.error("queues of topic %s keep what is not of it until it is told again: %s", topic, error)

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._known.pop(topic, None)
        self._awaited.discard(topic)

    def last_stored_ms(self, topic: str) -> int:
        """When the newest message in the topic's queues was stored, -1 when they have none."""
        ends = [(slot, self._next_of(slot)) for slot in self._queues.slots_of(topic) if slot >= 0]
        return max((self._reader.store_time(slot, following - 1) for slot, following in ends), default=-1)

    def _note(self, topic: str, made: Made) -> None:
        self._known[topic] = made
        self._awaited.discard(topic)
        if made.log_offset > self._appender.end:
            self._awaited.add(topic)
            # What is put here meanwhile is of this topic: its times have to say so, whatever our clock does.
            self._appender.now_ms = max(self._appender.now_ms, made.time_ms)

    def _next_of(self, slot: int) -> int:
        return self._appender.get(slot, table.Q_NEXT)

    def _empty_older(self, topic: str, made: Made, *, quiet: bool) -> None:
        """Empty the queues with messages of another topic.

        A queue has messages of one topic only: the first one of another begins it anew.

        Args:
            quiet: also those that had messages and have none now: where they go on is told, if at all, later.
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
            text = (
                "topic %s was deleted and made again: its queues %s hold nothing of the one before any more"
            )
            logger.info(text, topic, emptied)

    def _is_older(self, slot: int, low: int, made: Made) -> bool:
        known = self._appender.get(slot, table.Q_MIN_PLACE)
        if known >= made.log_offset:
            return False
        place, size, _ = self._queues.entry(slot, low)
        if size <= 0:
            # The file is damaged, or was emptied since the positions were written down: then the last entry
            # is one that the log gave back meanwhile, or there is none.
            place, size, _ = self._queues.entry(slot, self._next_of(slot) - 1)
            if size <= 0:
                return known >= 0
        return place < made.log_offset and 0 <= self._reader.store_time_at(place) < made.time_ms
