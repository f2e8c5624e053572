"""Typed requests of consumers to brokers: offsets, members, pulls, send-back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from orbitmq.client.core.damaged import messages_of
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import BrokerError, TopicNotFoundError, ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import TAG
from orbitmq.message.sysflag import PullFlag
from orbitmq.message.utf8 import for_people
from orbitmq.transport.errors import ConnectError
from orbitmq.wire.bodies.client import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    UnlockBatchRequestBody,
)
from orbitmq.wire.bodies.pop import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError
from orbitmq.wire.headers.client import (
    GetConsumerListByGroupRequest,
    LockBatchMqRequest,
    UnlockBatchMqRequest,
)
from orbitmq.wire.headers.offset import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetByTimestampRequest,
    SearchOffsetByTimestampResponse,
    TopicOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from orbitmq.wire.headers.pop import QueryAssignmentRequest
from orbitmq.wire.headers.pull import LitePullMessageRequest, PullMessageRequest, PullMessageResponse
from orbitmq.wire.headers.send import ConsumerSendMsgBackRequest, RecallMessageRequest, RecallMessageResponse
from orbitmq.wire.recall_handle import RecallHandle
from orbitmq.wire.refusals import error_of, refuses_user
from orbitmq.wire.versions import V4_9_3

SEND_BACK_TIMEOUT_MS = 5000
MAX_REASON = 300  # characters of the reason of a failure
# The limit sent to older brokers when the user chose none; without a limit they fail (SB-17).
LIMIT_FOR_OLD_BROKERS = 16
LOCK_TIMEOUT_MS = 1000
# How much longer than the broker's suspension a pull may take: the suspension begins when the request
# arrives.
PULL_MARGIN_MS = 15_000


class PullStatus(Enum):
    """The result of a pull, with the names of the wire protocol in the comments."""

    FOUND = auto()
    NO_NEW = auto()  # PULL_NOT_FOUND
    NO_MATCH = auto()  # PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = auto()  # PULL_OFFSET_MOVED


_PULL_STATUSES = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCH,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_MOVED,
}


_NO_LITE = frozenset({int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), int(ResponseCode.NO_PERMISSION)})


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull. All offsets are those of the queue at the broker."""

    status: PullStatus
    messages: Sequence[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The options that all pulls of a consumer have in common.

    Attributes:
        group: the consumer group.
        max_messages: at most this many messages per pull; brokers return at most 32 by default.
        suspend_ms: how long the broker may hold the request when there is no message.
        commits: whether pulls also commit the group's offset; False in broadcasting.
        lite: pull as a lite pull consumer (LITE_PULL_MESSAGE), from brokers that allow such pulls.
        with_filter: each pull carries its filter, which overrides the group's subscription at the broker.
    """

    group: str
    max_messages: int = 32
    suspend_ms: int = 15_000
    commits: bool = True
    lite: bool = False
    with_filter: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a subscription (SubscriptionData).

    Attributes:
        expression: ``*``, ``a || b``, or SQL92.
        kind: TAG or SQL92.
        tags: the wanted tags; empty for all. Brokers filter by hash, so the client compares the text.
        version: time of the last change, in milliseconds since the epoch.
    """

    expression: str = "*"
    kind: str = TAG
    tags: frozenset[str] = frozenset()
    version: int = 0

    def has_text_of(self, message: ReceivedMessage) -> bool:
        """Whether the text of the message's tag is one of the wanted tags; brokers compare the hash only."""
        return not self.tags or message.tags in self.tags


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """An offset of a queue, from a broker or a file.

    Attributes:
        made_at: the creation stamp of the queue's topic, which differs from that of a deleted topic of the
            same name. Empty if the broker sends none, as Apache's brokers do; None if no broker was asked.
    """

    offset: int
    made_at: str | None = None


class BrokerCalls:
    """Requests to the brokers of one client instance."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        # Addresses of brokers that accept plain pulls only.
        self._without_lite: set[str] = set()

    async def address_of(self, queue: MessageQueue, broker_id: int = 0) -> tuple[str, bool]:
        """The address to read ``queue`` from, and whether that is a slave.

        Raises:
            TopicNotFoundError: the route does not name the broker.
            NameServerError: the route is unknown and no name server answers.
        """
        route = await self._client.find_route(queue.topic, for_send=False)
        found = route.reader(queue.broker_name, broker_id)
        if found is None:
            self._client.suspect(queue.topic)
            raise TopicNotFoundError(
                queue.topic, f"the route of {queue.topic!r} has no broker {queue.broker_name!r}"
            )
        return found

    def has_acting_master(self, broker_name: str) -> bool:
        """See ``ClientInstance.has_acting_master``."""
        return self._client.has_acting_master(broker_name)

    async def members(self, address: str, group: str) -> list[str]:
        """Client ids of the group's members that are connected to this broker, sorted."""
        answer = await self._client.invoke(
            address, GetConsumerListByGroupRequest(consumer_group=group).command()
        )
        # RocketMQ's brokers list a member twice while it has an old connection still open.
        return sorted(set(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list))

    async def assignment(
        self, address: str, group: str, topic: str, strategy: str
    ) -> list[tuple[MessageQueue, MessageRequestMode]] | None:
        """The queues that the broker assigns to this member, to pull or to pop; None if it cannot assign at
        present.

        Raises:
            BrokerError, TransportError, BodyError: no answer, or a broker that does not assign.
        """
        body = QueryAssignmentRequestBody(
            topic, group, self._client.client_id, strategy, MessageModel.CLUSTERING
        ).encode()
        answer = await self._client.invoke(address, QueryAssignmentRequest().command(body))
        found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
        if found is None:
            return None
        return [(one.message_queue, one.mode) for one in found if one.message_queue is not None]

    async def committed(self, group: str, queue: MessageQueue, leader: str | None = None) -> QueueOffset:
        """The group's committed offset, -1 when it has none.

        Args:
            leader: the broker's address; by default the one in the topic's route.
        """
        header = QueryConsumerOffsetRequest(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            answer = await self._any_replica(queue, header.command, leader)
        except BrokerError as error:
            if error.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
                return QueueOffset(-1)
            raise
        return _told(QueryConsumerOffsetResponse.from_ext(answer.ext))

    async def commit(self, group: str, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        """Commit an offset; without ``wait`` one-way, as the periodic commits are."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        if wait:
            await self._any_replica(queue, header.command)
        else:
            address, _ = await self.address_of(queue)
            await self._client.remoting.oneway(address, header.command(), 3000)

    async def _any_replica(
        self, queue: MessageQueue, command: Callable[[], Command], leader: str | None = None
    ) -> Command:
        """Ask the master, or a slave when nothing listens at the master's address (row MO-03).

        A slow master is not replaced by its slave, which may lack the last commits.
        """
        address = leader or (await self.address_of(queue))[0]
        try:
            return await self._client.invoke(address, command())
        except ConnectError:
            self._client.suspect(queue.topic)
            route = self._client.route(queue.topic)
            members = route.addresses.get(queue.broker_name, {}) if route is not None else {}
            for _, other in sorted(members.items()):
                if other != address:
                    return await self._client.invoke(other, command())
            raise

    async def max_offset(self, queue: MessageQueue, leader: str | None = None) -> QueueOffset:
        """The offset that the next message of the queue will get; ``leader`` as for :meth:`committed`."""
        address = leader or (await self.address_of(queue))[0]
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._client.invoke(address, header.command())
        return _told(GetMaxOffsetResponse.from_ext(answer.ext))

    async def min_offset(self, queue: MessageQueue) -> QueueOffset:
        """The offset of the oldest message still stored."""
        address, _ = await self.address_of(queue)
        header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._client.invoke(address, header.command())
        return _told(GetMinOffsetResponse.from_ext(answer.ext))

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> QueueOffset:
        """The offset of the first message stored at or after ``timestamp_ms``; the max offset if all are
        older.
        """
        address, _ = await self.address_of(queue)
        header = SearchOffsetByTimestampRequest(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = await self._client.invoke(address, header.command())
        return _told(SearchOffsetByTimestampResponse.from_ext(answer.ext))

    async def pull(
        self,
        options: PullOptions,
        queue: MessageQueue,
        offset: int,
        wanted: Filter,
        *,
        broker_id: int = 0,
        commit_offset: int = -1,
    ) -> Pulled:
        """Pull once, waiting at the broker for up to ``options.suspend_ms`` if there is no message.

        Args:
            broker_id: the replica of the broker that the last answer suggested.
            commit_offset: commit this offset with the pull; -1 for no commit.

        Raises:
            BrokerError: the broker refused; TransportError: no answer; RecordError: a damaged answer.
        """
        address, is_slave = await self.address_of(queue, broker_id)
        flags = PullFlag.SUSPEND if options.suspend_ms > 0 else PullFlag(0)
        if commit_offset >= 0 and options.commits and not is_slave:
            flags |= PullFlag.COMMIT_OFFSET
        if options.with_filter:
            flags |= PullFlag.SUBSCRIPTION
        header = PullMessageRequest(
            consumer_group=options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=options.max_messages,
            sys_flag=int(flags),
            commit_offset=max(commit_offset, 0),
            suspend_timeout_millis=options.suspend_ms,
            sub_version=wanted.version,
            subscription=wanted.expression if options.with_filter else None,
            expression_type=wanted.kind,
        )
        timeout_ms = options.suspend_ms + PULL_MARGIN_MS
        if options.lite and address not in self._without_lite:
            command = _lite(header)
            answer = await self._client.remoting.request(address, command, timeout_ms)
            if answer.code in _NO_LITE and not refuses_user(answer.code, answer.remark):
                # The broker is too old for lite pulls, or does not allow them: a plain pull gets the same
                # answer.
                self._without_lite.add(address)
                command = header.command()
                answer = await self._client.remoting.request(address, command, timeout_ms)
        else:
            command = header.command()
            answer = await self._client.remoting.request(address, command, timeout_ms)
        status = _PULL_STATUSES.get(answer.code)
        if status is None:
            raise error_of(command, answer, address)
        fields = PullMessageResponse.from_ext(answer.ext)
        messages: Sequence[ReceivedMessage] = ()
        if status is PullStatus.FOUND:
            messages = messages_of(queue, answer.body)
            if wanted.tags:
                messages = [message for message in messages if wanted.has_text_of(message)]
        return Pulled(
            status,
            messages,
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
        )

    async def lock(self, group: str, leader: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues of one broker for this client, or prolong its locks; returns the locked ones (LK-01).

        Args:
            leader: the broker's address, see :meth:`leader_of`.

        Raises:
            BrokerError, TransportError, BodyError: it is unknown whether the broker locked the queues.
        """
        body = LockBatchRequestBody(group, self._client.client_id, mq_set=set(queues))
        command = LockBatchMqRequest().command(body.encode())
        answer = await self._client.invoke(leader, command, LOCK_TIMEOUT_MS)
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

    async def unlock(self, group: str, leader: str, queues: Iterable[MessageQueue]) -> None:
        """Release locks at one broker; arguments and errors as :meth:`lock`."""
        body = UnlockBatchRequestBody(group, self._client.client_id, mq_set=set(queues))
        command = UnlockBatchMqRequest().command(body.encode())
        await self._client.invoke(leader, command, LOCK_TIMEOUT_MS)

    def leader_of(self, broker_name: str, topic: str = "") -> str:
        """The address of a broker's master, or of its acting master, from any known route.

        Raises:
            TopicNotFoundError: no known route names a master of this broker.
        """
        address = self._client.master_of(broker_name, topic)
        if address is None:
            raise TopicNotFoundError("", f"no master of broker {broker_name!r} is known")
        return address

    async def recall(self, group: str, topic: str, handle: str, timeout_ms: int) -> str:
        """Recall a timer message before its delivery time (RECALL_MESSAGE); returns its unique id.

        Raises:
            ValidationError: ``handle`` is no recall handle; BrokerError, TransportError, TopicNotFoundError:
                the message was not recalled, or that is unknown.
        """
        try:
            broker_name = RecallHandle.decode(handle).broker_name
        except HeaderError as error:
            raise ValidationError(str(error)) from error
        header = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group=group)
        answer = await self._client.invoke(self.leader_of(broker_name, topic), header.command(), timeout_ms)
        return RecallMessageResponse.from_ext(answer.ext).msg_id

    def group_limit(self, chosen: int | None, address: str | None = None) -> int | None:
        """The limit of deliveries for a request; None: the group's setting at the broker applies (SB-17).

        Args:
            chosen: the user's limit.
            address: the broker's address; None for a request that may go to any broker.
        """
        if chosen is not None or self._client.broker_version(address) >= V4_9_3:
            return chosen
        return LIMIT_FOR_OLD_BROKERS

    async def send_back(
        self,
        group: str,
        message: ReceivedMessage,
        topic: str,
        delay_level: int,
        max_reconsume_times: int | None,
        delay_s: float | None = None,
        reason: str = "",
    ) -> None:
        """Have the broker deliver ``message`` again later (CONSUMER_SEND_MSG_BACK, CR-07).

        Args:
            delay_s: the delay in seconds, for OrbitMQ's brokers; Apache's brokers use ``delay_level``.
            reason: the reason of the failure; OrbitMQ's brokers keep it in the dead letter.

        Raises:
            BrokerError, TransportError, TopicNotFoundError: the broker did not take the message back.
        """
        address = self.leader_of(message.broker_name)
        header = ConsumerSendMsgBackRequest(
            offset=message.commit_log_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=topic,
            unit_mode=False,
            max_reconsume_times=self.group_limit(max_reconsume_times, address),
            delay_ms=None if delay_s is None else max(1, round(delay_s * 1000)),
            reason=for_people(reason[:MAX_REASON]) or None,
            client_id=self._client.client_id,
        )
        await self._client.invoke(address, header.command(), SEND_BACK_TIMEOUT_MS)


def _told(answer: TopicOffsetResponse) -> QueueOffset:
    return QueueOffset(answer.offset, answer.made_at or "")


def _lite(header: PullMessageRequest) -> Command:
    """The same pull as a lite pull request."""
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    fields["sys_flag"] |= PullFlag.LITE_PULL
    return LitePullMessageRequest(**fields).command()
