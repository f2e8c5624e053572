"""Limits the connections that the ports of one server take: in all, and from one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# After a fall of the number of connections by this many, their memory is worth giving back.
MANY: Final = 1_000


def _nothing() -> None:
    """The ``on_many_gone`` of servers that give no memory back."""


class Seats:
    """Counts connections, also those whose TLS handshake is not done.

    Args:
        most: the most connections in all; 0: no limit.
        most_of_one: the most connections from one address; 0: no limit.
        on_many_gone: called when the number is :data:`MANY` below its highest value.

    Attributes:
        taken: the number of open connections.
    """

    def __init__(
        self, most: int = 0, most_of_one: int = 0, on_many_gone: Callable[[], object] = _nothing
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._of_hosts: dict[str, int] = {}
        self._on_many_gone = on_many_gone
        self.taken = 0
        self._highest = 0

    def why_not(self, host: str) -> str:
        """Why there is no room for another connection from this address; empty if there is room.

        Args:
            host: the address; empty while it is unknown, so that only the limit in all counts.
        """
        if self._most and self.taken >= self._most:
            return f"all {self._most} connections are in use (maxConnections)"
        if host and self._most_of_one and self._of_hosts.get(host, 0) >= self._most_of_one:
            return f"{host} has {self._most_of_one} connections already (maxConnectionsPerAddress)"
        return ""

    def of(self, host: str) -> int:
        """The number of connections from this address."""
        return self._of_hosts.get(host, 0)

    def take(self, host: str) -> None:
        """Count a new connection from this address."""
        self.taken += 1
        if self.taken > self._highest:
            self._highest = self.taken
        self._of_hosts[host] = self._of_hosts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        """Stop counting a connection from this address."""
        self.taken -= 1
        left = self._of_hosts[host] - 1
        if left:
            self._of_hosts[host] = left
        else:
            del self._of_hosts[host]
        if self._highest - self.taken >= MANY:
            self._highest = self.taken
            self._on_many_gone()
