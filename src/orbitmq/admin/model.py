"""What operations tell, as plain typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import PERM_READ, PERM_WRITE


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One live broker. Id 0 is the master of its group."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


@dataclass(frozen=True, slots=True)
class BrokerState:
    """How one broker does among those of its name. ``None``: not known.

    Attributes:
        role: of OrbitMQ's brokers the present one, of RocketMQ's what their id says.
        log_end: bytes that its log has ever had.
        lag_bytes, lag_ms: how much of the log it lacks that the broker it copies has, and for how long it has
            lacked something; of a slave that no master shows, against the longest log of its name.
        in_sync: whether its copies count for senders that wait for replicas, and it has not missed a report.
        silent_ms: for how long its master has heard nothing of it, when that is too long; else 0.
        special_services: whether delayed messages are delivered and transactions are checked here.
        epoch: the state version of its tables, which grows when a broker takes the lead.
        problem: why it does not tell.
    """

    broker: BrokerInfo
    role: str
    log_end: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    in_sync: bool | None = None
    special_services: bool | None = None
    epoch: int | None = None
    problem: str = ""
    silent_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """What one broker group offers for a topic.

    Attributes:
        perm: sum of read 4, write 2, inherit 1.
        addresses: live brokers of the group by id; 0 is the master.
    """

    broker_name: str
    cluster: str
    read_queues: int
    write_queues: int
    perm: int
    addresses: Mapping[int, str]

    @property
    def readable(self) -> bool:
        return self.perm & PERM_READ != 0

    @property
    def writable(self) -> bool:
        return self.perm & PERM_WRITE != 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Offsets of one queue: messages from ``min_offset`` up to, not including, ``max_offset`` exist.

    Attributes:
        last_update_ms: store time of the newest message, epoch milliseconds; 0 when there is none.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int = 0

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset
