"""How far groups are in the topics that they read: lag, messages in flight, the times of the oldest ones.

A scrape computes only what has changed since the last one. The message at which a group stands may lie far
back in the log: such messages are loaded in a thread, so that the event loop waits for no disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metrics.ends import TopicEnds
from orbitmq.broker.metrics.read_topics import ReadTopic, Seen
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

# The end of the log, which the system has in memory as a rule: it was written not long ago.
HOT_BYTES = 64 * 1024 * 1024
# Times of messages that are kept, twice: those that no scrape asks for any more are forgotten by and by.
MAX_TIMES = 20_000
# Queues that pops deal out, looked at in one turn of the event loop.
DEALT_PER_TURN = 5_000


@dataclass(slots=True)
class ConsumedQueue:
    """A group's progress in a queue.

    Attributes:
        done, read: the offset after the last message that is finished in order, and that was read.
        end: the offset after the newest message.
        in_flight: messages that were read and are not finished.
        oldest_lagging_ms, oldest_ready_ms: when the first unfinished and unread one was stored; 0: none.
    """

    queue_id: int
    done: int
    read: int
    end: int
    in_flight: int
    oldest_lagging_ms: int = 0
    oldest_ready_ms: int = 0

    @property
    def lag(self) -> int:
        return self.end - self.read + self.in_flight


class GroupProgress:
    """Computes the numbers of :class:`ReadTopic`."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, ends: TopicEnds) -> None:
        self._store = store
        self._offsets = offsets
        self._ends = ends
        # When messages were stored at which groups stand or stood, by their places in the log.
        self._times: dict[int, int] = {}
        self._older_times: dict[int, int] = {}
        # The beginning of the log, and whether queues are shown: what was computed holds as long as both do.
        self._holds: tuple[int, bool] = 0, False
        self._dealt: set[tuple[str, str]] = set()

    async def begin(self, *, queues: bool) -> None:
        """A scrape begins.

        Args:
            queues: whether the numbers of single queues are asked for.
        """
        holds = self._store.min_commit_log_offset, queues
        if holds != self._holds:
            self._holds = holds
        self._dealt = set()
        async for topic, group, _ in in_slices(list(self._offsets.dealt()), DEALT_PER_TURN):
            self._dealt.add((topic, group))

    async def look(self, batch: Sequence[ReadTopic], serving: Callable[[], bool]) -> None:
        """Bring the numbers of these up to date, as far as they have changed, while the broker serves."""
        found = [(each, seen, self._queues(each, seen)) for each, seen in self._changed(batch)]
        if not found:
            return
        border = self._store.max_commit_log_offset - HOT_BYTES
        cold = [place for each, _, queues in found for place in self._look_at_times(each, queues, border)]
        if cold:
            await self._store.bring_to_memory(cold)
            if not serving():
                return
            for each, _, queues in found:
                self._look_at_times(each, queues, 0)
        for each, seen, queues in found:
            _set(each, queues, of_queues=self._holds[1])
            each.seen = seen

    def _changed(self, batch: Sequence[ReadTopic]) -> Iterator[tuple[ReadTopic, Seen]]:
        """Those whose numbers may have changed, with what they have to be computed from."""
        offsets, ends_of, holds, dealt = self._offsets, self._ends.of, self._holds, self._dealt
        pulls, resets = offsets.pulls(), offsets.resets()
        for each in batch:
            key = each.key
            ends, kept, pulled = ends_of(each.source), offsets.kept_queues(key), pulls.get(key)
            # Pops deal messages out, and a pending reset moves the group, without a change of its offsets.
            moving = key in resets or (each.source, each.row.consumer_group) in dealt
            seen = each.seen
            if (
                seen is None
                or moving
                or seen.moving
                or seen.ends is not ends
                or seen.kept != kept
                or seen.pulled != pulled
                or seen.holds is not holds
            ):
                # The tables change in place.
                kept, pulled = (None if one is None else dict(one) for one in (kept, pulled))
                yield each, Seen(ends, kept, pulled, holds, moving)

    def _queues(self, each: ReadTopic, seen: Seen) -> list[ConsumedQueue]:
        """The group's progress in each queue, without the times; of all queues only if they are asked for."""
        ends, is_retry, group = seen.ends.readable, each.row.is_retry == "true", each.row.consumer_group
        done_by_queue, pulled_by_queue = seen.kept or {}, seen.pulled or {}
        reads = self._offsets.reads(each.key) if seen.moving else {}
        found = []
        for queue, end in enumerate(ends):
            # A new group begins at the end of a topic, but at the beginning of its own retry topic.
            done = min(end, done_by_queue.get(queue, 0 if is_retry else end))
            if done == end:
                if self._holds[1]:
                    found.append(ConsumedQueue(queue, end, end, end, 0))
                continue
            next_one = max(done, reads.get(queue, 0))
            read = min(end, max(next_one, pulled_by_queue.get(queue, 0)))
            popped = self._offsets.in_flight(group, each.source, queue) if seen.moving else None
            # Of messages that pops handed out, those behind one in flight may be finished.
            in_flight = read - done if popped is None else read - next_one + popped
            found.append(ConsumedQueue(queue, done, read, end, in_flight))
        return found

    def _look_at_times(self, each: ReadTopic, queues: Sequence[ConsumedQueue], border: int) -> list[int]:
        """Read when the messages were stored at which the group stands.

        Returns:
            The places in the log of those that were not read: they are unknown, and lie before ``border``.
        """
        topic = each.source
        cold: list[int] = []
        for queue in queues:
            if queue.done < queue.end:
                queue.oldest_lagging_ms = self._time(topic, queue.queue_id, queue.done, border, cold)
            if queue.read == queue.done:
                queue.oldest_ready_ms = queue.oldest_lagging_ms
            elif queue.read < queue.end:
                queue.oldest_ready_ms = self._time(topic, queue.queue_id, queue.read, border, cold)
        return cold

    def _time(self, topic: str, queue_id: int, offset: int, border: int, cold: list[int]) -> int:
        """When the first message from ``offset`` on that is still stored was stored; 0: it is not known."""
        stored = max(offset, self._store.min_offset(topic, queue_id))
        entry = self._store.entry(topic, queue_id, stored)
        if entry is None:
            return 0
        place = entry[0]
        found = self._times.get(place) or self._older_times.get(place)
        if found is None:
            if place < border:
                cold.append(place)
                return 0
            found = max(0, self._store.store_time(topic, queue_id, stored))
        if len(self._times) >= MAX_TIMES:
            self._older_times, self._times = self._times, {}
        self._times[place] = found
        return found


def _set(each: ReadTopic, queues: Sequence[ConsumedQueue], *, of_queues: bool) -> None:
    each.lag = sum([queue.lag for queue in queues])
    each.in_flight = sum([queue.in_flight for queue in queues])
    each.lagging_ms = min([queue.oldest_lagging_ms for queue in queues if queue.oldest_lagging_ms], default=0)
    each.ready_ms = min([queue.oldest_ready_ms for queue in queues if queue.oldest_ready_ms], default=0)
    if not of_queues:
        each.queue_rows = []
        return
    each.queue_lag = [queue.lag for queue in queues]
    each.queue_lagging_ms = [queue.oldest_lagging_ms for queue in queues]
    if len(each.queue_rows) != len(queues):
        group, topic = each.row.consumer_group, each.row.topic
        each.queue_rows = [(group, topic, str(queue.queue_id)) for queue in queues]
