"""All consume queues of a store: their slots in the appender's table, and their files.

While nothing happens in a queue it costs only its slot; its files are opened when they are used, and only a
limited number at a time. The event loop and the checkpoint's threads both use this module: code that touches
files holds the mutex, for one queue at a time.
"""

from __future__ import annotations

import logging
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orbitmq.message.numbers import INT32, whole_number
from orbitmq.runtime import Runtime
from orbitmq.runtime.again import write_again
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.files import file_name
from orbitmq.store.queues import layout as table
from orbitmq.store.queues.checking import QueueFiles
from orbitmq.store.queues.consume_queue import ConsumeQueue
from orbitmq.store.queues.lookup import Lookup
from orbitmq.store.queues.positions import QueuePositions

logger = logging.getLogger(__name__)

MAX_QUEUE_ID = 65_535
# The most queues with open files. A mapped file costs two descriptors.
MAX_OPEN_QUEUES = 256
# With more changed files one call for the whole file system is cheaper than one for each.
SYNC_EACH_LIMIT = 64

# A check whether the log has an entry's record: gets the entry, its queue id and its queue offset.
IsStored = Callable[[tuple[int, int, int], int, int], bool]


@dataclass(slots=True)
class StoredTopic:
    """A topic in the store.

    Attributes:
        slots: ``slots[queue_id]`` is the queue's slot in the appender, -1: the queue is not there.
        dropped: its queues were deleted.
        counts: where its counts begin in the appender, -1: it has got no message since the start.
    """

    topic: str
    name: bytes
    number: int
    read_queues: int
    write_queues: int
    perm: int
    slots: array[int]
    dropped: bool = False
    counts: int = -1


