"""Puts the compiled fast path in front of the ordinary handlers and keeps its tables up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.auth.gate import Sender
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import Durability, with_code
from orbitmq.broker.events import (
    Events,
    GroupChanged,
    MembersChanged,
    OffsetsReset,
    PullPermitted,
    QuotasChanged,
    RightsChanged,
    SettingsChanged,
    TableSaved,
    TopicChanged,
)
from orbitmq.broker.fast_path import layout
from orbitmq.broker.fast_path.callers import SignedCallers
from orbitmq.broker.fast_path.frames import FastFrames
from orbitmq.broker.fast_path.held_frame import HeldFrame, Resume
from orbitmq.broker.fast_path.keys import NOBODY, SignedCaller
from orbitmq.broker.fast_path.permits import Permits
from orbitmq.broker.fast_path.timed import FastTimes
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleChanged, RoleState
from orbitmq.broker.rpc_times import RpcTimes
from orbitmq.broker.statistics import Counters
from orbitmq.message import reserved
from orbitmq.message.ids import month_borders_ms, pack_ip
from orbitmq.runtime.seam import HostFacts
from orbitmq.settings.access import STATEFUL
from orbitmq.store import StoreClosedError
from orbitmq.store.log.append import pack_host
from orbitmq.store.ports import HotStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.topic import TopicFilterType
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

# The field that names the topic, for each request that the fast path takes.
_SEND_TOPICS: Final[dict[int, str]] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class FastPath:
    """Feeds received chunks to the fast path and answers its requests for room, maps and waits.

    A topic has queues in the fast path's table while nothing makes sends to it special. A (group, topic) may
    pull there once the ordinary handler has let one of its pulls pass, until a change could alter that
    decision. A change costs the same with any number of topics.

    If keys are required, a user may do on the fast path what the gate has allowed, until the user or its
    rules change.

    Args:
        resume: hands a pull that waited to the ordinary handler.
    """

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        events: Events,
        store: HotStore,
        durability: Durability,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        metadata: MetadataAccess,
        long_polling: LongPolling,
        counters: Counters,
        host: HostFacts,
        times: RpcTimes | None,
        resume: Resume,
    ) -> None:
        # None: the broker shows no metrics.
        self._times = None if times is None else FastTimes(times)
        self._config = config
        self._host = host
        self._resume = resume
        self._requires_keys = config.requires_keys
        self._checks_each = config.authentication_strategy != STATEFUL
        self._callers = SignedCallers()
        self._role = role
        self._store = store
        self._durability = durability
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._metadata = metadata
        self._long_polling = long_polling
        self._counters = counters
        self._clock = counters.clock
        self._fixed = self._fixed_settings()
        self._frames = self._make_frames()
        # Messages that passed before the fixed settings last changed, and how often these changed.
        self._earlier_in = 0
        self._earlier_out = 0
        self._earlier_found = 0
        self._generation = 0
        self._permits = Permits(self._frames.pulls.permitted, self._callers.forget_all)
        # Topics whose rows are to be updated before the next chunk.
        self._stale: dict[str, None] = {}
        # Topics that only the ordinary handlers serve.
        self._limited: frozenset[str] = frozenset()
        self._takes_sends = self._may_take_sends()
        self._new_month_ms = 0
        self.pulls_missed = 0
        counters.attach(self)
        offsets.set_pull_source(self._pass_on_pulls)
        subscribe = events.subscribe
        subscribe(RoleChanged, lambda _event: self._settings_changed())
        subscribe(SettingsChanged, lambda _event: self._settings_changed())
        subscribe(TableSaved, self._table_saved)
        subscribe(TopicChanged, lambda event: self._topic_changed(event.topic))
        subscribe(GroupChanged, lambda event: self._permits.forget_group(event.group))
        subscribe(MembersChanged, lambda event: self._permits.forget_group(event.group))
        subscribe(OffsetsReset, lambda event: self._permits.forget_group(event.group))
        subscribe(PullPermitted, self._permit)
        subscribe(QuotasChanged, self._quotas_changed)
        subscribe(RightsChanged, lambda event: self._callers.forget(event.user))

    def begin(self) -> None:
        """Add all topics before the first chunk; called once, when the tables have been read."""
        self._settings_changed()
        self._stale.update((topic.topic_name, None) for topic in self._topics)

    # -- tables ----------------------------------------------------------------------------------------

    def _may_take_sends(self) -> bool:
        return self._role.takes_messages and self._config.writable

    def _far_bytes(self) -> int:
        """How many bytes behind the end a consumer must be for the ordinary handler to send it to a slave."""
        config = self._config
        if not config.slave_read_enable:
            return 1 << 62
        return self._host.memory_bytes * config.access_message_in_memory_max_ratio // 100

    def _fixed_settings(self) -> tuple[object, ...]:
        """The settings that frames cannot change once they are made."""
        config = self._config
        return (
            config.region_id,
            config.trace_on,
            config.body_limit,
            config.transfer_max_count,
            config.transfer_max_bytes,
        )

    def _make_frames(self) -> FastFrames:
        config, store = self._config, self._store
        return FastFrames(
            store.appender,
            store.lookup,
            layout.texts(
                region=config.region_id,
                trace_on=config.trace_on,
                cluster=config.broker_cluster_name,
                store_host=store.appender.host,
            ),
            max_body_bytes=config.body_limit,
            max_pull_count=config.transfer_max_count,
            max_pull_bytes=config.transfer_max_bytes,
            requires_keys=self._requires_keys,
        )

    def _settings_changed(self) -> None:
        stale = self._takes_sends != self._may_take_sends()
        self._takes_sends = self._may_take_sends()
        if self._fixed != self._fixed_settings():
            self._replace_frames()
            stale = True
        if stale:
            self._stale.update((topic.topic_name, None) for topic in self._topics)
        self._permits.forget_all()
        self._frames.pulls.parks = self._config.long_polling_enable
        self._frames.pulls.far_bytes = self._far_bytes()
        self._frames.lite_pull = self._config.lite_pull_message_enable

    def _replace_frames(self) -> None:
        """Make new frames. No response is lost: responses are taken within the call that made them."""
        self._pass_on_pulls()
        self._earlier_in, self._earlier_out = self.messages_in, self.messages_out
        self._earlier_found = self.pulls_found
        self._fixed = self._fixed_settings()
        self._frames = self._make_frames()
        self._permits = Permits(self._frames.pulls.permitted, self._callers.forget_all)
        self._callers.forget_all()
        self._generation += 1
        self._new_month_ms = 0

    def _topic_changed(self, topic: str) -> None:
        self._stale[topic] = None
        self._permits.forget_topic(topic)

    def _quotas_changed(self, event: QuotasChanged) -> None:
        for topic in self._limited ^ event.topics:
            self._topic_changed(topic)
        self._limited = event.topics
        # From its next request on, a connection's traffic counts for its user, if the user has a quota now.
        self._callers.forget_all()

    def _table_saved(self, event: TableSaved) -> None:
        if event.table == TOPICS:
            self._stale.update(dict.fromkeys(event.keys))

    def _permit(self, event: PullPermitted) -> None:
        """Let the fast path answer further pulls like this one: the ordinary handler has let it pass.

        Of pulls with an expression of their own only those by tags are answered, each expression after it has
        passed here once.
        """
        group, topic = event.group, event.topic
        if self._offsets.has_any_reset(group, topic):
            return  # the ordinary handler must still answer pulls of the group's other queues
        self._refresh()
        self._pass_on_pulls()  # the row may be reused by another pull
        number = self._frames.topics.row_of(topic.encode())
        group_config = self._groups.find(group)
        topic_config = self._topics.get(topic)
        if number < 0 or group_config is None or topic_config is None:
            return
        if self._config.slave_read_enable and group_config.broker_id != reserved.MASTER_ID:
            return  # each answer has to suggest another broker
        self._permits.put(
            layout.PermittedPull(
                group.encode(),
                topic.encode(),
                number,
                event.filter,
                event.registered,
                event.version,
                topic_config.topic_sys_flag,
                group_config.group_sys_flag,
            )
        )
        if event.tags is not None and not event.filter.passes_all:
            self._frames.pulls.add_expression(event.tags.encode(), event.filter.codes, event.filter.count)

    def permit(self, connection: ServerConnection, sender: Sender, command: Command) -> None:
        """Let the fast path take further requests like this one from its user: the gate has let it pass."""
        if sender.passed_by:
            return
        user = sender.user
        caller: SignedCaller | None = connection.caller
        if caller is None or not caller.is_open or caller.name != user.name:
            caller = connection.caller = self._callers.of(user, connection.remote[0])
        field = _SEND_TOPICS.get(command.code)
        frames, ext = self._frames, command.ext
        if field is not None:
            row = frames.topics.row_of(_name(ext.get(field, "")))
            if row >= 0:
                self._callers.grew(caller.allow_send(row))
        elif command.code in _PULLS:
            group, topic = ext.get("consumerGroup", ""), ext.get("topic", "")
            row = frames.pulls.permitted.row_of(_name(group) + b"\0" + _name(topic))
            if row >= 0:
                self._callers.grew(caller.allow_pull(row))

    def _refresh(self) -> None:
        """Bring the rows of changed topics up to date."""
        stale = self._stale
        while stale:
            topic, _ = stale.popitem()
            self._set_topic(topic)

    def _set_topic(self, topic: str) -> None:
        """Bring a topic's row up to date; topics for handlers alone have a row without queues, or none."""
        topics = self._frames.topics
        config = self._topics.get(topic)
        known = self._store.find_topic(topic)
        name = topic.encode()
        # A message must not outlive its topic's config in a crash: sends wait in their handlers until the
        # config is on disk.
        if (
            config is None
            or known is None
            or config.topic_filter_type is TopicFilterType.MULTI_TAG
            or topic in self._limited
            or not self._metadata.saved(topic)
        ):
            row = topics.row_of(name)
            if row >= 0:
                topics.set(row, layout.T_READ_QUEUES, 0)
                topics.set(row, layout.T_WRITE_QUEUES, 0)
            return
        sendable = self._takes_sends and not (
            topic in reserved.FORBIDDEN_SEND_TOPICS
            or topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
            or config.attributes
        )
        slots = known.slots
        readable = min(config.read_queue_nums, len(slots))
        writable = min(config.write_queue_nums, len(slots)) if sendable else 0
        topics.put(name, [readable, writable, self._keep_slots(name, slots)])

    def _keep_slots(self, name: bytes, slots: Sequence[int]) -> int:
        """The place of the topic's slots in the table's numbers; unchanged slots keep their place."""
        topics = self._frames.topics
        row = topics.row_of(name)
        if row >= 0:
            at = topics.number_at(row, layout.T_SLOTS_AT)
            if topics.numbers_at(at, len(slots)) == list(slots):
                return at
        return topics.keep_numbers(slots)

    def _set_unique_ids(self, now_ms: int) -> None:
        """Set the prefix of message ids: address, process and a constant. They count time from this month."""
        start_ms, self._new_month_ms = month_borders_ms(self._clock, now_ms)
        address = pack_ip(self._store.config.store_host[0])[-4:]
        # New frames begin their counter of ids at 0 again: another constant keeps the ids unique.
        constant = (0x0FB17A0E + self._generation) & 0xFFFFFFFF
        prefix = address + (self._host.pid & 0xFFFF).to_bytes(2, "big") + constant.to_bytes(4, "big")
        self._frames.set_unique_ids(prefix, start_ms)

    # -- for every chunk -------------------------------------------------------------------------------

    def on_chunk(self, connection: ServerConnection, buffer: memoryview, start: int, end: int) -> int:
        """The server's chunk hook: returns the position up to which whole frames were handled."""
        store, durability = self._store, self._durability
        if store.write_gate.refusal is not None or durability.refusal is not None:
            return start  # the ordinary handlers answer with the reason
        if self._stale:
            self._refresh()
        now = store.update_clock()
        if now >= self._new_month_ms:
            self._set_unique_ids(now)
        born = connection.born
        if not born:
            born = connection.born = pack_host(connection.remote)
        frames = self._frames
        if self._requires_keys:
            self._set_caller(connection, connection.caller)
            frames.keys.signed = frames.keys.certified or (self._checks_each and not connection.secured)
        frames.sends.holds = durability.holds
        found = frames.pulls.found
        times = self._times
        if times is not None:
            times.begin(frames)
        try:
            while True:
                start = frames.feed(buffer, start, end, born)
                left = frames.left
                if left:
                    self._take(connection, left)
                    if times is not None and left & layout.LEFT_NOW:
                        times.sent(frames)
                if frames.pulls.found != found:
                    self._counters.note_get_time(self._clock.now_ms() - now)
                reason = frames.reason
                if reason == layout.DONE:
                    return start
                if reason == layout.NEED_ROOM:
                    store.make_room(frames.sends.need_code, frames.sends.need_slot)
                elif reason == layout.NEED_INDEX:
                    if not store.map_entries(frames.pulls.need_slot, store.lookup.need):
                        return start
                elif reason == layout.PARK:
                    self.pulls_missed += 1
                    if not self._park(connection, bytes(buffer[start : frames.frame_end])):
                        return start
                    start = frames.frame_end
                elif reason not in (layout.DRAIN, layout.IN_PLACE):
                    return start
        except StoreClosedError:
            # The ordinary handler gets the same error and answers the client with it.
            return start

    def _set_caller(self, connection: ServerConnection, caller: SignedCaller | None) -> None:
        """Set the caller of the next requests; with a certificate of another user all go to the gate."""
        keys, name = self._frames.keys, connection.certificate.user
        keys.certified = bool(name)
        keys.caller = NOBODY if caller is None or (name and name != caller.name) else caller

    def _park(self, connection: ServerConnection, frame: bytes) -> bool:
        """Let a pull wait; ``False`` when too many pulls wait: then the ordinary handler answers it."""
        pulls = self._frames.pulls
        topic = self._permits.keys[pulls.park_row][1]
        waiter = HeldFrame(connection, frame, pulls.park_offset, connection.caller, self._wake, self._resume)
        return self._long_polling.park(topic, pulls.park_queue, waiter, pulls.park_ms)

    def _wake(self, waiter: HeldFrame) -> bool | None:
        """Try to answer a waiting pull; ``None`` when the pull is for the ordinary handler."""
        if self._stale:
            self._refresh()
        frames = self._frames
        connection = waiter.connection
        born = connection.born
        if self._requires_keys:
            # The signature was checked when the pull arrived.
            self._set_caller(connection, waiter.caller)
            frames.keys.signed = False
        while True:
            frames.pulls.commits = False  # the pull's offset was committed when the pull arrived
            frames.feed(waiter.frame, 0, len(waiter.frame), born)
            frames.pulls.commits = True
            reason = frames.reason
            if reason == layout.NEED_INDEX and self._store.map_entries(
                frames.pulls.need_slot, self._store.lookup.need
            ):
                continue
            if reason == layout.PARK:
                self._take(connection, frames.left)
                # A reset wakes pulls before its group loses permission here: the ordinary handler answers.
                moved = self._offsets.has_any_reset(*self._permits.keys[frames.pulls.park_row])
                return None if moved else False
            if reason not in (layout.DONE, layout.IN_PLACE):
                return None
            self._take(connection, frames.left)
            return True

    def _take(self, connection: ServerConnection, left: int) -> None:
        """Hand over the responses: those that may go now, and those that wait for the log."""
        frames, store = self._frames, self._store
        if frames.reason == layout.IN_PLACE:
            connection.write_parts([frames.now.take(), *store.lookup.spans()])
        elif left & layout.LEFT_NOW:
            connection.write(frames.now.take())
        if left & layout.LEFT_LATER:
            end, data, times = store.appender.end, frames.later.take(), self._times
            if times is None:
                self._durability.when_safe(end, connection.write, data, with_code, connection.abort)
            else:  # only sends wait, and they always come in a timed chunk
                answers = times.answers(frames, connection.write, data)
                self._durability.when_safe(end, times.release, answers, times.late, connection.abort)
        # One-way sends produce no answer, only records to write.
        if left & layout.LEFT_RECORDS:
            store.schedule()
        if left & layout.LEFT_COMMITS:
            self._pass_on_pulls()

    def _pass_on_pulls(self) -> None:
        """Pass on the notes of pulls: the offsets that they commit, where they began and ended."""
        offsets = self._offsets
        keys = self._permits.keys
        for row, queue_id, commit, before, after, size in self._frames.pulls.notes.take():
            group, topic = keys[row]
            if commit >= 0:
                offsets.commit(group, topic, queue_id, commit)
            offsets.note_late_pull(group, topic, queue_id, after, before)
            self._counters.note_out(group, topic, size)

    # -- statistics ------------------------------------------------------------------------------------

    @property
    def messages_in(self) -> int:
        """Messages that took the fast path into the store."""
        return self._earlier_in + int(self._frames.sends.messages)

    @property
    def messages_out(self) -> int:
        """Messages that took the fast path to consumers."""
        return self._earlier_out + int(self._frames.pulls.messages)

    @property
    def pulls_found(self) -> int:
        """Pulls that found messages on the fast path."""
        return self._earlier_found + int(self._frames.pulls.found)


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
