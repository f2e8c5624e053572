"""The bodies about clients: heartbeats, queue locks, connections, and a broker's requests to a client."""

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
    """How a consumer gets its messages: by pull (actively), push (passively) or pop."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether the members of a group share its messages, or each member gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(StrEnum):
    """Where a group without committed offsets begins. The last three are deprecated and mean the first."""

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
    """A consumer's subscription to a topic.

    Attributes:
        sub_string: ``*``, or tags joined by ``||``, or the SQL92 expression.
        tags_set: the tags; empty for ``*`` and SQL92.
        code_set: the Java hash codes of the tags.
        sub_version: when the subscription was made, milliseconds since the epoch.
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
        heartbeat_fingerprint: the hash of the content (heartbeat V2), or 0.
        without_sub: whether the subscriptions are left out because the broker knows the fingerprint.
    """

    client_id: str = named("clientID", "")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    def fingerprint(self) -> int:
        """A hash of the groups and subscriptions, independent of the client and of the subscriptions'
        times."""
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
    """The queues that the client has locked."""

    lock_ok_mq_set: set[MessageQueue] = named_set("lockOKMQSet")  # noqa: RUF009  # it is a dataclass field


@dataclass(slots=True)
class UnlockBatchRequestBody(LockBatchRequestBody):
    """Body of UNLOCK_BATCH_MQ."""


@dataclass(slots=True)
class GetConsumerListByGroupResponseBody(Body):
    """The ids of a group's clients."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG, which checks whether a subscription's filter is valid."""

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
    """Two members of a group that subscribe to different messages of a topic; only in OrbitMQ's answers.

    Attributes:
        wanted, other_wanted: their expressions; ``None`` if that member does not subscribe to the topic.
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
        conflicts: the present conflicts between members.
        conflict_count: how many conflicts have begun since the broker's start. Both are ``None`` from
            Apache's brokers, and if there was no conflict.
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
    """A producer in the answer to GET_ALL_PRODUCER_INFO. ``last_update_timestamp`` is in milliseconds."""

    client_id: str = ""
    remote_ip: str = named("remoteIP", "")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class ProducerTableInfo(Body):
    """All producers of a broker by group.

    Attributes:
        consumers: all consumers by group; only in the answer of an OrbitMQ broker to a request for them.
    """

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
    consumers: dict[str, list[ListedConnection]] | None = None


class CMResult(StrEnum):
    """The result of a message consumed on request."""

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
    """The state of a queue of a push consumer. Times are milliseconds since the epoch."""

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
    """The state of a queue of a pop consumer."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@dataclass(slots=True)
class ConsumeStatus(Body):
    """A consumer's times (``RT``, in milliseconds) and rates (``TPS``, per second) for one topic."""

    pull_rt: float = named("pullRT", 0.0)
    pull_tps: float = named("pullTPS", 0.0)
    consume_rt: float = named("consumeRT", 0.0)
    consume_ok_tps: float = named("consumeOKTPS", 0.0)
    consume_failed_tps: float = named("consumeFailedTPS", 0.0)
    consume_failed_msgs: int = 0


@dataclass(slots=True)
class ConsumerRunningInfo(Body):
    """The running info that a consumer reports."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None
