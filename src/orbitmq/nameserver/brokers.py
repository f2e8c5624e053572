"""Brokers in the route table: a broker's report, its group, and the changes a report makes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from orbitmq.nameserver.topics import GroupQueues
from orbitmq.wire.bodies.topic import DataVersion, TopicQueueMappingInfo

DEFAULT_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A broker's report about itself.

    Attributes:
        timeout_ms: a broker silent for longer than this counts as dead; None is 120 s.
        acting_master: whether a slave of its group may act as master; None from a 4.x broker.
        connection: identifies the connection of the report; its closing unregisters the broker.
        opened: the number of that connection; a later connection has a larger number.
    """

    cluster: str
    group: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, GroupQueues] = field(default_factory=dict)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = None
    connection: Hashable = None
    opened: int = 0


@dataclass(slots=True)
class Member:
    """One live broker.

    Attributes:
        opened: of the connection with its last registration; see :class:`BrokerReport`.
        digest: of the last report whose topics were all taken; empty for a report without them.
        deletions: the group's count of deletions at that time.
    """

    cluster: str
    group: str
    broker_id: int
    address: str
    ha_address: str
    timeout_ms: int
    version: DataVersion
    connection: Hashable
    opened: int
    last_seen_ms: int
    filter_servers: tuple[str, ...] = ()
    digest: bytes = b""
    deletions: int = 0


@dataclass(slots=True)
class BrokerGroup:
    """The live brokers that share a broker name, by broker id.

    Attributes:
        deletions: how many topics of the group were deleted here: its brokers' next reports bring them back.
        heard_ms: the last sign of life of a broker that has left the group. It is never before the group's
            first report, as nothing is known from before.
        moves: broker ids that moved between two living addresses, with the addresses.
    """

    cluster: str
    name: str
    heard_ms: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None
    deletions: int = 0
    moves: set[tuple[int, frozenset[str]]] = field(default_factory=set)

    @property
    def min_id(self) -> int:
        return min(self.members)

    def left(self, member: Member) -> None:
        """Note that a broker has left the group."""
        self.heard_ms = max(self.heard_ms, member.last_seen_ms)


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """The lowest broker id of a group changed; ``notify`` are the addresses to which this is sent."""

    group: str
    min_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    notify: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration: where a slave finds its master (NR-14)."""

    master_address: str | None = None
    ha_address: str | None = None
    change: MinBrokerIdChange | None = None


@dataclass(slots=True)
class Admission:
    """An accepted report of a broker; its topics are stored afterwards, in slices.

    Attributes:
        member: ``None`` when the report was ignored.
        wanted: whether the topics of the report count.
        changed: whether they replace the known ones.
        moved: the living addresses that this id moved from and to, set once for each pair.
    """

    answer: Registered
    member: Member | None = None
    wanted: bool = False
    changed: bool = False
    read_only: bool = False
    moved: tuple[str, str] | None = None


def min_change(group: BrokerGroup, *, offline: str | None, ha_address: str | None) -> MinBrokerIdChange:
    """The lowest broker id of a group now, and the addresses to notify."""
    min_id = group.min_id
    everyone = offline is not None or len(group.members) == 1
    return MinBrokerIdChange(
        group=group.name,
        min_id=min_id,
        min_address=group.members[min_id].address,
        offline_address=offline,
        ha_address=ha_address,
        notify=tuple(m.address for i, m in sorted(group.members.items()) if everyone or i != min_id),
    )
