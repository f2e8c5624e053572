"""The headers of requests that send messages and replies. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, ResponseHeader, RpcRequest, TopicRequest

__all__ = [
    "ConsumerSendMsgBackRequest",
    "PushReplyMessageToClientRequest",
    "RecallMessageRequest",
    "RecallMessageResponse",
    "SendBatchMessageRequest",
    "SendMessageRequest",
    "SendMessageResponse",
    "SendMessageV2Request",
    "SendReplyMessageV2Request",
]


class SendMessageRequest(TopicRequest, kw_only=True):
    """SEND_MESSAGE (10), client to broker."""

    code: ClassVar[int] = RequestCode.SEND_MESSAGE

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageResponse(ResponseHeader, kw_only=True):
    """Response to SEND_MESSAGE (10)."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class SendMessageV2Request(TopicRequest, kw_only=True):
    """SEND_MESSAGE_V2 (310), client to broker: SEND_MESSAGE with one-letter names."""

    code: ClassVar[int] = RequestCode.SEND_MESSAGE_V2

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendBatchMessageRequest(SendMessageV2Request, kw_only=True):
    """SEND_BATCH_MESSAGE (320), client to broker."""

    code: ClassVar[int] = RequestCode.SEND_BATCH_MESSAGE


class SendReplyMessageV2Request(SendMessageV2Request, kw_only=True):
    """SEND_REPLY_MESSAGE_V2 (325), client to broker."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReplyMessageToClientRequest(TopicRequest, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to client."""

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


class ConsumerSendMsgBackRequest(RpcRequest, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36), client to broker.

    Attributes:
        delay_ms: only between OrbitMQ's clients and brokers: the delay until the next delivery in
            milliseconds, by a timer, instead of ``delay_level``. Apache's broker reads only the level, so
            clients send both.
        reason, client_id: only between OrbitMQ's clients and brokers: why, and by which client, the message
            is sent back, for a dead letter.
    """

    code: ClassVar[int] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    delay_ms: Int64 | None = None
    reason: str | None = None
    client_id: str | None = None


class RecallMessageRequest(TopicRequest, kw_only=True):
    """RECALL_MESSAGE (370), client to broker."""

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponse(ResponseHeader, kw_only=True):
    """Response to RECALL_MESSAGE (370)."""

    msg_id: str
