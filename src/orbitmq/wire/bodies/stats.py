"""The bodies about offsets, the progress of groups, and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies.base import Body
from orbitmq.wire.bodies.client import SubscriptionData
from orbitmq.wire.bodies.topic import DataVersion

__all__ = [
    "BrokerStatsData",
    "BrokerStatsItem",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumerOffsetSerializeWrapper",
    "DelayOffsetSerializeWrapper",
    "GetConsumerStatusBody",
    "LateTimer",
    "MessageQueueForC",
    "OffsetWrapper",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueTimeSpan",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "TimerMetric",
    "TimerMetricsSerializeWrapper",
    "TopicOffset",
    "TopicProgress",
    "TopicStatsTable",
]


@dataclass(slots=True)
class TopicOffset(Body):
    """The offsets at both ends of a queue. ``last_update_timestamp`` is in milliseconds since the epoch."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class TopicStatsTable(Body):
    """The queues of a topic on one broker."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclass(slots=True)
class OffsetWrapper(Body):
    """A group's progress in a queue. ``last_timestamp`` is the store time of the last consumed message, in
    ms.

    ``pop_in_flight``, only from OrbitMQ's brokers, is the number of popped messages that are not
    acknowledged; ``None`` if the group does not pop the queue.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0
    pop_in_flight: int | None = None


@dataclass(slots=True)
class ConsumeStats(Body):
    """A group's progress in all its queues on one broker."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(slots=True)
class TopicProgress(Body):
    """A group's progress in all queues of a topic: the sum of its lags, and the sum of the queues' end
    offsets."""

    lag: int = 0
    end: int = 0


@dataclass(slots=True)
class ConsumeStatsList(Body):
    """The progress of every group of a broker: group -> one ``ConsumeStats`` for each topic.

    Attributes:
        sums: the progress by group and topic, instead of the list; only in the answer of an OrbitMQ broker to
            a request for it.
    """

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0
    sums: dict[str, dict[str, TopicProgress]] | None = None


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper(Body):
    """Committed offsets: ``topic@group`` -> queue id -> offset; also the content of consumerOffset.json."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


@dataclass(slots=True)
class DelayOffsetSerializeWrapper(Body):
    """The progress of scheduled delivery: delay level -> offset; also the content of delayOffset.json."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


@dataclass(slots=True)
class ResetOffsetBody(Body):
    """New offsets for a client's queues."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(slots=True)
class MessageQueueForC(Body):
    """A queue and its new offset."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


@dataclass(slots=True)
class ResetOffsetBodyForC(Body):
    """As :class:`ResetOffsetBody`, for C++ clients, whose JSON has no objects as keys."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@dataclass(slots=True)
class GetConsumerStatusBody(Body):
    """The offsets that clients report: one client's by queue, or several clients' by client id and queue."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclass(slots=True)
class QueryCorrectionOffsetBody(Body):
    """Corrected offsets by queue id."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class QueueTimeSpan(Body):
    """The store times (ms since the epoch) of a queue's first and last message, and of a group's last
    message."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@dataclass(slots=True)
class QueryConsumeTimeSpanBody(Body):
    """Time spans of all queues of a topic on one broker."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class ConsumeQueueData(Body):
    """One entry of a consume queue, with the result of the group's filter."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueResponseBody(Body):
    """Consecutive entries of a consume queue."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0


@dataclass(slots=True)
class BrokerStatsItem(Body):
    """A counter over a period: its sum, its rate per second, and its average per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData(Body):
    """A counter over the last minute, hour and day."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@dataclass(slots=True)
class TimerMetric(Body):
    """The waiting timer messages of a topic. ``time_stamp`` is in milliseconds since the epoch."""

    count: int = 0
    time_stamp: int = 0


@dataclass(slots=True)
class LateTimer(Body):
    """An overdue timer message, due at ``due_ms``, milliseconds since the epoch."""

    topic: str = ""
    unique_id: str = ""
    due_ms: int = 0


@dataclass(slots=True)
class TimerMetricsSerializeWrapper(Body):
    """Waiting timer messages by topic.

    Attributes:
        pending_by_minute: how many messages are due in each minute (milliseconds since the epoch as text).
        oldest_late: the most overdue message. Both are only in the answer of an OrbitMQ broker to a request
            for them.
    """

    timing_count: dict[str, TimerMetric] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    pending_by_minute: dict[str, int] | None = None
    oldest_late: LateTimer | None = None
