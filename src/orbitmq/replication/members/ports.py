"""What membership needs of the other parts of replication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from orbitmq.errors import OrbitError


class ExchangeError(OrbitError):
    """A member did not give its tables, or not in a form that can be taken."""


class FollowsMaster(Protocol):
    """The slave's end of the link, see ``replication.link.follower``."""

    @property
    def connected(self) -> bool: ...

    @property
    def transferring(self) -> bool: ...

    @property
    def received(self) -> int:
        """Behind the last byte of the log that is here."""
        ...

    @property
    def own_end_counts(self) -> bool:
        """Whether nothing is copied because the other log differs, and the end of ours counts (PO-26)."""
        ...

    def follow(self, ha_address: str | None, master_address: str | None) -> None:
        """Copy from this master from now on; from none when both are ``None``."""
        ...


class LooksAtLinks(Protocol):
    """Which members are linked with this broker."""

    def copies(self, broker_id: int, host: str) -> bool:
        """Whether the member copies our log now; ``host`` is for one that does not tell its id (PO-07)."""
        ...

    def master_heartbeat_s(self) -> float:
        """How often the master that is followed shows that it lives."""
        ...

    def master_silence_s(self) -> float | None:
        """Seconds since our master was heard over the link; ``None`` without a link."""
        ...

    def tell_leaving(self) -> None:
        """Tell all who copy our log that this broker leads no more and goes."""
        ...

    def ask_lease(self, number: int, term: int) -> None:
        """Ask all who copy our log to leave the background work to us, see ``lease``."""
        ...

    def ask_take_over(self) -> None:
        """Ask our master whether this broker may do its background work."""
        ...


class TableExchange(Protocol):
    """The tables beside the log: topics, groups, offsets, delay progress, timers."""

    async def push(self) -> None:
        """Send all changes to the members that copy our log; return when they have them."""
        ...

    async def told_master(self) -> None:
        """Return when our master has what it is told; at once when it is told nothing, or not linked."""
        ...

    def outdate(self) -> None:
        """Our disk was empty: what a member has is newer, whatever the versions say (PO-22)."""
        ...

    async def take(self, broker_id: int, address: str) -> float | None:
        """Take over what is newer at a member (PO-08, PO-09).

        Returns:
            In how many seconds no client counts on a queue lock that it does not have; ``None``: unknown.

        Raises:
            ExchangeError, TransportError: not all of it was there; what was taken stays.
        """
        ...


class TellsActed(Protocol):
    """What a slave did while it acted, between slaves."""

    def acted(self) -> bytes:
        """All that the next one to act has to know; empty: nothing that our master was not told."""
        ...

    async def hear_acted(self, address: str, told: bytes) -> None:
        """Take over what another slave told.

        Raises:
            ExchangeError, LinkError: it is not all, or not of the form.
        """
        ...


class OtherSlaves(Protocol):
    """The slaves beside this one, see ``siblings``."""

    async def ask(self, members: Mapping[int, str]) -> None:
        """Take over what those among these did while they acted. Bounded."""
        ...

    async def go(self, members: Mapping[int, str]) -> None:
        """Before a clean stop: let those among these take what we did. Bounded."""
        ...


@dataclass(frozen=True, slots=True)
class OwnState:
    """What a broker tells others of itself.

    Attributes:
        address: where clients reach it.
        ha_address: gives where followers reach it.
        log_end: gives the end of its log.
        record_at: gives a record of its log by its place, ``None``: there is none.
        term: gives the state version of its tables, which grows when a broker takes the lead.
        crashed: tells whether the stop before its start was not a clean one.
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
        settle: returns when what special services have begun is settled.
        master_back: called when clients can use the master again that this broker stood in for.
    """

    following: FollowsMaster
    links: LooksAtLinks
    tables: TableExchange
    slaves: OtherSlaves
    settle: Callable[[], Awaitable[None]]
    master_back: Callable[[], object]
