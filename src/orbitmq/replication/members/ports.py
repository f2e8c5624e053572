"""What membership asks of the tables, which are in ``replication.state``."""

from __future__ import annotations

from typing import Protocol

from orbitmq.errors import OrbitError


class ExchangeError(OrbitError):
    """A member did not give its tables, or not in a form that can be taken."""


class TableExchange(Protocol):
    """The tables beside the log: topics, groups, offsets, delay progress, timers."""

    async def push(self) -> None:
        """Send all changes to the members that copy our log; return when they have them."""
        ...

    async def told_master(self) -> None:
        """Return when our master has all changes sent to it; at once when there are none, or no link."""
        ...

    def outdate(self) -> None:
        """Our disk was empty: what a member has is newer, whatever the versions say (PO-22)."""
        ...

    async def take(self, broker_id: int, address: str) -> None:
        """Take over what is newer at a member (PO-08, PO-09).

        Raises:
            ExchangeError, TransportError: not all of it was there; what was taken stays.
        """
        ...


class TellsActed(Protocol):
    """Deliveries of an acting slave, exchanged between slaves."""

    def acted(self) -> bytes:
        """All deliveries that the next acting slave has to know; empty: our master knows them all."""
        ...

    async def hear_acted(self, address: str, told: bytes) -> None:
        """Take over another slave's deliveries.

        Raises:
            ExchangeError, LinkError: it is not all, or not of the form.
        """
        ...
