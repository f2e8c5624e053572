"""The headers of requests about a broker's topics. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader, TopicRequest

__all__ = [
    "DeleteTopicInBrokerRequest",
    "GetAllTopicConfigRequest",
    "GetAllTopicConfigResponse",
    "GetTopicConfigRequest",
    "GetTopicStatsInfoRequest",
    "QueryConsumeQueueRequest",
    "QueryConsumeTimeSpanRequest",
    "QueryTopicConsumeByWhoRequest",
    "UpdateAndCreateTopicRequest",
]


class UpdateAndCreateTopicRequest(TopicRequest, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17), admin to broker."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    force: bool = False


class GetAllTopicConfigRequest(RequestHeader, kw_only=True):
    """GET_ALL_TOPIC_CONFIG (21), slave to broker."""

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: Int32
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponse(ResponseHeader, kw_only=True):
    """Response to GET_ALL_TOPIC_CONFIG (21)."""

    total_topic_num: Int32


class DeleteTopicInBrokerRequest(TopicRequest, kw_only=True):
    """DELETE_TOPIC_IN_BROKER (215), admin to broker."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class GetTopicStatsInfoRequest(TopicRequest, kw_only=True):
    """GET_TOPIC_STATS_INFO (202), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


class QueryTopicConsumeByWhoRequest(TopicRequest, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


class QueryConsumeTimeSpanRequest(TopicRequest, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class GetTopicConfigRequest(TopicRequest, kw_only=True):
    """GET_TOPIC_CONFIG (351), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_CONFIG

    topic: str


class QueryConsumeQueueRequest(TopicRequest, kw_only=True):
    """QUERY_CONSUME_QUEUE (321), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_QUEUE

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
