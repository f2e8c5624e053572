"""All consume queues of a store, and their slots in the appender's table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitmq.runtime import Runtime, Segment
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.consume_queue import ConsumeQueue
from orbitmq.store.queues.lookup import Lookup


@dataclass(slots=True)
class TopicQueues:
    """A topic as the store knows it; ``slots[queue_id]`` is the queue's slot in the appender."""

    topic: str
    name: bytes
    read_queues: int
    write_queues: int
    perm: int
    slots: list[int]


class Queues:
    """Finds, makes and saves consume queues."""

    def __init__(self, runtime: Runtime, config: StoreConfig, appender: Appender, lookup: Lookup) -> None:
        self._runtime = runtime
        self._config = config
        self._appender = appender
        self._lookup = lookup
        self._files: dict[tuple[str, int], ConsumeQueue] = {}
        self.topics: dict[str, TopicQueues] = {}
        self._by_slot: list[tuple[TopicQueues, int, ConsumeQueue]] = []

    def load(self) -> None:
        """Open every queue on disk."""
        root = self._config.consume_queue_path
        for topic in self._runtime.files.list_dir(root):
            for queue_id in self._runtime.files.list_dir(f"{root}/{topic}"):
                if queue_id.isdigit():
                    self.files_of(topic, int(queue_id))

    def files_of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The files of a queue, made on first use."""
        queue = self._files.get((topic, queue_id))
        if queue is None:
            folder = f"{self._config.consume_queue_path}/{topic}/{queue_id}"
            queue = ConsumeQueue(self._runtime, folder, self._config.consume_queue_file_bytes)
            queue.load()
            self._files[(topic, queue_id)] = queue
        return queue

    def all_files(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._files.values()))

    def set_topic(self, topic: str, read_queues: int, write_queues: int, perm: int) -> TopicQueues:
        """Make slots for a topic's queues; called again when its numbers change."""
        known = self.topics.get(topic)
        if known is None:
            known = self.topics[topic] = TopicQueues(topic, topic.encode(), 0, 0, 0, [])
        known.read_queues, known.write_queues, known.perm = read_queues, write_queues, perm
        for queue_id in range(len(known.slots), max(read_queues, write_queues)):
            queue = self.files_of(topic, queue_id)
            known.slots.append(self._appender.add_slot(queue.next_offset, queue.min_offset))
            self._by_slot.append((known, queue_id, queue))
        return known

    def slot(self, topic: str, queue_id: int) -> int:
        """The queue's slot, -1 when there is none."""
        known = self.topics.get(topic)
        if known is None or not 0 <= queue_id < len(known.slots):
            return -1
        return known.slots[queue_id]

    def of_slot(self, slot: int) -> tuple[TopicQueues, int, ConsumeQueue]:
        return self._by_slot[slot]

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Its slots stay unused: nothing points to them any more."""
        known = self.topics.pop(topic, None)
        if known is not None:
            for slot in known.slots:
                self._lookup.drop_entry_map(slot)
                self._appender.reset_slot(slot, 0, 0)
        for key in [key for key in self._files if key[0] == topic]:
            self._files.pop(key).close()
        self._runtime.files.remove_tree(f"{self._config.consume_queue_path}/{topic}")

    def unknown_topics(self) -> list[str]:
        """Topics that have queues on disk and were not set."""
        return sorted({topic for topic, _ in self._files} - self.topics.keys())

    def alive(self, slot: int) -> bool:
        known, queue_id, _ = self._by_slot[slot]
        return self.topics.get(known.topic) is known and known.slots[queue_id] == slot

    def save(self, slot: int) -> None:
        """Write the queue's entries that are only in memory to its file."""
        first = self._appender.get(slot, table.Q_SAVED)
        last = self._appender.get(slot, table.Q_VISIBLE)
        if first < last:
            self._by_slot[slot][2].write(first, self._appender.export_entries(slot, first, last))
            self._appender.set(slot, table.Q_SAVED, last)

    def save_unfinished(self, slot: int) -> None:
        """As :meth:`save`, with the entries of the unwritten batch too: recovery cuts them if need be."""
        first = self._appender.get(slot, table.Q_SAVED)
        last = self._appender.get(slot, table.Q_NEXT)
        if first < last:
            self._by_slot[slot][2].write(first, self._appender.export_entries(slot, first, last))
            self._appender.set(slot, table.Q_SAVED, last)

    def write_all(self) -> None:
        """Write every queue's entries that are only in memory to its file."""
        for slot in range(len(self._by_slot)):
            if self._appender.get(slot, table.Q_SAVED) < self._appender.get(slot, table.Q_VISIBLE):
                self.save(slot)

    def save_all(self) -> list[Segment]:
        """:meth:`write_all`; returns the files to sync. Call :meth:`saved` when they are."""
        self.write_all()
        segments: list[Segment] = []
        for queue in self._files.values():
            segments.extend(queue.begin_sync())
        return segments

    def saved(self) -> None:
        """The files of the last :meth:`save_all` are on the device."""
        for queue in self._files.values():
            queue.end_sync()

    def map_entries(self, slot: int, offset: int) -> bool:
        """Let reads use the file that holds the entry of ``offset``."""
        found = self._by_slot[slot][2].file_view(offset)
        if found is None:
            return False
        view, first, count = found
        if not first <= offset < first + count:
            return False
        self._lookup.set_entry_map(slot, view, first, count)
        return True

    def drop_below(self, physical_offset: int) -> None:
        """The log begins at ``physical_offset`` now: move the queues' beginnings up."""
        for slot, (_, _, queue) in enumerate(self._by_slot):
            if not self.alive(slot):
                continue
            # The files have to know all entries to find the first one that stays.
            self.save(slot)
            if queue.next_offset > queue.min_offset:
                self._lookup.drop_entry_map(slot)
                queue.drop_below(physical_offset)
                self._appender.set(slot, table.Q_MIN, queue.min_offset)

    def close(self) -> None:
        for queue in self._files.values():
            queue.close()
        self._files.clear()
