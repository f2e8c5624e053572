"""Running a broker: typed headers. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader

__all__ = [
    "AddBrokerRequest",
    "CheckRocksdbCqWriteProgressRequest",
    "CleanExpiredConsumequeueRequest",
    "DeleteExpiredCommitlogRequest",
    "ExchangeBrokerHaInfoRequest",
    "ExchangeBrokerHaInfoResponse",
    "ExportRocksdbConfigToJsonRequest",
    "GetBrokerConfigRequest",
    "GetBrokerConfigResponse",
    "GetBrokerEpochCacheRequest",
    "GetBrokerHaStatusRequest",
    "GetBrokerRuntimeInfoRequest",
    "GetColdDataFlowCtrInfoRequest",
    "GetTimerCheckPointRequest",
    "GetTimerMetricsRequest",
    "RemoveBrokerRequest",
    "RemoveColdDataFlowCtrConfigRequest",
    "ResetMasterFlushOffsetRequest",
    "SetCommitlogReadModeRequest",
    "UpdateBrokerConfigRequest",
    "UpdateColdDataFlowCtrConfigRequest",
    "ViewBrokerStatsDataRequest",
]


class UpdateBrokerConfigRequest(RequestHeader, kw_only=True):
    """UPDATE_BROKER_CONFIG (25), admin to broker."""

    code: ClassVar[int] = RequestCode.UPDATE_BROKER_CONFIG


class GetBrokerConfigRequest(RequestHeader, kw_only=True):
    """GET_BROKER_CONFIG (26), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONFIG


class GetBrokerConfigResponse(ResponseHeader, kw_only=True):
    """Response to GET_BROKER_CONFIG (26)."""

    version: str


class GetBrokerRuntimeInfoRequest(RequestHeader, kw_only=True):
    """GET_BROKER_RUNTIME_INFO (28), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_BROKER_RUNTIME_INFO


class GetTimerCheckPointRequest(RequestHeader, kw_only=True):
    """GET_TIMER_CHECK_POINT (60), slave to broker."""

    code: ClassVar[int] = RequestCode.GET_TIMER_CHECK_POINT


class GetTimerMetricsRequest(RequestHeader, kw_only=True):
    """GET_TIMER_METRICS (61), slave to broker."""

    code: ClassVar[int] = RequestCode.GET_TIMER_METRICS


class CleanExpiredConsumequeueRequest(RequestHeader, kw_only=True):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306), admin to broker."""

    code: ClassVar[int] = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class ViewBrokerStatsDataRequest(RequestHeader, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315), admin to broker."""

    code: ClassVar[int] = RequestCode.VIEW_BROKER_STATS_DATA

    stats_name: str
    stats_key: str


class DeleteExpiredCommitlogRequest(RequestHeader, kw_only=True):
    """DELETE_EXPIRED_COMMITLOG (329), admin to broker."""

    code: ClassVar[int] = RequestCode.DELETE_EXPIRED_COMMITLOG


class CheckRocksdbCqWriteProgressRequest(RequestHeader, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354), admin to broker."""

    code: ClassVar[int] = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS

    topic: str
    check_store_time: Int64 = 0


class ExportRocksdbConfigToJsonRequest(RequestHeader, kw_only=True):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355), admin to broker."""

    code: ClassVar[int] = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON

    config_type: str
    type_name: str | None = None


class AddBrokerRequest(RequestHeader, kw_only=True):
    """ADD_BROKER (902), admin to container."""

    code: ClassVar[int] = RequestCode.ADD_BROKER

    config_path: str | None = None


class RemoveBrokerRequest(RequestHeader, kw_only=True):
    """REMOVE_BROKER (903), admin to container."""

    code: ClassVar[int] = RequestCode.REMOVE_BROKER

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeBrokerHaInfoRequest(RequestHeader, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO (906), broker to broker."""

    code: ClassVar[int] = RequestCode.EXCHANGE_BROKER_HA_INFO

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeBrokerHaInfoResponse(ResponseHeader, kw_only=True):
    """Response to EXCHANGE_BROKER_HA_INFO (906).

    ``orbitmq_stream`` is ours: the version of the stream that the HA port speaks besides RocketMQ's protocol.
    """

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    orbitmq_stream: Int32 | None = None


class GetBrokerHaStatusRequest(RequestHeader, kw_only=True):
    """GET_BROKER_HA_STATUS (907), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_BROKER_HA_STATUS


class ResetMasterFlushOffsetRequest(RequestHeader, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET (908), admin to broker."""

    code: ClassVar[int] = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: Int64


class GetBrokerEpochCacheRequest(RequestHeader, kw_only=True):
    """GET_BROKER_EPOCH_CACHE (1007), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_BROKER_EPOCH_CACHE


class UpdateColdDataFlowCtrConfigRequest(RequestHeader, kw_only=True):
    """UPDATE_COLD_DATA_FLOW_CTR_CONFIG (2001), admin to broker."""

    code: ClassVar[int] = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG


class RemoveColdDataFlowCtrConfigRequest(RequestHeader, kw_only=True):
    """REMOVE_COLD_DATA_FLOW_CTR_CONFIG (2002), admin to broker."""

    code: ClassVar[int] = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG


class GetColdDataFlowCtrInfoRequest(RequestHeader, kw_only=True):
    """GET_COLD_DATA_FLOW_CTR_INFO (2003), admin to broker."""

    code: ClassVar[int] = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO


class SetCommitlogReadModeRequest(RequestHeader, kw_only=True):
    """SET_COMMITLOG_READ_MODE (2004), admin to broker."""

    code: ClassVar[int] = RequestCode.SET_COMMITLOG_READ_MODE
