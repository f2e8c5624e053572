"""The headers of clients' heartbeats and locks, and of requests to clients. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, RequestHeader, RpcRequest, TopicRequest

__all__ = [
    "CheckClientConfigRequest",
    "ConsumeMessageDirectlyRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerListByGroupRequest",
    "GetConsumerRunningInfoRequest",
    "GetProducerConnectionListRequest",
    "HeartBeatRequest",
    "LockBatchMqRequest",
    "NotifyConsumerIdsChangedRequest",
    "UnlockBatchMqRequest",
    "UnregisterClientRequest",
]


class HeartBeatRequest(RpcRequest, kw_only=True):
    """HEART_BEAT (34), client to broker."""

    code: ClassVar[int] = RequestCode.HEART_BEAT


class UnregisterClientRequest(RpcRequest, kw_only=True):
    """UNREGISTER_CLIENT (35), client to broker."""

    code: ClassVar[int] = RequestCode.UNREGISTER_CLIENT

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(RpcRequest, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38), client to broker."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class NotifyConsumerIdsChangedRequest(RpcRequest, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to client. One-way."""

    code: ClassVar[int] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class LockBatchMqRequest(RpcRequest, kw_only=True):
    """LOCK_BATCH_MQ (41), client to broker."""

    code: ClassVar[int] = RequestCode.LOCK_BATCH_MQ


class UnlockBatchMqRequest(RpcRequest, kw_only=True):
    """UNLOCK_BATCH_MQ (42), client to broker."""

    code: ClassVar[int] = RequestCode.UNLOCK_BATCH_MQ


class CheckClientConfigRequest(RequestHeader, kw_only=True):
    """CHECK_CLIENT_CONFIG (46), client to broker."""

    code: ClassVar[int] = RequestCode.CHECK_CLIENT_CONFIG


class GetConsumerConnectionListRequest(RpcRequest, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetProducerConnectionListRequest(RpcRequest, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class GetConsumerRunningInfoRequest(RpcRequest, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), admin to broker, which forwards it to the client."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(TopicRequest, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309), admin to broker, which forwards it to the client."""

    code: ClassVar[int] = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
