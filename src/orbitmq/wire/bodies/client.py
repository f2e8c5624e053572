"""Clients: heartbeats, queue locks, connections, and what a broker asks a client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import TAG
from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies.base import Body, named, named_set

__all__ = [
    "CMResult",
    "CheckClientRequestBody",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerRunningInfo",
    "GetConsumerListByGroupResponseBody",
    "HeartbeatData",
    "ListedConnection",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageModel",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "SubscriptionConflict",
    "SubscriptionData",
    "UnlockBatchRequestBody",
]


class ConsumeType(StrEnum):
    """How a consumer gets its messages: pull, push or pop."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether a group shares its messages or every member gets all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(StrEnum):
    """Where a group without progress begins. The last three are deprecated and mean the first."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


@dataclass(slots=True)
class SubscriptionData(Body):
    """What a consumer wants of a topic.

    Attributes:
        sub_string: ``*``, or tags joined by ``||``, or the SQL92 expression.
        tags_set: the tags; empty for ``*`` and SQL92.
        code_set: their Java hashes.
        sub_version: milliseconds since the epoch when the subscription was made.
        expression_type: ``TAG`` or ``SQL92``.
    """

    topic: str = ""
    sub_string: str = "*"
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


@dataclass(slots=True)
class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(slots=True)
class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


@dataclass(slots=True)
class HeartbeatData(Body):
    """Body of HEART_BEAT: the groups of a client.

    Attributes:
        heartbeat_fingerprint: 0, or the number that stands for the content (heartbeat V2).
        without_sub: the subscriptions are left out because the broker knows the fingerprint.
    """

    client_id: str = named("clientID", "")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    def fingerprint(self) -> int:
        """A number that changes when the groups or subscriptions do, whatever client and time they are of."""
        consumers = [
            replace(
                group, subscription_data_set=[replace(s, sub_version=0) for s in group.subscription_data_set]
            )
            for group in self.consumer_data_set
        ]
        plain = HeartbeatData("", self.producer_data_set, consumers)
        return java_hash(plain.encode().decode())


@dataclass(slots=True)
class LockBatchRequestBody(Body):
    """Body of LOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True)
class LockBatchResponseBody(Body):
    """The queues that are locked now."""

    lock_ok_mq_set: set[MessageQueue] = named_set("lockOKMQSet")  # noqa: RUF009  # it is a dataclass field


@dataclass(slots=True)
class UnlockBatchRequestBody(LockBatchRequestBody):
    """Body of UNLOCK_BATCH_MQ."""


@dataclass(slots=True)
class GetConsumerListByGroupResponseBody(Body):
    """Ids of the clients of a group."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG: is this filter valid?"""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@dataclass(slots=True)
class ListedConnection(Body):
    """A client connected to a broker."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


@dataclass(slots=True)
class SubscriptionConflict(Body):
    """Two members of a group that want different messages of a topic; a part of OrbitMQ's own answers.

    Attributes:
        wanted, other_wanted: their expressions, ``None``: that member does not subscribe to the topic.
    """

    topic: str = ""
    client_id: str = ""
    wanted: str | None = None
    other_client_id: str = ""
    other_wanted: str | None = None


@dataclass(slots=True)
class ConsumerConnection(Body):
    """The clients of a consumer group.

    Attributes:
        conflicts, conflict_count: where members contradict each other now, and how often one began to since
            the broker's start; ``None`` from Apache's brokers, and when there was none.
    """

    connection_set: list[ListedConnection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    conflicts: list[SubscriptionConflict] | None = None
    conflict_count: int | None = None


@dataclass(slots=True)
class ProducerConnection(Body):
    """The clients of a producer group."""

    connection_set: list[ListedConnection] = field(default_factory=list)


@dataclass(slots=True)
class ProducerInfo(Body):
    """A producer as GET_ALL_PRODUCER_INFO shows it. ``last_update_timestamp`` is in milliseconds."""

    client_id: str = ""
    remote_ip: str = named("remoteIP", "")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class ProducerTableInfo(Body):
    """All producers of a broker by group.

    Attributes:
        consumers: all consumers by group; only in the answer of an OrbitMQ broker that was asked for them.
    """

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
    consumers: dict[str, list[ListedConnection]] | None = None


class CMResult(StrEnum):
    """How a message consumed on request ended."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@dataclass(slots=True)
class ConsumeMessageDirectlyResult(Body):
    """Body of the response to CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


@dataclass(slots=True)
class ProcessQueueInfo(Body):
    """State of a queue that a push consumer works on. Times are milliseconds since the epoch."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = named("cachedMsgSizeInMiB", 0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(slots=True)
class PopProcessQueueInfo(Body):
    """State of a queue that a pop consumer works on."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@dataclass(slots=True)
class ConsumeStatus(Body):
    """Rates of a consumer for one topic. ``RT`` is in milliseconds, ``TPS`` per second."""

    pull_rt: float = named("pullRT", 0.0)
    pull_tps: float = named("pullTPS", 0.0)
    consume_rt: float = named("consumeRT", 0.0)
    consume_ok_tps: float = named("consumeOKTPS", 0.0)
    consume_failed_tps: float = named("consumeFailedTPS", 0.0)
    consume_failed_msgs: int = 0


@dataclass(slots=True)
class ConsumerRunningInfo(Body):
    """The running info of a consumer, as it reports it."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None
