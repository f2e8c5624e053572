"""How far each group has consumed each queue (ConsumerOffsetManager).

The table holds the offsets for the disk and for other brokers: all messages below them are done. A group that
pops may be further: clients see the next offset of the queue that pop deals out as the group's committed
offset. A commit not made by pop moves such a queue, which then sets its own offset here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from orbitmq.broker.change_feed import OFFSETS, RESETS, ChangeFeed, FedTable
from orbitmq.broker.events import Events, OffsetsReset, ResetDone
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value, quoted
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.topic import DataVersion

SEPARATOR = "@"
# How many pulls are answered with a reset that no pull follows: some clients choose their offsets themselves.
MAX_RESET_ANSWERS = 5


class DealtQueue(Protocol):
    """A queue that the broker deals out to a group (pop).

    Attributes:
        next: the offset of the group's next message; not all messages below it are done.
        in_flight: how many messages below ``next`` are not done.
    """

    next: int
    in_flight: int


class ConsumerOffsets:
    """Committed offsets by group, topic and queue, with resets that no pull has followed yet.

    Args:
        version_step: the table's version goes up once in this many commits (consumerOffsetUpdateVersionStep).

    Attributes:
        pairs_version: grows when a group gets its first offset in a topic, or loses its last one.
    """

    def __init__(self, clock: Clock, feed: ChangeFeed, events: Events, *, version_step: int = 500) -> None:
        self._clock = clock
        self._feed = feed
        self._events = events
        self.version_step = version_step
        self._commits = 0
        self.pairs_version = 0
        self._table: dict[str, dict[int, int]] = {}
        # By topic, group and queue id, see :meth:`deal`.
        self._dealt: Mapping[tuple[str, str, int], DealtQueue] = {}
        self._move: Callable[[str, str, int, int], object] = self.keep
        self._pulled: dict[str, dict[int, int]] = {}
        self._pull_starts: dict[str, dict[int, int]] = {}
        self._pulled_lately: set[str] = set()
        # Each ``topic@group`` that has moved since the last :meth:`take_moved`; None: it was never called.
        self._moved: set[str] | None = None
        # Called before pulls are read: passes on the pulls that the fast path has noted so far.
        self._collect_pulls: Callable[[], None] = lambda: None
        self._resets: dict[str, dict[int, int]] = {}
        # How often each pending reset was sent without being followed, by ``topic@group`` and queue id.
        self._reset_answers: dict[tuple[str, int], int] = {}
        # Pairs that may be in one of the tables, so that no table has to be searched.
        self._groups_by_topic: dict[str, set[str]] = {}
        self._topics_by_group: dict[str, set[str]] = {}
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        feed.register(OFFSETS, FedTable(int, self._apply_offset, self, self._items, self._is_ahead))
        feed.register(
            RESETS,
            FedTable(
                int,
                self._apply_reset,
                items=self._pending_items,
                is_news=self._is_ahead,
                restore=self._restore_reset,
            ),
        )

    # -- reading ---------------------------------------------------------------------------------------

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset to continue at: a pending reset, else the committed one; ``None``: neither."""
        key = _key(topic, group)
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        queues = self._table.get(key)
        kept = None if queues is None else queues.get(queue_id)
        return None if kept is None else self._committed(group, topic, queue_id, kept)

    def _committed(self, group: str, topic: str, queue_id: int, kept: int) -> int:
        queue = self._dealt.get((topic, group, queue_id))
        return kept if queue is None else max(kept, queue.next)

    def undone(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of the group's first message that is not done; with messages in flight it is below
        :meth:`query`."""
        key = _key(topic, group)
        found = self._resets.get(key, {}).get(queue_id)
        return self._table.get(key, {}).get(queue_id) if found is None else found

    def in_flight(self, group: str, topic: str, queue_id: int) -> int | None:
        """How many messages pops have handed out that are not done; ``None``: the queue is not popped."""
        queue = self._dealt.get((topic, group, queue_id))
        return None if queue is None else queue.in_flight

    def in_flight_in(self, group: str, topic: str, queues: int) -> int:
        """The sum of :meth:`in_flight` over the first ``queues`` queues of a topic."""
        if not self._dealt:
            return 0
        return sum(self.in_flight(group, topic, queue_id) or 0 for queue_id in range(queues))

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group's last pull ended, else the offset of :meth:`query`."""
        self._collect_pulls()
        queues = self._pulled.get(_key(topic, group))
        if queues is not None and queue_id in queues:
            return queues[queue_id]
        return self.query(group, topic, queue_id)

    def pulls(self) -> Mapping[str, dict[int, int]]:
        """Where the pulls since the start ended, by ``topic@group`` and queue id; not a copy."""
        self._collect_pulls()
        return self._pulled

    def pull_starts(self) -> Mapping[str, dict[int, int]]:
        """Where the first pulls since the start began, like :meth:`pulls`; not all are known."""
        self._collect_pulls()
        return self._pull_starts

    def take_pulled(self) -> set[str]:
        """Each ``topic@group`` for which pulls were noted or forgotten since the last call."""
        self._collect_pulls()
        lately, self._pulled_lately = self._pulled_lately, set()
        return lately

    def take_moved(self) -> set[str] | None:
        """Each ``topic@group`` with changed offsets, pulls or resets since the last call.

        Returns:
            None at the first call: nothing was recorded before it. Queues from which messages are popped may
            change without being listed.
        """
        self._collect_pulls()
        moved, self._moved = self._moved, set()
        return moved

    def _note_moved(self, key: str) -> None:
        if self._moved is not None:
            self._moved.add(key)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull of this queue."""
        return queue_id in self._resets.get(_key(topic, group), {})

    def topics_of(self, group: str) -> set[str]:
        """The topics in which the group has committed offsets."""
        return {t for t in self._topics_by_group.get(group, ()) if _key(t, group) in self._table}

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have committed offsets in the topic."""
        return {g for g in self._groups_by_topic.get(topic, ()) if _key(topic, g) in self._table}

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group in a topic by queue id."""
        return {
            queue_id: self._committed(group, topic, queue_id, kept)
            for queue_id, kept in self.kept(group, topic).items()
        }

    def kept(self, group: str, topic: str) -> dict[int, int]:
        """The kept offsets of a group in a topic by queue id: each that of the first message not done."""
        return dict(self._table.get(_key(topic, group), {}))

    def table(self) -> Mapping[str, dict[int, int]]:
        """The kept offsets by ``topic@group`` and queue id; not a copy."""
        return self._table

    def kept_queues(self, key: str) -> Mapping[int, int] | None:
        """The kept offsets of a ``topic@group``, not a copy; ``None``: they were removed."""
        return self._table.get(key)

    def reads(self, key: str) -> Mapping[int, int]:
        """The offsets of :meth:`query` of a ``topic@group`` that differ from the kept ones, by queue id."""
        found = self._resets.get(key)
        if not self._dealt:
            return found or {}
        topic, group = _split(key)
        dealt = {
            queue_id: self._committed(group, topic, queue_id, kept)
            for queue_id, kept in self._table.get(key, {}).items()
            if (topic, group, queue_id) in self._dealt
        }
        return {**dealt, **(found or {})}

    def dealt(self) -> Mapping[tuple[str, str, int], DealtQueue]:
        """The queues that are dealt out, by topic, group and queue id; not a copy."""
        return self._dealt

    # -- changing --------------------------------------------------------------------------------------

    def deal(
        self, dealt: Mapping[tuple[str, str, int], DealtQueue], move: Callable[[str, str, int, int], object]
    ) -> None:
        """Note the queues that are dealt out; they may change.

        Args:
            move: called with group, topic, queue id and offset when a commit moves the group in one of them;
                it moves the queue, and calls :meth:`keep`.
        """
        self._dealt, self._move = dealt, move

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the committed offset. It may go backwards: as in RocketMQ the last commit wins."""
        if (topic, group, queue_id) in self._dealt:
            self._move(group, topic, queue_id, offset)
        else:
            self.keep(group, topic, queue_id, offset)

    def keep(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset for the disk and for other brokers: all messages below it are done."""
        key = _key(topic, group)
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
            self.pairs_version += 1
            self._link(group, topic)
        # Consumers commit with every pull: only a new offset is worth a write.
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._changed(key, queue_id, offset)

    def _items(self) -> Iterator[tuple[str, int]]:
        # A large table is read in slices, and may change between two of them.
        for key, queues in list(self._table.items()):
            for queue_id, offset in list(queues.items()):
                yield f"{key}{SEPARATOR}{queue_id}", offset

    def _pending_items(self) -> list[tuple[str, int]]:
        return [
            (f"{key}{SEPARATOR}{queue_id}", offset)
            for key, queues in self._resets.items()
            for queue_id, offset in queues.items()
        ]

    def set_pull_source(self, source: Callable[[], None]) -> None:
        """Call ``source`` before pulls are read; it passes pulls that it noted to :meth:`note_late_pull`."""
        self._collect_pulls = source

    def note_pull_start(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where a group's first pull of a queue began; statistics only, not kept on disk."""
        self._collect_pulls()
        self._note_start(group, topic, queue_id, offset)

    def _note_start(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = _key(topic, group)
        if key not in self._pull_starts:
            self._pull_starts[key] = {}
            self._link(group, topic)
        self._pull_starts[key].setdefault(queue_id, offset)

    def note_pull(
        self, group: str, topic: str, queue_id: int, next_offset: int, *, started: int | None = None
    ) -> None:
        """Remember where a pull ended, and where the first one ``started``; statistics only, not on disk."""
        self._collect_pulls()
        self.note_late_pull(group, topic, queue_id, next_offset, started)

    def note_late_pull(
        self, group: str, topic: str, queue_id: int, next_offset: int, started: int | None
    ) -> None:
        """Note a pull like :meth:`note_pull`, but one that came before those noted already."""
        key = _key(topic, group)
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
            self._link(group, topic)
        if started is not None and queue_id not in queues:
            self._note_start(group, topic, queue_id, started)
        if queues.get(queue_id) != next_offset:
            queues[queue_id] = next_offset
            self._pulled_lately.add(key)
            self._note_moved(key)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move a group; its next pull of the queue gets the reset, and commits before that have no effect."""
        self._pend(group, topic, queue_id, offset)
        self.commit(group, topic, queue_id, offset)
        self._events.publish(OffsetsReset(group, topic))

    def _pend(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = _key(topic, group)
        self._resets.setdefault(key, {})[queue_id] = offset
        self._reset_answers.pop((key, queue_id), None)
        self._link(group, topic)
        self._note_moved(key)
        self._feed.changed(RESETS, f"{key}{SEPARATOR}{queue_id}", offset)

    def has_any_reset(self, group: str, topic: str) -> bool:
        """Whether a reset waits for the group's next pull of any queue of the topic."""
        return _key(topic, group) in self._resets

    def reset_for_pull(self, group: str, topic: str, queue_id: int, pull_offset: int) -> int | None:
        """The pending reset that answers a pull for offset ``pull_offset``; ``None``: no reset is pending.

        The reset stays pending until a pull begins at its offset: an answer can be lost, and its client would
        then continue, and commit, at the old offset.
        """
        offset = self._resets.get(_key(topic, group), {}).get(queue_id)
        if offset is None:
            return None
        place = _key(topic, group), queue_id
        answers = self._reset_answers.get(place, 0)
        if (answers and pull_offset == offset) or answers == MAX_RESET_ANSWERS:
            self.take_reset(group, topic, queue_id)
            return None
        self._reset_answers[place] = answers + 1
        return offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove the pending reset of a queue; returns its offset, ``None``: no reset is pending."""
        key = _key(topic, group)
        self._reset_answers.pop((key, queue_id), None)
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        if offset is not None:
            self._note_moved(key)
            self._feed.changed(RESETS, f"{key}{SEPARATOR}{queue_id}", None)
            self._events.publish(ResetDone())
        return offset

    def drop_group(self, group: str) -> None:
        """Forget a group's offsets, except those in its retry topics: without these, a later group of that
        name would get the old retries."""
        topics = self._topics_by_group.get(group, ())
        self._drop([(topic, group) for topic in topics if not topic.startswith(RETRY_PREFIX)])

    def drop_topic(self, topic: str) -> None:
        """Forget a topic for all groups."""
        self._drop([(topic, group) for group in self._groups_by_topic.get(topic, ())])

    def _link(self, group: str, topic: str) -> None:
        self._groups_by_topic.setdefault(topic, set()).add(group)
        self._topics_by_group.setdefault(group, set()).add(topic)

    @staticmethod
    def _unlink(table: dict[str, set[str]], key: str, other: str) -> None:
        others = table[key]
        others.discard(other)
        if not others:
            del table[key]

    def _drop(self, pairs: list[tuple[str, str]]) -> None:
        self._collect_pulls()
        for topic, group in sorted(pairs):
            key = _key(topic, group)
            self._unlink(self._groups_by_topic, topic, group)
            self._unlink(self._topics_by_group, group, topic)
            if self._pulled.pop(key, None) is not None:
                self._pulled_lately.add(key)
            self._note_moved(key)
            self._pull_starts.pop(key, None)
            for queue_id in self._resets.pop(key, {}):
                self._reset_answers.pop((key, queue_id), None)
                self._feed.changed(RESETS, f"{key}{SEPARATOR}{queue_id}", None)
            self.pairs_version += 1
            for queue_id in self._table.pop(key, {}):
                self._changed(key, queue_id, None)

    def _changed(self, key: str, queue_id: int, offset: int | None) -> None:
        self._note_moved(key)
        self._commits += 1
        if self._commits % self.version_step == 0:
            self.version = self.version.next(self._clock.now_ms())
        self._feed.changed(OFFSETS, f"{key}{SEPARATOR}{queue_id}", offset)

    def _apply_offset(self, key: str, offset: int | None) -> None:
        topic, group, queue_id = _split_queue(key)
        if offset is not None:
            self.keep(group, topic, queue_id, int(offset))
            queue = self._dealt.get((topic, group, queue_id))
            if queue is not None:  # the peer sends its popped queue separately, with the messages in flight
                queue.next = max(queue.next, int(offset))
            return
        queues = self._table.get(_key(topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self._changed(_key(topic, group), queue_id, None)
        if not queues:
            self._table.pop(_key(topic, group), None)
            self.pairs_version += 1

    def _is_ahead(self, key: str, offset: int | None) -> bool:
        """Whether a commit or reset of another broker is ahead; a lower one may have been undone here since.

        The same holds for a reset that the group has got here: the group has moved on from its offset.
        """
        topic, group, queue_id = _split_queue(key)
        if self.has_reset(group, topic, queue_id):
            return False  # while a reset waits, commits do not count
        known = self._table.get(_key(topic, group), {}).get(queue_id)
        return offset is not None and (known is None or offset > known)

    def _apply_reset(self, key: str, offset: int | None) -> None:
        topic, group, queue_id = _split_queue(key)
        if offset is None:
            self.take_reset(group, topic, queue_id)
        else:
            # The offset itself is another change, and may have moved on since.
            self._pend(group, topic, queue_id, int(offset))
            self._events.publish(OffsetsReset(group, topic))

    def _restore_reset(self, key: str, offset: int | None) -> None:
        """Restore a reset without an event: no client pulls yet."""
        topic, group, queue_id = _split_queue(key)
        if offset is None:
            self.take_reset(group, topic, queue_id)
        else:
            self._pend(group, topic, queue_id, int(offset))

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``consumerOffset.json``, piece by piece; its table of pending resets is OrbitMQ's own."""
        version = body_text(self.version, "\n\t")
        parts: list[tuple[str, Iterable[tuple[str, str]] | str]] = [
            ("dataVersion", version),
            ("offsetTable", self._entries()),
        ]
        # With keys that are texts: RocketMQ 5.5.0 cannot skip a table whose keys are bare numbers.
        resets = {
            key: {str(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in self._resets.items()
        }
        if resets:
            parts.append((RESETS, pretty_value(resets, "\n\t")))
        return file_text(parts)

    def _entries(self) -> Iterator[tuple[str, str]]:
        for key in list(self._table):
            queues = self._table.get(key)
            if queues is not None:
                lines = ",\n\t\t\t".join([f"{queue}:{offset}" for queue, offset in sorted(queues.items())])
                yield quoted(key), f"{{\n\t\t\t{lines}\n\t\t}}" if lines else "{}"

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``consumerOffset.json``."""
        self.pairs_version += 1
        for key, queues in (content.get("offsetTable") or {}).items():
            self._table[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            topic, group = _split(key)
            self._link(group, topic)
        for key, queues in (content.get(RESETS) or {}).items():
            self._resets[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            topic, group = _split(key)
            self._link(group, topic)
        if content.get("dataVersion"):
            self.version = DataVersion.from_json(content["dataVersion"])


def _key(topic: str, group: str) -> str:
    return topic + SEPARATOR + group


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


def _split_queue(key: str) -> tuple[str, str, int]:
    pair, _, queue_id = key.rpartition(SEPARATOR)
    topic, group = _split(pair)
    return topic, group, int(queue_id)
