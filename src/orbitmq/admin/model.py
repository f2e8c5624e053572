"""Brokers, topics and queues as the operations return them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One live broker.

    Attributes:
        name: the broker's name, which a master and its slaves share.
        broker_id: 0 for the master.
        address: ``host:port``.
    """

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting of a running broker.

    Attributes:
        live: whether the setting may change while the broker runs; ``None`` for Apache's brokers, which do
            not report it.
    """

    value: str
    live: bool | None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of one broker, with regard to the brokers of the same name. ``None`` means unknown.

    Attributes:
        role: the present role of an OrbitMQ broker; for a RocketMQ broker the role that its id implies.
        log_end: the end offset of the commit log, in bytes.
        lag_bytes: bytes by which a slave's log is shorter than its master's, or than the longest log of the
            same name if no master reports the slave.
        lag: seconds since the slave last had the whole log.
        in_sync: whether this slave's copies count for sends that wait for replicas.
        silent: seconds since the slave's last report to its master, if that is too long; else 0.
        special_services: whether this broker delivers delayed messages and checks transactions.
        epoch: the master's epoch, which grows with each change of the master.
        problem: the reason why the broker does not answer, or refuses; empty if it answers.
        disk_used: used share, 0 to 1, of the file system that holds the commit log.
        refuses: whether the broker answers but refuses its status; ``problem`` is its reason.
    """

    broker: BrokerInfo
    role: str
    log_end: int | None = None
    lag_bytes: int | None = None
    lag: float | None = None
    in_sync: bool | None = None
    special_services: bool | None = None
    epoch: int | None = None
    problem: str = ""
    silent: float | None = None
    disk_used: float | None = None
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """The TLS certificate of a server.

    Attributes:
        name: the broker's name, or "name server".
        ends: the end of its validity; ``None`` if it is not accepted.
        problem: the reason why it is not accepted, or that there is no TLS; empty if it is accepted.
    """

    name: str
    address: str
    ends: datetime | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """The queues that one broker group has of a topic.

    Attributes:
        broker_name: name of the broker group.
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
class TopicSettings:
    """Settings of a topic on a broker.

    Attributes:
        queues: number of read and write queues; if these differ, the larger number.
        perm: sum of read 4 and write 2.
        order: whether the topic is registered as an ordered topic.
        attributes: for example ``{"message.type": "FIFO"}``.
    """

    queues: int = 8
    perm: int = PERM_READ | PERM_WRITE
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Offsets of one queue, which holds the messages from ``min_offset`` up to, but not including,
    ``max_offset``.

    Attributes:
        newest: store time of the newest message; ``None`` if the queue is empty.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    newest: datetime | None = None

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset
