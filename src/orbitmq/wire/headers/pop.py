"""The headers of pop consumption and queue assignment. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader, TopicRequest

__all__ = [
    "AckMessageRequest",
    "BatchAckMessageRequest",
    "ChangeMessageInvisibletimeRequest",
    "ChangeMessageInvisibletimeResponse",
    "NotificationRequest",
    "NotificationResponse",
    "PeekMessageRequest",
    "PeekMessageResponse",
    "PollingInfoRequest",
    "PollingInfoResponse",
    "PopMessageRequest",
    "PopMessageResponse",
    "QueryAssignmentRequest",
]


class PopMessageRequest(TopicRequest, kw_only=True):
    """POP_MESSAGE (200050), client to broker."""

    code: ClassVar[int] = RequestCode.POP_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponse(ResponseHeader, kw_only=True):
    """Response to POP_MESSAGE (200050)."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(TopicRequest, kw_only=True):
    """ACK_MESSAGE (200051), client to broker."""

    code: ClassVar[int] = RequestCode.ACK_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class PeekMessageRequest(TopicRequest, kw_only=True):
    """PEEK_MESSAGE (200052), client to broker."""

    code: ClassVar[int] = RequestCode.PEEK_MESSAGE

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class PeekMessageResponse(PopMessageResponse, kw_only=True):
    """Response to PEEK_MESSAGE (200052)."""


class ChangeMessageInvisibletimeRequest(TopicRequest, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME (200053), client to broker."""

    code: ClassVar[int] = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class ChangeMessageInvisibletimeResponse(ResponseHeader, kw_only=True):
    """Response to CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequest(TopicRequest, kw_only=True):
    """NOTIFICATION (200054), client to broker."""

    code: ClassVar[int] = RequestCode.NOTIFICATION

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None


class NotificationResponse(ResponseHeader, kw_only=True):
    """Response to NOTIFICATION (200054)."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequest(TopicRequest, kw_only=True):
    """POLLING_INFO (200055), client to broker."""

    code: ClassVar[int] = RequestCode.POLLING_INFO

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponse(ResponseHeader, kw_only=True):
    """Response to POLLING_INFO (200055)."""

    polling_num: Int32


class BatchAckMessageRequest(RequestHeader, kw_only=True):
    """BATCH_ACK_MESSAGE (200151), client to broker."""

    code: ClassVar[int] = RequestCode.BATCH_ACK_MESSAGE


class QueryAssignmentRequest(RequestHeader, kw_only=True):
    """QUERY_ASSIGNMENT (400), client to broker."""

    code: ClassVar[int] = RequestCode.QUERY_ASSIGNMENT
