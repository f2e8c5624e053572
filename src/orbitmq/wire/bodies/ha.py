"""The bodies about replication: the state of a master's slaves, and of a slave's link to its master."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.wire.bodies.base import Body

__all__ = [
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
]


@dataclass(slots=True)
class HAConnectionRuntimeInfo(Body):
    """A master's connection of one slave. ``diff`` is how many bytes the slave is behind."""

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
    """The state of a broker's replication."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
