"""How far groups are in the topics that they read: lag, messages in flight, times of the oldest messages.

A scrape computes only what has changed since the last one. The message at which a group stands may lie far
back in the log: such messages are loaded in a thread, so that the event loop waits for no disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metrics.ends import TopicEnds
from orbitmq.broker.metrics.read_topics import ReadBatch, ReadTopic
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

# The size of the end of the log that was written lately: the operating system mostly has it in memory.
HOT_BYTES = 64 * 1024 * 1024
# How many times each of two tables holds. A full table replaces the older one, whose unused times are lost.
MAX_TIMES = 20_000
# Popped queues that are looked at in one turn of the event loop.
DEALT_PER_TURN = 5_000


@dataclass(slots=True)
class ConsumedQueue:
    """A group's progress in a queue.

    Attributes:
        done: the offset after the last message up to which all are consumed.
        read: the offset after the last message that was read.
        end: the offset after the newest message.
        in_flight: messages that were read and are not consumed.
        oldest_lagging_ms: when the first message at or after ``done`` was stored; 0: there is none.
        oldest_ready_ms: when the first message at or after ``read`` was stored; 0: there is none.
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
    """Computes the progress of the groups in a batch, as far as it has changed."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, ends: TopicEnds) -> None:
        self._store = store
        self._offsets = offsets
        self._ends = ends
        # When the messages at the offsets of groups were stored, by their places in the log.
        self._times: dict[int, int] = {}
        self._older_times: dict[int, int] = {}
        # The beginning of the log, and whether queues are shown: a change of either makes all numbers stale.
        self._holds: tuple[int, bool] = 0, False
        self._all = True
        self._complete = False
        self._moved: Set[str] = set()
        # The (topic, group) pairs with popped queues now, and those with any now or at the last scrape.
        self._dealt: set[tuple[str, str]] = set()
        self._dealing: set[tuple[str, str]] = set()

    async def begin(self, *, queues: bool) -> None:
        """Begin a scrape.

        Args:
            queues: whether the scrape shows the numbers of single queues.
        """
        holds = self._store.min_commit_log_offset, queues
        moved = self._offsets.take_moved()
        # A scrape that broke off took the moved offsets without looking at all of them: compute everything.
        self._all = moved is None or holds != self._holds or not self._complete
        self._holds, self._moved, self._complete = holds, moved or set(), False
        dealt = set()
        async for topic, group, _ in in_slices(list(self._offsets.dealt()), DEALT_PER_TURN):
            dealt.add((topic, group))
        self._dealt, self._dealing = dealt, self._dealt | dealt

    def end(self) -> None:
        """End a scrape that has looked at all batches or left them out."""
        self._complete = True

    def left_out(self, batch: ReadBatch) -> None:
        """Note that this scrape does not show the batch."""
        batch.known = False

    async def look(self, batch: ReadBatch, serving: Callable[[], bool]) -> bool:
        """Bring the numbers of a batch up to date; stop when the broker serves no more.

        Returns:
            Whether any of them had to be computed.
        """
        found = [(number, self._queues(batch.topics[number])) for number in self._changed(batch)]
        if not found:
            return False
        batch.known = False
        border = self._store.max_commit_log_offset - HOT_BYTES
        cold = [
            place
            for number, queues in found
            for place in self._look_at_times(batch.topics[number], queues, border)
        ]
        if cold:
            await self._store.bring_to_memory(cold)
            if not serving():
                return True
            for number, queues in found:
                self._look_at_times(batch.topics[number], queues, 0)
        for number, queues in found:
            _set(batch, number, queues, of_queues=self._holds[1])
        batch.known = True
        return True

    def _changed(self, batch: ReadBatch) -> Sequence[int]:
        """The indexes in the batch of the topics whose numbers have to be computed."""
        for source in batch.retries:
            self._ends.of(source)  # the ends of other topics were read before
        if self._all or not batch.known:
            return range(len(batch.topics))
        changed, moved, dealing = self._ends.changed, self._moved, self._dealing
        if (
            batch.sources.isdisjoint(changed)
            and batch.keys.isdisjoint(moved)
            and batch.pairs.isdisjoint(dealing)
        ):
            return ()
        return [
            number
            for number, each in enumerate(batch.topics)
            if each.source in changed or each.key in moved or each.pair in dealing
        ]

    def _queues(self, each: ReadTopic) -> list[ConsumedQueue]:
        """The group's progress in each queue, without the times; queues without lag only if queues are
        shown."""
        offsets, group, key = self._offsets, each.row.consumer_group, each.key
        ends, is_retry, is_dealt = (
            self._ends.of(each.source).readable,
            each.is_retry,
            each.pair in self._dealt,
        )
        done_by_queue = offsets.kept_queues(key) or {}
        pulled_by_queue = offsets.pulls().get(key, {})
        reads = offsets.reads(key)
        found = []
        for queue, end in enumerate(ends):
            # A new group begins at the end of a topic, but at the beginning of its own retry topic.
            done = done_by_queue.get(queue, 0 if is_retry else end)
            if done >= end:
                if self._holds[1]:
                    found.append(ConsumedQueue(queue, end, end, end, 0))
                continue
            next_one = max(done, reads[queue]) if queue in reads else done
            read = min(end, max(next_one, pulled_by_queue.get(queue, 0)))
            popped = offsets.in_flight(group, each.source, queue) if is_dealt else None
            # Messages that were popped after one in flight may be consumed already.
            in_flight = read - done if popped is None else read - next_one + popped
            found.append(ConsumedQueue(queue, done, read, end, in_flight))
        return found

    def _look_at_times(self, each: ReadTopic, queues: Sequence[ConsumedQueue], border: int) -> list[int]:
        """Find when the messages at the offsets of a group were stored.

        Returns:
            The places of messages before ``border`` in the log whose times are not known: they were not read.
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


def _set(batch: ReadBatch, number: int, queues: Sequence[ConsumedQueue], *, of_queues: bool) -> None:
    batch.lag[number] = sum([queue.lag for queue in queues])
    batch.in_flight[number] = sum([queue.in_flight for queue in queues])
    batch.lagging_ms[number] = _oldest([queue.oldest_lagging_ms for queue in queues])
    batch.ready_ms[number] = _oldest([queue.oldest_ready_ms for queue in queues])
    # A retry topic of pops has one queue: the numbers of the topic are those of the queue.
    shown = queues if of_queues and not batch.topics[number].is_retry else ()
    batch.queue_lag[number] = tuple([queue.lag for queue in shown])
    batch.queue_lagging_ms[number] = tuple([queue.oldest_lagging_ms for queue in shown])


def _oldest(stored_ms: Sequence[int]) -> int:
    return min(filter(None, stored_ms), default=0)
