"""Moves the positions of groups that pop: for a commit, a reset, a deletion or a new end of the log.

A group that pops has one position in a queue: ``PopQueue.next``. A commit moves it at once; the offset on the
disk follows it up to the first message in flight. When nothing is in flight and another client has committed,
the queue is dropped here, because the committed offset is then the whole state.
"""

from __future__ import annotations

import logging

from orbitmq.broker.change_feed import OFFSETS
from orbitmq.broker.events import Events, GroupChanged, LogCut, OffsetsReset, TableSaved, TopicChanged
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.in_flight import InFlight, PopQueue
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.role import LEADING, Role, RoleChanged
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore

log = logging.getLogger(__name__)

# How many queues are looked at in one turn of the event loop.
QUEUES_PER_TURN = 500


class GroupPositions:
    """Moves queues, with their messages in flight and ordered batches, when a group's position changes."""

    def __init__(
        self,
        events: Events,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        store: MessageStore,
        in_flight: InFlight,
        orders: OrderedPops,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._in_flight = in_flight
        self._orders = orders
        # By queue key: the queue and the offset committed by a client that does not pop, for queues without
        # messages in flight.
        self._idle: dict[str, tuple[PopQueue, int]] = {}
        self._acts = False
        offsets.deal(in_flight.queues, self._committed)
        events.subscribe(OffsetsReset, self._reset)
        events.subscribe(TableSaved, self._saved)
        events.subscribe(LogCut, lambda _: self.into_bounds())
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(TopicChanged, self._topic_changed)
        events.subscribe(GroupChanged, self._group_changed)

    # -- commits and resets ----------------------------------------------------------------------------

    def _committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the queue after a commit by a member that pulls, or by an administrator."""
        queue = self._in_flight.queue(topic, group, queue_id)
        if offset < queue.next:
            self._orders.cut(topic, group, queue_id, offset)
        self._in_flight.move(queue, offset)
        if not queue.in_flight:
            self._idle[queue.key] = queue, offset

    def _saved(self, event: TableSaved) -> None:
        """Drop queues whose committed offset is on disk; earlier, a crash could lose both.

        An acting master drops none: its master still has the queue, and would continue at its own position.
        """
        if event.table != OFFSETS or not self._idle or self._acts:
            return
        for key in event.keys:
            queue, offset = self._idle.pop(key, (None, 0))
            if queue is None or queue.in_flight or queue.next != offset:
                continue
            if self._in_flight.find(queue.topic, queue.group, queue.queue_id) is queue:
                self._in_flight.drop_queue(queue)

    def _reset(self, event: OffsetsReset) -> None:
        """Move a group that was reset: its messages from the new position on are dealt out again."""
        for queue in self._in_flight:
            if (queue.group, queue.topic) == (event.group, event.topic) and self._offsets.has_reset(
                queue.group, queue.topic, queue.queue_id
            ):
                offset = self._offsets.query(queue.group, queue.topic, queue.queue_id)
                if offset is not None:
                    self._orders.free(queue.topic, queue.group, queue.queue_id)
                    self._in_flight.move(queue, offset)

    def _topic_changed(self, event: TopicChanged) -> None:
        if event.config is None:
            self._in_flight.drop(topic=event.topic)
            self._orders.drop(topic=event.topic)

    def _group_changed(self, event: GroupChanged) -> None:
        if event.config is None:
            self._in_flight.drop(group=event.group)
            self._orders.drop(group=event.group)

    # -- the ends of queues ----------------------------------------------------------------------------

    def _role_changed(self, changed: RoleChanged) -> None:
        self._acts = changed.after is Role.ACTING_MASTER
        if changed.after in LEADING and changed.before not in LEADING:
            self.into_bounds()

    async def begin(self) -> None:
        """Set the groups' positions to those that an earlier run or another broker left."""
        self.into_bounds()
        async for queue in in_slices(self._in_flight, QUEUES_PER_TURN):
            if self._in_flight.find(queue.topic, queue.group, queue.queue_id) is not queue:
                continue
            # The group is not checked: a group created just before a crash may be missing, and is created
            # again.
            if queue.topic not in self._topics:
                self._in_flight.drop_queue(queue)
                continue
            committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
            if committed is not None and committed > queue.next:
                end = self._store.max_offset(queue.topic, queue.queue_id)
                queue.next = max(queue.next, min(committed, end))
            self._in_flight.report(queue)

    def into_bounds(self) -> None:
        """Move back groups that are beyond the end of the log: other messages will be stored there.

        It is called before any message can be stored: at the start, at a cut of the log, and when this broker
        begins to lead.
        """
        for queue in self._in_flight:
            high = self._store.max_offset(queue.topic, queue.queue_id)
            if queue.next > high and queue.topic in self._topics:
                log.warning("%s was popped up to %d, its queue ends at %d", queue.key, queue.next, high)
                self._in_flight.move(queue, high)
        for topic, group, queue_id in self._orders.queues():
            self._orders.cut(topic, group, queue_id, self._store.max_offset(topic, queue_id))
