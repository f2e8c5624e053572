"""Controller: typed headers. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader, ResponseHeader

__all__ = [
    "CleanBrokerDataRequest",
    "ControllerAlterSyncStateSetRequest",
    "ControllerAlterSyncStateSetResponse",
    "ControllerApplyBrokerIdRequest",
    "ControllerApplyBrokerIdResponse",
    "ControllerElectMasterRequest",
    "ControllerElectMasterResponse",
    "ControllerGetMetadataInfoRequest",
    "ControllerGetMetadataInfoResponse",
    "ControllerGetNextBrokerIdRequest",
    "ControllerGetNextBrokerIdResponse",
    "ControllerGetReplicaInfoRequest",
    "ControllerGetReplicaInfoResponse",
    "ControllerGetSyncStateDataRequest",
    "ControllerRegisterBrokerRequest",
    "ControllerRegisterBrokerResponse",
    "GetControllerConfigRequest",
    "NotifyBrokerRoleChangedRequest",
    "UpdateControllerConfigRequest",
]


class ControllerAlterSyncStateSetRequest(RequestHeader, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001), broker to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None


class ControllerAlterSyncStateSetResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_ALTER_SYNC_STATE_SET (1001)."""

    new_sync_state_set_epoch: Int32 = 0


class ControllerElectMasterRequest(RequestHeader, kw_only=True):
    """CONTROLLER_ELECT_MASTER (1002), broker to controller or admin to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_ELECT_MASTER

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


class ControllerElectMasterResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_ELECT_MASTER (1002)."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class ControllerRegisterBrokerRequest(RequestHeader, kw_only=True):
    """CONTROLLER_REGISTER_BROKER (1003), broker to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_REGISTER_BROKER

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 | None = None


class ControllerRegisterBrokerResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_REGISTER_BROKER (1003)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class ControllerGetReplicaInfoRequest(RequestHeader, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO (1004), broker to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_REPLICA_INFO

    broker_name: str | None = None


class ControllerGetReplicaInfoResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_GET_REPLICA_INFO (1004)."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class ControllerGetMetadataInfoRequest(RequestHeader, kw_only=True):
    """CONTROLLER_GET_METADATA_INFO (1005), anyone to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_METADATA_INFO


class ControllerGetMetadataInfoResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_GET_METADATA_INFO (1005)."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class ControllerGetSyncStateDataRequest(RequestHeader, kw_only=True):
    """CONTROLLER_GET_SYNC_STATE_DATA (1006), admin to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA


class NotifyBrokerRoleChangedRequest(RequestHeader, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), controller to broker. One-way."""

    code: ClassVar[int] = RequestCode.NOTIFY_BROKER_ROLE_CHANGED

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class UpdateControllerConfigRequest(RequestHeader, kw_only=True):
    """UPDATE_CONTROLLER_CONFIG (1009), admin to controller."""

    code: ClassVar[int] = RequestCode.UPDATE_CONTROLLER_CONFIG


class GetControllerConfigRequest(RequestHeader, kw_only=True):
    """GET_CONTROLLER_CONFIG (1010), admin to controller."""

    code: ClassVar[int] = RequestCode.GET_CONTROLLER_CONFIG


class CleanBrokerDataRequest(RequestHeader, kw_only=True):
    """CLEAN_BROKER_DATA (1011), admin to controller."""

    code: ClassVar[int] = RequestCode.CLEAN_BROKER_DATA

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


class ControllerGetNextBrokerIdRequest(RequestHeader, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012), broker to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID

    cluster_name: str | None = None
    broker_name: str | None = None


class ControllerGetNextBrokerIdResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ControllerApplyBrokerIdRequest(RequestHeader, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID (1013), broker to controller."""

    code: ClassVar[int] = RequestCode.CONTROLLER_APPLY_BROKER_ID

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class ControllerApplyBrokerIdResponse(ResponseHeader, kw_only=True):
    """Response to CONTROLLER_APPLY_BROKER_ID (1013)."""

    cluster_name: str | None = None
    broker_name: str | None = None
