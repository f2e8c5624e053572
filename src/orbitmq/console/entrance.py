"""The host names of the console, and the ways to log in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.console.logins import Desk
from orbitmq.console.users_file import User


@dataclass(frozen=True, slots=True)
class ProxyUsers:
    """The users that a proxy authenticates and names in a header, as for single sign-on.

    Attributes:
        header: the header with the user's name.
        peers: the addresses of the proxy; the header is ignored from other addresses.
        users: the users that the console knows, with their roles.
    """

    header: str
    peers: frozenset[str]
    users: Mapping[str, User]

    def user(self, peer: str, names: Sequence[str]) -> User | None:
        """The user that a request of that peer names; ``None`` if it names no known user."""
        if peer not in self.peers or len(names) != 1:
            return None
        return self.users.get(names[0].strip())


@dataclass(frozen=True, slots=True)
class Entrance:
    """The host names of the console, and the ways to log in.

    Attributes:
        hosts: the accepted values of the header Host.
        scheme: the scheme of the addresses that browsers see.
        by_link: whether the one-time link opens a session.
        desk: checks the logins of users with passwords; None without them.
        proxy: the proxy that names users; None without one.
        cookie: the cookie's name. Browsers send cookies to all ports of a host, so the consoles of one host
            need different names.
    """

    hosts: frozenset[str]
    scheme: str = "http"
    by_link: bool = True
    desk: Desk | None = None
    proxy: ProxyUsers | None = None
    cookie: str = "orbitmq_console"