class Queues:
    """Finds, makes and saves consume queues.

    Attributes:
        topics: the topics that were set; only their queues are found by :meth:`slot`.
        dropped: how many topics were dropped: their slots must not be used any more.
        cuts: how often queues lost messages at their end or began anew, so that offsets are assigned again.
        moved: slots that :meth:`go_on_at` has moved, with their new offset: not on the disk yet.
    """

    def __init__(self, runtime: Runtime, config: StoreConfig, appender: Appender, lookup: Lookup) -> None:
        self._runtime = runtime
        self._config = config
        self._appender = appender
        self._lookup = lookup
        self._mutex = runtime.threads.mutex()
        # Held while files are synced: files that another thread has begun to sync must not count as synced.
        self._syncing = runtime.threads.mutex()
        self.topics: dict[str, StoredTopic] = {}
        # All topics with queues on disk, also those that were not set.
        self._stored: dict[str, StoredTopic] = {}
        self._by_number: list[StoredTopic] = []
        # Topic number and queue id of each slot.
        self._owners = array("i")
        self._ids = array("i")
        self._open: OrderedDict[int, ConsumeQueue] = OrderedDict()
        self._unsynced: set[tuple[int, int]] = set()
        # Changed files of which the device refused a part: entries that count as written may be missing.
        self._doubtful: set[tuple[int, int]] = set()
        self._file_created = False
        self.dropped = 0
        self.cuts = 0
        self.moved: dict[int, int] = {}

    # -- topics and slots ------------------------------------------------------------------------------

    def set_topic(self, topic: str, read_queues: int, write_queues: int, perm: int) -> StoredTopic:
        """Make slots for a topic's queues; called again when its numbers change."""
        known = self.topics[topic] = self._known(topic)
        known.read_queues, known.write_queues, known.perm = read_queues, write_queues, perm
        count = max(read_queues, write_queues)
        if len(known.slots) < count or -1 in known.slots[:count]:
            for queue_id in range(count):
                self._slot_of(known, queue_id)
        return known

    def register(self, topic: str, queue_id: int) -> int:
        """The slot of a queue named in the log; a missing one is made; -1: no queue can have this name."""
        if (
            not 0 <= queue_id <= MAX_QUEUE_ID
            or not topic
            or "/" in topic
            or "\0" in topic
            or topic in (".", "..")
        ):
            return -1
        return self._slot_of(self._known(topic), queue_id)

    def _known(self, topic: str) -> StoredTopic:
        known = self._stored.get(topic)
        if known is None:
            known = StoredTopic(topic, topic.encode(), len(self._by_number), 0, 0, 0, array("q"))
            self._stored[topic] = known
            self._by_number.append(known)
        return known

    def _slot_of(self, known: StoredTopic, queue_id: int) -> int:
        slots = known.slots
        if queue_id >= len(slots):
            slots.extend([-1] * (queue_id + 1 - len(slots)))
        if slots[queue_id] < 0:
            slot = slots[queue_id] = self._appender.add_slots(1)
            self._appender.set(slot, table.Q_ID, queue_id)
            self._appender.set(slot, table.Q_COUNTS, known.counts)
            self._owners.append(known.number)
            self._ids.append(queue_id)
        return slots[queue_id]

    def slot(self, topic: str, queue_id: int) -> int:
        """The queue's slot, -1 when there is none."""
        known = self.topics.get(topic)
        if known is None or not 0 <= queue_id < len(known.slots):
            return -1
        return known.slots[queue_id]

    def find(self, topic: str, queue_id: int) -> int:
        """As :meth:`slot`, also of topics that were not set."""
        known = self._stored.get(topic)
        if known is None or not 0 <= queue_id < len(known.slots):
            return -1
        return known.slots[queue_id]

    def slots_of(self, topic: str) -> Sequence[int]:
        """The slots of a topic's queues by id, also of topics that were not set; -1: no such queue."""
        known = self._stored.get(topic)
        return () if known is None else known.slots

    def has_messages(self, topic: str) -> bool:
        """Whether a queue of the topic has messages, also when it was not set."""
        get = self._appender.get
        return any(
            slot >= 0 and get(slot, table.Q_MIN) < get(slot, table.Q_VISIBLE) for slot in self.slots_of(topic)
        )

    def of_slot(self, slot: int) -> tuple[StoredTopic, int]:
        """The topic and the queue id of a slot."""
        return self._by_number[self._owners[slot]], self._ids[slot]

    def make_counts(self, slot: int) -> None:
        """Give the slot's topic its counts, if it has none."""
        known = self._by_number[self._owners[slot]]
        if known.counts < 0:
            known.counts = self._appender.add_counts()
            for each in known.slots:
                if each >= 0:
                    self._appender.set(each, table.Q_COUNTS, known.counts)

    def alive(self, slot: int) -> bool:
        """Whether the slot's topic still exists."""
        return not self._by_number[self._owners[slot]].dropped

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Its slots stay unused: nothing points to them any more."""
        self.dropped += 1
        with self._mutex:
            self.topics.pop(topic, None)
            known = self._stored.pop(topic, None)
            if known is not None:
                known.dropped = True
                for slot in known.slots:
                    if slot >= 0:
                        self._close(slot)
                        self._appender.reset_slot(slot, 0, 0)
            self._runtime.files.remove_tree(f"{self._config.consume_queue_path}/{topic}")

    def unknown_topics(self) -> list[str]:
        """Topics with queues on disk that were not set."""
        return sorted(self._stored.keys() - self.topics.keys())

    # -- positions -------------------------------------------------------------------------------------

    def positions(self) -> QueuePositions:
        """The positions of all queues, counting visible messages."""
        appender = self._appender
        return QueuePositions(
            topics=["" if known.dropped else known.topic for known in self._by_number],
            owners=array("i", self._owners),
            ids=array("i", self._ids),
            mins=appender.column(table.Q_MIN),
            nexts=appender.column(table.Q_VISIBLE),
            places=appender.column(table.Q_MIN_PLACE),
        )

    def load_positions(self, positions: QueuePositions) -> None:
        """Take over the positions saved by an earlier run, without reading the files."""
        positions = positions.without_dropped()
        for topic in positions.topics:
            self._known(topic)
        self._owners, self._ids = positions.owners, positions.ids
        self._appender.add_slots(len(self._ids))
        by_number = self._by_number
        for slot, (owner, queue_id) in enumerate(zip(self._owners, self._ids, strict=True)):
            slots = by_number[owner].slots
            if queue_id == len(slots):
                slots.append(slot)
            else:
                if queue_id > len(slots):
                    slots.extend([-1] * (queue_id + 1 - len(slots)))
                slots[queue_id] = slot
        appender = self._appender
        for column in (table.Q_NEXT, table.Q_VISIBLE, table.Q_TAIL_FIRST, table.Q_SAVED):
            appender.set_column(0, column, positions.nexts)
        appender.set_column(0, table.Q_ID, array("q", positions.ids))
        appender.set_column(0, table.Q_MIN, positions.mins)
        appender.set_column(0, table.Q_MIN_PLACE, positions.places)

    def folders(self) -> list[str]:
        """The topics that have a folder."""
        files, root = self._runtime.files, self._config.consume_queue_path
        return [name for name in files.list_dir(root) if files.is_dir(f"{root}/{name}")]

    def load_folder(
        self, topic: str, border: int, *, cut: bool, is_stored: IsStored, files: QueueFiles
    ) -> str | None:
        """Find the end of each queue of a topic from its files, counting records below ``border``.

        Returns the file that lacks entries between the ends of its queue, or ``None``.

        Args:
            cut: whether to remove the entries behind that end.
            is_stored: whether the log has the record that an entry names.

        Raises:
            StoreError: a file of another size.
        """
        root = self._config.consume_queue_path
        fault = None
        for name in self._runtime.files.list_dir(f"{root}/{topic}"):
            queue_id = whole_number(name, INT32)
            if queue_id is None or (slot := self.register(topic, queue_id)) < 0:
                continue
            with self._mutex:
                queue = self._queue(slot)
                low, high = queue.bounds()
                following = queue.end_below(border, low, queue.end_of_files if cut else high)
                # A crash may have left entries whose records were lost.
                while following > low and not is_stored(queue.entry(following - 1), queue_id, following - 1):
                    following -= 1
                if cut:
                    self._note(slot, queue, queue.cut(following))
                self._appender.reset_slot(slot, following, min(low, following))
                self._close(slot)
                end = following if cut else high
                if low < end:
                    fault = fault or files.fault(queue.folder, low, end)
        return fault

    def forget_all(self) -> list[tuple[int, int]]:
        """Make every queue empty; returns the slots of queues that had messages, and where these ended."""
        ends = [(slot, end) for slot, end in enumerate(self._appender.column(table.Q_NEXT)) if end]
        with self._mutex:
            for slot, _ in ends:
                self._close(slot)
                self._appender.reset_slot(slot, 0, 0)
        return ends

    # -- files -----------------------------------------------------------------------------------------

    def _queue(self, slot: int) -> ConsumeQueue:
        """The files of a queue; the mutex is held."""
        queue = self._open.get(slot)
        if queue is not None:
            self._open.move_to_end(slot)
            return queue
        while len(self._open) >= MAX_OPEN_QUEUES:
            self._close(next(iter(self._open)))
        known, queue_id = self.of_slot(slot)
        folder = f"{self._config.consume_queue_path}/{known.topic}/{queue_id}"
        queue = ConsumeQueue(self._runtime, folder, self._config.consume_queue_file_bytes)
        self._open[slot] = queue
        return queue

    def _close(self, slot: int) -> None:
        self._lookup.drop_entry_map(slot)
        queue = self._open.pop(slot, None)
        if queue is not None:
            queue.close()

    def _note(self, slot: int, queue: ConsumeQueue, changed: Iterable[int]) -> None:
        self._unsynced.update((slot, number) for number in changed)
        self._file_created |= queue.created
        queue.created = False

    def _writable(self, slot: int) -> ConsumeQueue:
        """The files of a queue whose next entry is about to be written, made to end where its positions
        end."""
        queue = self._queue(slot)
        get = self._appender.get
        if not get(slot, table.Q_CHECKED):
            saved, low = get(slot, table.Q_SAVED), get(slot, table.Q_MIN)
            if slot in self.moved:
                self._note(slot, queue, queue.begin_at(saved))
            elif low < saved and queue.entry(saved - 1)[1] <= 0:
                logger.error(
                    "%s lacks its entries up to %d: its older messages are not found until the consume "
                    "queues are rebuilt (stop the broker, delete the folder consumequeue)", queue.folder,
                    saved,
                )  # fmt: skip
                self._note(slot, queue, queue.begin_at(saved))
                self._appender.set(slot, table.Q_MIN, saved)
                self._appender.set(slot, table.Q_MIN_PLACE, -1)
            self._note(slot, queue, queue.cut(saved))
            self._appender.set(slot, table.Q_CHECKED, 1)
        return queue

    def _save(self, slot: int, column: int) -> None:
        with self._mutex:
            first, last = self._appender.get(slot, table.Q_SAVED), self._appender.get(slot, column)
            if first < last and self.alive(slot):
                queue = self._writable(slot)
                self._note(slot, queue, queue.write(first, self._appender.export_entries(slot, first, last)))
                self._appender.set(slot, table.Q_SAVED, last)

    def save(self, slot: int) -> None:
        """Write the queue's visible entries that are only in memory to its file."""
        self._save(slot, table.Q_VISIBLE)

    def save_unfinished(self, slot: int) -> None:
        """As :meth:`save`, with the entries of the unwritten batch too: recovery removes them if need be."""
        self._save(slot, table.Q_NEXT)

    def save_many(self, slots: list[int]) -> None:
        """:meth:`save` for each; entries that a failure leaves out are noted as unsaved again.

        Raises:
            OSError: the disk refused.
        """
        done = 0
        try:
            for slot in slots:
                self.save(slot)
                done += 1
        finally:
            for slot in slots[done:]:
                self._appender.note_unsaved(slot)

    def write_all(self) -> None:
        """Write all visible entries that are only in memory to their files.

        Raises:
            OSError: the disk refused.
        """
        self.save_many(self._appender.take_unsaved())

    def sync(self) -> None:
        """Bring the changed files to the device.

        Raises:
            OSError: the disk refused; the same files are written again and synced by the next call.
        """
        with self._syncing:
            self._sync_changed()

    def _sync_changed(self) -> None:
        with self._mutex:
            changed, self._unsynced = self._unsynced, set()
            doubtful, self._doubtful = self._doubtful, set()
            created, self._file_created = self._file_created, False
        try:
            for slot, number in sorted(doubtful):
                self._sync_file(slot, number, again=True)
            if created or len(changed) > SYNC_EACH_LIMIT:
                self._runtime.files.sync_all(self._config.root)
            else:
                for slot, number in sorted(changed):
                    self._sync_file(slot, number)
        except BaseException:
            with self._mutex:
                self._unsynced |= changed
                self._doubtful |= doubtful | changed
                self._file_created |= created
            raise

    def _sync_file(self, slot: int, number: int, *, again: bool = False) -> None:
        known, queue_id = self.of_slot(slot)
        file_bytes = self._config.consume_queue_file_bytes
        folder = f"{self._config.consume_queue_path}/{known.topic}/{queue_id}"
        path = f"{folder}/{number * (file_bytes // 20 * 20):020d}"
        try:
            segment = self._runtime.files.open_segment(path, file_bytes // 20 * 20)
        except FileNotFoundError:
            return  # the topic was dropped, or the file has expired
        try:
            if again:
                write_again(segment, 0)
            else:
                segment.sync()
        finally:
            segment.close()

    def map_entries(self, slot: int, offset: int) -> bool:
        """Let reads use the file that holds the entry of ``offset``."""
        with self._mutex:
            found = self._queue(slot).file_view(offset, self._appender.get(slot, table.Q_SAVED))
            if found is None:
                return False
            view, first, count = found
            if not first <= offset < first + count:
                return False
            self._lookup.set_entry_map(slot, view, first, count)
            return True

    def mend(self, slot: int, offset: int, entry: bytes) -> None:
        """Write one entry of the queue's file anew.

        Raises:
            OSError: the disk refused.
        """
        with self._mutex:
            if self.alive(slot) and offset < self._appender.get(slot, table.Q_SAVED):
                queue = self._queue(slot)
                self._note(slot, queue, queue.write(offset, entry))

    # -- changes of a queue's ends ---------------------------------------------------------------------

    def entry(self, slot: int, offset: int) -> tuple[int, int, int]:
        """(physical offset, size, tags code) in ring or file, zeros when there is no entry."""
        if self._lookup.find_entry(slot, offset) == table.READ_FOUND:
            return self._lookup.entry_physical, self._lookup.entry_size, self._lookup.entry_tags
        with self._mutex:
            return self._queue(slot).entry(offset)

    def entry_place(self, slot: int, offset: int) -> str:
        """The file of a queue offset's entry and the position in it, for log lines."""
        known, queue_id = self.of_slot(slot)
        number, at = divmod(offset * 20, self._config.consume_queue_file_bytes)
        start = number * self._config.consume_queue_file_bytes
        return f"{self._config.consume_queue_path}/{known.topic}/{queue_id}/{file_name(start)} at {at}"

    def restart(self, slot: int, offset: int) -> None:
        """Empty the queue and let it begin anew at ``offset``."""
        self.cuts += 1
        with self._mutex:
            self._lookup.drop_entry_map(slot)
            queue = self._queue(slot)
            self._note(slot, queue, queue.begin_at(offset))
            self._appender.reset_slot(slot, offset, offset)
            self._appender.set(slot, table.Q_CHECKED, 1)

    def restart_all(self) -> None:
        """Let every queue begin anew with its next record, at that record's offset."""
        for slot, following in enumerate(self._appender.column(table.Q_NEXT)):
            if following and self.alive(slot):
                self.restart(slot, 0)

    def quiet_topics(self) -> list[str]:
        """The topics that were set in which a queue had messages and has none now."""
        columns = (self._appender.column(table.Q_MIN), self._appender.column(table.Q_NEXT))
        owners = {
            owner
            for owner, low, following in zip(self._owners, *columns, strict=True)
            if low == following > 0
        }
        return [topic for topic, known in self.topics.items() if known.number in owners]

    def quiet_ends(self, topic: str) -> list[tuple[int, int]]:
        """Queue id and next offset of a topic's queues that had messages and have none now."""
        known, get = self.topics.get(topic), self._appender.get
        if known is None:
            return []
        return [
            (queue_id, following)
            for queue_id, slot in enumerate(known.slots)
            if slot >= 0 and get(slot, table.Q_MIN) == (following := get(slot, table.Q_NEXT)) > 0
        ]

    def go_on_at(self, slot: int, offset: int) -> bool:
        """Let an empty queue give its next record a later offset; ``False``: it has messages or is further.

        Only in memory: a queue that never gets a message costs no file until :meth:`file_moved`.
        """
        with self._mutex:
            get = self._appender.get
            if not get(slot, table.Q_MIN) == get(slot, table.Q_NEXT) < offset:
                return False
            self._lookup.drop_entry_map(slot)
            self._appender.reset_slot(slot, offset, offset)
            self._appender.set(slot, table.Q_CHECKED, 0)
            self.moved[slot] = offset
            return True

    def file_moved(self, slots: list[int]) -> None:
        """Bring the files of moved queues to their next offsets.

        Raises:
            OSError: the disk refused.
        """
        for slot in slots:
            with self._mutex:
                if self.alive(slot):
                    self._writable(slot)

    def forget_moved(self, filed: dict[int, int]) -> None:
        """Forget the moves of these queues, which are on the device, except queues moved again meanwhile."""
        with self._mutex:
            for slot, offset in filed.items():
                if self.moved.get(slot) == offset:
                    del self.moved[slot]

    def truncate(self, slot: int, next_offset: int) -> None:
        """Forget the queue's entries from ``next_offset`` on."""
        self.cuts += 1
        with self._mutex:
            self._lookup.drop_entry_map(slot)
            first = self._appender.get(slot, table.Q_SAVED)
            queue = self._writable(slot)
            if first < next_offset:
                entries = self._appender.export_entries(slot, first, next_offset)
                self._note(slot, queue, queue.write(first, entries))
            self._note(slot, queue, queue.cut(next_offset))
            low, place = self._appender.get(slot, table.Q_MIN), self._appender.get(slot, table.Q_MIN_PLACE)
            self._appender.reset_slot(slot, next_offset, min(low, next_offset))
            self._appender.set(slot, table.Q_MIN_PLACE, place if low < next_offset else -1)

    def drop_below(self, physical_offset: int) -> None:
        """Move the beginnings of the affected queues up to ``physical_offset``, where the log begins now."""
        for slot in self._appender.slots_below(physical_offset):
            with self._mutex:
                if self.alive(slot):
                    self._drop_below(slot, physical_offset)

    def _drop_below(self, slot: int, physical_offset: int) -> None:
        # The files must have all entries to find the first one that stays.
        self.save(slot)
        self._lookup.drop_entry_map(slot)
        appender, queue = self._appender, self._queue(slot)
        saved = appender.get(slot, table.Q_SAVED)
        # Older files were removed by a cleaning after the positions were noted.
        low = min(max(appender.get(slot, table.Q_MIN), queue.first_of_files), saved)
        low = queue.end_below(physical_offset, low, saved)
        appender.set(slot, table.Q_MIN, low)
        appender.set(slot, table.Q_MIN_PLACE, queue.entry(low)[0] if low < saved else -1)
        queue.remove_files_below(low)

    def close(self) -> None:
        with self._mutex:
            for slot in list(self._open):
                self._close(slot)
