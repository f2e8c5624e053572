"""The headers of requests about running a broker. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader

__all__ = [
    "ExchangeBrokerHaInfoRequest",
    "ExchangeBrokerHaInfoResponse",
    "GetBrokerConfigResponse",
    "ResetMasterFlushOffsetRequest",
    "ViewBrokerStatsDataRequest",
]


class GetBrokerConfigResponse(ResponseHeader, kw_only=True):
    """Response to GET_BROKER_CONFIG (26). ``liveKeys``, only from OrbitMQ's brokers, lists the settings that
    may change while the broker runs, separated by ``;``.
    """

    version: str
    live_keys: str | None = None


class ViewBrokerStatsDataRequest(RequestHeader, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315), admin to broker."""

    code: ClassVar[int] = RequestCode.VIEW_BROKER_STATS_DATA

    stats_name: str
    stats_key: str


class ExchangeBrokerHaInfoRequest(RequestHeader, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO (906), broker to broker."""

    code: ClassVar[int] = RequestCode.EXCHANGE_BROKER_HA_INFO

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeBrokerHaInfoResponse(ResponseHeader, kw_only=True):
    """Response to EXCHANGE_BROKER_HA_INFO (906).

    ``orbitmq_stream``, only from OrbitMQ's brokers, is the version of OrbitMQ's stream at the HA port.
    """

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    orbitmq_stream: Int32 | None = None


class ResetMasterFlushOffsetRequest(RequestHeader, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET (908), admin to broker."""

    code: ClassVar[int] = RequestCode.RESET_MASTER_FLUSH_OFFSET

    master_flush_offset: Int64
