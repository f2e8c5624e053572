"""Replication and the controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.wire.bodies.base import Body
from orbitmq.wire.bodies.route import BrokerMemberGroup

__all__ = [
    "BrokerReplicasInfo",
    "BrokerSyncInfo",
    "ElectMasterResponseBody",
    "EpochEntry",
    "EpochEntryCache",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "ReplicaIdentity",
    "ReplicasInfo",
    "RoleChangeNotifyEntry",
    "SyncStateSet",
]


@dataclass(slots=True)
class SyncStateSet(Body):
    """Broker ids of the replicas that have everything, and the epoch of that statement."""

    sync_state_set: set[int] = field(default_factory=set)
    sync_state_set_epoch: int = 0


@dataclass(slots=True)
class ElectMasterResponseBody(Body):
    """Body of the response to CONTROLLER_ELECT_MASTER."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[int] = field(default_factory=set)


@dataclass(slots=True)
class RoleChangeNotifyEntry(Body):
    """A new master, as a controller announces it."""

    broker_member_group: BrokerMemberGroup | None = None
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    sync_state_set: set[int] = field(default_factory=set)


@dataclass(slots=True)
class ReplicaIdentity(Body):
    """One replica of a broker group."""

    broker_name: str = ""
    broker_id: int | None = None
    broker_address: str = ""
    alive: bool | None = None


@dataclass(slots=True)
class ReplicasInfo(Body):
    """The replicas of a broker group."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(slots=True)
class BrokerReplicasInfo(Body):
    """Replicas by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


@dataclass(slots=True)
class EpochEntry(Body):
    """A stretch of the log that one master wrote; Java's largest number as end means: still open."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 2**63 - 1


@dataclass(slots=True)
class EpochEntryCache(Body):
    """The epochs of a broker's log."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0


@dataclass(slots=True)
class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it; ``diff`` is in bytes."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclass(slots=True)
class HAClientRuntimeInfo(Body):
    """A slave's link to its master. Times are milliseconds since the epoch."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


@dataclass(slots=True)
class HARuntimeInfo(Body):
    """The state of replication of a broker."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


@dataclass(slots=True)
class BrokerSyncInfo(Body):
    """Where a slave finds its master and how far that one has flushed."""

    master_ha_address: str | None = None
    master_flush_offset: int = 0
    master_address: str | None = None
