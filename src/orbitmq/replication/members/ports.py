"""Protocols of the tables in ``replication.state``, as membership uses them."""

from __future__ import annotations

from typing import Protocol

from orbitmq.errors import OrbitError


class ExchangeError(OrbitError):
    """A member did not send its tables, or sent them in an invalid form."""


class TableExchange(Protocol):
    """The tables beside the log: topics, groups, offsets, delay progress, timers."""

    async def push(self) -> None:
        """Send all changes to the members that copy this log; return when they have them."""
        ...

    async def master_has_changes(self) -> None:
        """Return when the master has all changes sent to it; at once when there are none, or no link."""
        ...

    def outdate(self) -> None:
        """Make this broker's tables older than any member's, whatever the versions are: its disk was empty
        (PO-22)."""
        ...

    async def take(self, broker_id: int, address: str) -> None:
        """Take over a member's newer entries (PO-08, PO-09).

        Raises:
            ExchangeError, TransportError: the tables did not arrive completely; entries taken so far stay.
        """
        ...


class ActedExchange(Protocol):
    """The deliveries of a slave that acted, exchanged between slaves."""

    def acted(self) -> bytes:
        """The deliveries that the next acting slave needs; empty if the master has them all."""
        ...

    async def apply_acted(self, address: str, data: bytes) -> None:
        """Take over another slave's deliveries.

        Raises:
            ExchangeError, LinkError: the bytes are incomplete or malformed.
        """
        ...
