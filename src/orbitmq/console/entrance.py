"""Which names the console has, and who is let in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.console.logins import Desk
from orbitmq.console.users_file import User


@dataclass(frozen=True, slots=True)
class ProxyUsers:
    """Users whom a proxy has let in and names in a header, as for single sign-on.

    Attributes:
        header: the header with the user's name.
        peers: addresses of the proxy; the header of another address is ignored.
        users: whom the console knows, with their roles.
    """

    header: str
    peers: frozenset[str]
    users: Mapping[str, User]

    def user(self, peer: str, names: Sequence[str]) -> User | None:
        """The user that a request of that peer names; ``None``: it names no known user."""
        if peer not in self.peers or len(names) != 1:
            return None
        return self.users.get(names[0].strip())


@dataclass(frozen=True, slots=True)
class Entrance:
    """Which names the console has, and who is let in.

    Attributes:
        hosts: the values of the header Host that are let in.
        scheme: of the addresses that browsers see.
        by_link: whether the one-time link opens a session.
        desk: where users log in.
        proxy: a proxy that names users.
        cookie: the cookie's name. Browsers send cookies to all ports of a host, so consoles need names of
            their own.
    """

    hosts: frozenset[str]
    scheme: str = "http"
    by_link: bool = True
    desk: Desk | None = None
    proxy: ProxyUsers | None = None
    cookie: str = "orbitmq_console"
