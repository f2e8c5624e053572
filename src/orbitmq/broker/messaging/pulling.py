"""Pulling messages, at once or when they arrive (PullMessageProcessor)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, PullPermitted
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.message import reserved
from orbitmq.message.reserved import TAG
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import HostFacts
from orbitmq.store import GetResult, GetStatus, MessageFilter, MessageStore
from orbitmq.wire.bodies.client import MessageModel
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

MAX_PULL_BYTES = 8 * 1024 * 1024
# A consumer below a slave's first message, or one that an operator has moved, is sent to the master, but at
# most once in this time.
TO_MASTER_MS = 1000


class PullStatus(Enum):
    """How a pull ended (PullStatus)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    GetStatus.FOUND: PullStatus.FOUND,
    GetStatus.MESSAGE_WAS_REMOVING: PullStatus.NO_MATCHED_MSG,
    GetStatus.NO_MATCHED_MESSAGE: PullStatus.NO_MATCHED_MSG,
    GetStatus.OFFSET_FOUND_NULL: PullStatus.NO_NEW_MSG,
    GetStatus.OFFSET_OVERFLOW_ONE: PullStatus.NO_NEW_MSG,
    GetStatus.OFFSET_OVERFLOW_BADLY: PullStatus.OFFSET_ILLEGAL,
    GetStatus.OFFSET_TOO_SMALL: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A group's request for messages of one queue.

    Attributes:
        offset: the queue offset of the first message to return.
        max_bytes: 0: the limit of the settings.
        commit_offset: up to where the group has consumed; below 0: nothing to commit.
        suspend_ms: how long to wait if there is no message; ``None``: answer at once.
        own_expression: whether ``expression`` and ``expression_type`` are the filter; otherwise the group's
            heartbeats give it, in subscription version ``sub_version`` or later.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int = 0
    commit_offset: int = -1
    suspend_ms: int | None = None
    own_expression: bool = False
    expression: str | None = None
    expression_type: str | None = None
    sub_version: int = 0


@dataclass(slots=True)
class Pulled:
    """The answer to a pull.

    Attributes:
        remark: the result of the read in RocketMQ's words, or OFFSET_RESET.
        body: stored records one after the other, empty unless FOUND; ``count`` of them.
        next_offset: where the next pull begins.
        suggested_broker_id: the broker of the group to pull from next.
    """

    status: PullStatus
    remark: str
    body: bytes
    count: int
    next_offset: int
    min_offset: int
    max_offset: int
    topic_sys_flag: int
    group_sys_flag: int
    suggested_broker_id: int


class PullClient(Protocol):
    """The client behind a pull that waits."""

    @property
    def gone(self) -> bool:
        """Whether the client has gone."""
        ...

    def answer(self, pulled: Pulled) -> None:
        """Send the answer: messages arrived, the group was moved, or the time is over. At most one call."""
        ...

    def refuse(self, error: RemotingError) -> None:
        """End the pull with an error: its topic was deleted."""
        ...

    def is_of(self, user: str) -> bool:
        """Whether this user signed the request."""
        ...

    def recheck(self) -> bool:
        """Whether the user still has the right to the pull; without it the pull is refused, and ends."""
        ...


