"""The roles of the console's users; each role includes the rights of the roles before it. Pure."""

from __future__ import annotations

from typing import Final

WATCHER: Final = "watcher"
VIEWER: Final = "viewer"
OPERATOR: Final = "operator"
ADMIN: Final = "admin"
# A watcher sees no bodies of messages, an operator may move offsets and send messages, an admin may do all.
ROLES: Final = (WATCHER, VIEWER, OPERATOR, ADMIN)


def may(role: str, needs: str) -> bool:
    """Whether a role includes the role ``needs``; an empty ``needs`` is allowed for every role."""
    return not needs or ROLES.index(role) >= ROLES.index(needs)
