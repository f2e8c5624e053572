"""The parts of a broker that membership works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitmq.replication.link.ha_client import HaClient
from orbitmq.replication.members.links import Links
from orbitmq.replication.members.other_slaves import OtherSlaves
from orbitmq.replication.members.ports import TableExchange


@dataclass(frozen=True, slots=True)
class OwnState:
    """The state of a broker that membership reads or sends to others.

    Attributes:
        address: where clients reach it.
        ha_address: returns where followers reach it.
        log_end: gives the end of its log.
        record_at: gives a record of its log by its place, ``None``: there is none.
        term: gives the state version of its tables, which grows when a broker takes the lead.
        crashed: returns whether its last run did not end with a clean stop.
    """

    address: str
    ha_address: Callable[[], str]
    log_end: Callable[[], int]
    record_at: Callable[[int], bytes | None]
    term: Callable[[], int]
    crashed: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of replication that membership works with.

    Attributes:
        settle: returns when the deliveries under way are finished.
        master_back: called when clients can use the master again for which this broker acted.
    """

    ha_client: HaClient
    links: Links
    tables: TableExchange
    slaves: OtherSlaves
    settle: Callable[[], Awaitable[None]]
    master_back: Callable[[], object]