class Pulling:
    """Hands stored messages to consumers."""

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        events: Events,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
        long_polling: LongPolling,
        counters: Counters,
        filters: Filters,
        host: HostFacts,
    ) -> None:
        self._config = config
        self._role = role
        self._memory_bytes = host.memory_bytes
        self._limited_log = LogLimiter(log)
        self._events = events
        self._metadata = metadata
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._long_polling = long_polling
        self._counters = counters
        self._filters = filters

    def read(self, request: PullRequest, client: PullClient | None = None) -> Pulled | None:
        """Read messages, and commit the consumed offset that the request names.

        Args:
            client: gets the answer of a pull that waits; without a client the pull does not wait.

        Returns:
            The answer; ``None`` when the pull waits and ``client`` gets it later.

        Raises:
            RemotingError: the group, the topic or the queue may not be read, too many pulls wait already.
        """
        group = self._permitted(request)
        filter = self._filter(request, group)
        registered = not request.own_expression
        tags = None if registered or request.expression_type not in (None, TAG) else request.expression
        self._events.publish(
            PullPermitted(request.group, request.topic, filter, registered, request.sub_version, tags)
        )
        # A commit from a client that has not received a reset yet must not undo the reset.
        if request.commit_offset >= 0 and not self._has_reset(request):
            self._offsets.commit(request.group, request.topic, request.queue_id, request.commit_offset)
        moved = self._moved(request, group, filter)
        if moved is not None:
            return moved
        self._offsets.note_pull_start(request.group, request.topic, request.queue_id, request.offset)
        status, result = self._read(request, request.offset, filter)
        suspend_ms = self._suspend_ms(request, status, result)
        if suspend_ms is not None and client is not None:
            self._hold(_HeldPull(self, request, group, filter, client), suspend_ms)
            return None
        return self._pulled(request, group, status, result)

    # -- permission and filter -------------------------------------------------------------------------

    def _permitted(self, request: PullRequest) -> SubscriptionGroupConfig:
        config = self._config
        if not (self._role.takes_messages or config.slave_read_enable):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this broker is a "
                f"{self._role.role.value}, slaveReadEnable=true lets consumers read from it",
            )
        self._metadata.check_readable("pulling message")
        group = self._metadata.reading_group(request.group)
        self._metadata.readable_topic(request.topic, request.queue_id, "pulling message")
        return group

    def _filter(self, request: PullRequest, group: SubscriptionGroupConfig) -> MessageFilter:
        """The filter of the pull: its own expression, or that of its group's heartbeats."""
        if request.own_expression:
            return self._filters.of_expression(request.topic, request.expression, request.expression_type)
        state = self._clients.consumers(request.group)
        if state is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if state.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{request.group}] can not consume by broadcast way",
            )
        self._metadata.check_may_read(request.group, request.topic)
        data = state.subscriptions.get(request.topic)
        if data is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if data.sub_version < request.sub_version:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return self._filters.of_group(state, data)

    # -- reading ---------------------------------------------------------------------------------------

    def _read(self, request: PullRequest, offset: int, filter: MessageFilter) -> tuple[PullStatus, GetResult]:
        """Read once from the store."""
        config = self._config
        max_bytes = request.max_bytes
        started = self._counters.clock.monotonic()
        result = self._store.get(
            request.topic,
            request.queue_id,
            offset,
            max(1, min(request.max_count, config.transfer_max_count)),
            max_bytes=min(max_bytes, MAX_PULL_BYTES) if max_bytes > 0 else config.transfer_max_bytes,
            filter=filter,
        )
        self._counters.note_get(result.status is GetStatus.FOUND, started)
        status = _STATUS.get(result.status)
        if status is None:  # there is no message at all in the queue
            status = PullStatus.NO_NEW_MSG if offset == 0 else PullStatus.OFFSET_ILLEGAL
        if status is PullStatus.OFFSET_ILLEGAL and not self._corrects:
            status = self._uncorrected_status(request, offset, result)
        return status, result

    @property
    def _corrects(self) -> bool:
        """Whether this broker has whole queues, so that it may correct consumers' offsets."""
        return self._role.takes_messages or self._config.offset_check_in_slave

    def _uncorrected_status(self, request: PullRequest, offset: int, result: GetResult) -> PullStatus:
        """The status for an offset outside of a slave's part of the queue: the consumer's offset is not
        corrected (row MO-12)."""
        result.next_offset = offset
        if offset < result.min_offset:
            return PullStatus.NO_MATCHED_MSG
        self._limited_log.write(
            logging.INFO,
            "consumer ahead of this slave",
            "group %s is at %d of queue %d of topic %s, which ends at %d here: its pulls wait",
            request.group, offset, request.queue_id, request.topic, result.max_offset,
        )  # fmt: skip
        return PullStatus.NO_NEW_MSG

    def _has_reset(self, request: PullRequest) -> bool:
        return self._offsets.has_reset(request.group, request.topic, request.queue_id)

    @property
    def _answers_with_resets(self) -> bool:
        """Whether this broker answers pulls with pending resets.

        A slave leaves that to its master: a reset that the slave delivers would stay pending at the master,
        and would move the group again.
        """
        return self._role.takes_messages or self._role.leads

    def _only_master_may_reset(self, request: PullRequest) -> bool:
        """Whether the group has a pending reset that only the master may answer with."""
        return not self._answers_with_resets and self._has_reset(request)

    def _suspend_ms(self, request: PullRequest, status: PullStatus, result: GetResult) -> int | None:
        """How long a pull without a message waits; ``None``: it is answered at once."""
        if request.suspend_ms is None:
            return None
        nothing = status is PullStatus.NO_NEW_MSG
        behind = result.status is GetStatus.OFFSET_TOO_SMALL and not self._corrects
        if behind or (nothing and self._only_master_may_reset(request)):
            # An answer at once would make the consumer pull here again and again while there is no master.
            return min(request.suspend_ms, TO_MASTER_MS)
        return request.suspend_ms if nothing else None

    def _moved(
        self, request: PullRequest, group: SubscriptionGroupConfig, filter: MessageFilter
    ) -> Pulled | None:
        """The answer to a group that an administrator has moved since its last pull."""
        if not self._answers_with_resets:
            return None
        reset = self._offsets.reset_for_pull(request.group, request.topic, request.queue_id, request.offset)
        if reset is None:
            return None
        _, result = self._read(request, reset, filter)
        result.next_offset = reset
        moved = self._pulled(request, group, PullStatus.OFFSET_ILLEGAL, result, "OFFSET_RESET")
        # The pull that confirms the reset has to come to this broker.
        moved.suggested_broker_id = reserved.MASTER_ID
        return moved

    def _pulled(
        self,
        request: PullRequest,
        group: SubscriptionGroupConfig,
        status: PullStatus,
        result: GetResult,
        remark: str | None = None,
    ) -> Pulled:
        topic = self._topics.get(request.topic)
        found = status is PullStatus.FOUND
        count = result.count if found else 0
        self._counters.handled_out += count
        if found:
            self._counters.note_out(request.group, request.topic, len(result.body))
        self._offsets.note_pull(request.group, request.topic, request.queue_id, result.next_offset)
        return Pulled(
            status=status,
            remark=remark or result.status.name,
            body=result.body if found else b"",
            count=count,
            next_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=topic.topic_sys_flag if topic is not None else 0,
            group_sys_flag=group.group_sys_flag,
            suggested_broker_id=self._suggested(request, group, result),
        )

    def _suggested(self, request: PullRequest, group: SubscriptionGroupConfig, result: GetResult) -> int:
        """The broker to pull from next: a slave, for messages that are no longer in memory (row MO-11)."""
        config = self._config
        if not config.slave_read_enable or self._only_master_may_reset(request):
            return reserved.MASTER_ID
        if result.count:
            entry = self._store.entry(request.topic, request.queue_id, result.next_offset - 1)
            far = self._memory_bytes * config.access_message_in_memory_max_ratio // 100
            if entry is not None and self._store.max_commit_log_offset - entry[0] > far:
                return group.which_broker_when_consume_slowly
        return group.broker_id

    # -- waiting ---------------------------------------------------------------------------------------

    def _hold(self, held: _HeldPull, suspend_ms: int) -> None:
        config = self._config
        timeout_ms = suspend_ms if config.long_polling_enable else config.short_polling_time_ms
        polling = self._long_polling
        if not polling.park(held.request.topic, held.request.queue_id, held, timeout_ms):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: {len(polling)} pulls wait for messages, "
                f"limit pullThreadPoolQueueCapacity {polling.limit}",
            )

    def wake(self, held: _HeldPull) -> bool:
        """Read again for a held pull; filtered messages are skipped without an answer to the client."""
        request = held.request
        if request.topic not in self._topics:
            held.client.refuse(
                RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] was deleted")
            )
            return True
        if self._only_master_may_reset(request):
            self.expire(held)  # so that the consumer is sent to the master now
            return True
        moved = self._moved(request, held.group, held.filter)
        if moved is not None:
            held.client.answer(moved)
            return True
        status, result = self._read(request, held.offset, held.filter)
        if status is PullStatus.NO_NEW_MSG or (
            result.status is GetStatus.OFFSET_TOO_SMALL and not self._corrects
        ):
            return False
        if result.status is GetStatus.NO_MATCHED_MESSAGE:
            held.offset = result.next_offset
            return False
        held.client.answer(self._pulled(request, held.group, status, result))
        return True

    def expire(self, held: _HeldPull) -> None:
        """Answer with the offset that the filter reached, so that the client does not start over."""
        if held.request.topic not in self._topics:
            self.wake(held)
            return
        status, result = self._read(held.request, held.offset, held.filter)
        if status is PullStatus.NO_NEW_MSG and held.offset > held.request.offset:
            status = PullStatus.NO_MATCHED_MSG
            result.next_offset = held.offset
        held.client.answer(self._pulled(held.request, held.group, status, result))


class _HeldPull:
    """A pull that waits (see ``held_pulls.PullWaiter``). ``offset`` is the first that it has not read."""

    __slots__ = ("_pulling", "client", "filter", "group", "offset", "request")

    def __init__(
        self,
        pulling: Pulling,
        request: PullRequest,
        group: SubscriptionGroupConfig,
        filter: MessageFilter,
        client: PullClient,
    ) -> None:
        self._pulling = pulling
        self.request = request
        self.group = group
        self.filter = filter
        self.client = client
        self.offset = request.offset

    @property
    def gone(self) -> bool:
        return self.client.gone

    def is_of(self, user: str) -> bool:
        return self.client.is_of(user)

    def wake(self) -> bool:
        return self._pulling.wake(self)

    def expire(self) -> None:
        self._pulling.expire(self)

    def recheck(self) -> None:
        if self.client.recheck():
            self.expire()
