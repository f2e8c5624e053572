"""The headers of the name server: registrations, routes, key-value settings. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader, TopicRequest

__all__ = [
    "AddWritePermOfBrokerRequest",
    "AddWritePermOfBrokerResponse",
    "BrokerHeartbeatRequest",
    "DeleteKvConfigRequest",
    "DeleteTopicInNamesrvRequest",
    "GetBrokerMemberGroupRequest",
    "GetKvConfigRequest",
    "GetKvConfigResponse",
    "GetKvlistByNamespaceRequest",
    "GetRouteinfoByTopicRequest",
    "GetTopicsByClusterRequest",
    "NotifyMinBrokerIdChangeRequest",
    "PutKvConfigRequest",
    "QueryDataVersionRequest",
    "QueryDataVersionResponse",
    "RegisterBrokerRequest",
    "RegisterBrokerResponse",
    "RegisterTopicInNamesrvRequest",
    "UnregisterBrokerRequest",
    "WipeWritePermOfBrokerRequest",
    "WipeWritePermOfBrokerResponse",
]


class PutKvConfigRequest(RequestHeader, kw_only=True):
    """PUT_KV_CONFIG (100), admin to name server."""

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


class GetKvConfigRequest(RequestHeader, kw_only=True):
    """GET_KV_CONFIG (101), admin to name server."""

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


class GetKvConfigResponse(ResponseHeader, kw_only=True):
    """Response to GET_KV_CONFIG (101)."""

    value: str | None = None


class DeleteKvConfigRequest(RequestHeader, kw_only=True):
    """DELETE_KV_CONFIG (102), admin to name server."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


class RegisterBrokerRequest(RequestHeader, kw_only=True):
    """REGISTER_BROKER (103), broker to name server."""

    code: ClassVar[int] = RequestCode.REGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponse(ResponseHeader, kw_only=True):
    """Response to REGISTER_BROKER (103)."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(RequestHeader, kw_only=True):
    """UNREGISTER_BROKER (104), broker to name server."""

    code: ClassVar[int] = RequestCode.UNREGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteinfoByTopicRequest(TopicRequest, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105), client to name server."""

    code: ClassVar[int] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None


class WipeWritePermOfBrokerRequest(RequestHeader, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205), admin to name server."""

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker_name: str


class WipeWritePermOfBrokerResponse(ResponseHeader, kw_only=True):
    """Response to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequest(RequestHeader, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER (327), admin to name server."""

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker_name: str


class AddWritePermOfBrokerResponse(ResponseHeader, kw_only=True):
    """Response to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: Int32


class DeleteTopicInNamesrvRequest(TopicRequest, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216), admin to name server."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class RegisterTopicInNamesrvRequest(TopicRequest, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217), broker to name server."""

    code: ClassVar[int] = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str


class GetKvlistByNamespaceRequest(RequestHeader, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219), admin to name server."""

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str


class GetTopicsByClusterRequest(RequestHeader, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224), admin to name server."""

    code: ClassVar[int] = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


class QueryDataVersionRequest(RequestHeader, kw_only=True):
    """QUERY_DATA_VERSION (322), broker to name server."""

    code: ClassVar[int] = RequestCode.QUERY_DATA_VERSION

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(ResponseHeader, kw_only=True):
    """Response to QUERY_DATA_VERSION (322)."""

    changed: bool


class GetBrokerMemberGroupRequest(RequestHeader, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901), broker to name server."""

    code: ClassVar[int] = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequest(RequestHeader, kw_only=True):
    """BROKER_HEARTBEAT (904), broker to name server or broker to controller. One-way."""

    code: ClassVar[int] = RequestCode.BROKER_HEARTBEAT

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class NotifyMinBrokerIdChangeRequest(RequestHeader, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), name server to broker. One-way."""

    code: ClassVar[int] = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
