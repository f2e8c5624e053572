"""The headers of requests about subscription groups. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, RequestHeader, ResponseHeader, RpcRequest, TopicRequest

__all__ = [
    "DeleteSubscriptiongroupRequest",
    "GetAllSubscriptiongroupConfigRequest",
    "GetAllSubscriptiongroupConfigResponse",
    "GetBrokerConsumeStatsRequest",
    "GetConsumeStatsRequest",
    "GetSubscriptiongroupConfigRequest",
    "QuerySubscriptionByConsumerRequest",
    "QueryTopicsByConsumerRequest",
    "UpdateAndGetGroupForbiddenRequest",
]


class GetAllSubscriptiongroupConfigRequest(RequestHeader, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), slave to broker."""

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int32
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptiongroupConfigResponse(ResponseHeader, kw_only=True):
    """Response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    total_group_num: Int32


class DeleteSubscriptiongroupRequest(RpcRequest, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207), admin to broker."""

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = False


class GetConsumeStatsRequest(TopicRequest, kw_only=True):
    """GET_CONSUME_STATS (208), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryTopicsByConsumerRequest(RpcRequest, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class QuerySubscriptionByConsumerRequest(TopicRequest, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345), admin to broker."""

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str | None = None


class GetSubscriptiongroupConfigRequest(RpcRequest, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class UpdateAndGetGroupForbiddenRequest(TopicRequest, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353), admin to broker."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None


class GetBrokerConsumeStatsRequest(RequestHeader, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONSUME_STATS

    is_order: bool
