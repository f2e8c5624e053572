"""How many connections the ports of one server take: in all, and from one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# So many connections fewer than there were: their memory is worth to be given back.
MANY: Final = 1_000


def _nothing() -> None:
    """For servers that give no memory back when many have left."""


class Seats:
    """Counts connections, also those that still shake hands.

    Args:
        most: connections in all; 0: no limit.
        most_of_one: connections from one address; 0: no limit.
        on_many_gone: called when there are :data:`MANY` fewer than there were.

    Attributes:
        taken: connections now.
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
        """Why there is no room for another connection from this address; empty: there is room.

        Args:
            host: the address; empty: not known yet, so it counts in all only.
        """
        if self._most and self.taken >= self._most:
            return f"all {self._most} connections are in use (maxConnections)"
        if host and self._most_of_one and self._of_hosts.get(host, 0) >= self._most_of_one:
            return f"{host} has {self._most_of_one} connections already (maxConnectionsPerAddress)"
        return ""

    def of(self, host: str) -> int:
        """How many connections from this address there are."""
        return self._of_hosts.get(host, 0)

    def take(self, host: str) -> None:
        """A connection from this address is there."""
        self.taken += 1
        if self.taken > self._highest:
            self._highest = self.taken
        self._of_hosts[host] = self._of_hosts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        """A connection that was taken is gone."""
        self.taken -= 1
        left = self._of_hosts[host] - 1
        if left:
            self._of_hosts[host] = left
        else:
            del self._of_hosts[host]
        if self._highest - self.taken >= MANY:
            self._highest = self.taken
            self._on_many_gone()
