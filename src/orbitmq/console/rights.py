"""Roles of the console's users: each may do what the ones before it may. Pure."""

from __future__ import annotations

from typing import Final

WATCHER: Final = "watcher"
VIEWER: Final = "viewer"
OPERATOR: Final = "operator"
ADMIN: Final = "admin"
# A watcher sees no bodies of messages; an operator moves offsets and sends messages; an admin does all.
ROLES: Final = (WATCHER, VIEWER, OPERATOR, ADMIN)


def may(role: str, needs: str) -> bool:
    """Whether the role is enough for what needs that one; an empty ``needs`` is everyone's."""
    return not needs or ROLES.index(role) >= ROLES.index(needs)
