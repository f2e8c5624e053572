"""The clusters in the console's addresses: the first cluster has no mark, another one is under /@NAME.

The address names the cluster, not the session: so a form that is open in one tab stays a form of its cluster,
whatever another tab shows. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

API: Final = "/api/v1"
_MARK: Final = "/@"


class Places:
    """The names of the clusters, and the addresses of their pages.

    Args:
        names: the clusters' names; the first cluster is that of addresses without a mark.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def base(self, name: str) -> str:
        """The beginning of the addresses of a cluster's pages."""
        return "" if name == self.names[0] else f"{_MARK}{name}"

    def find(self, path: str) -> tuple[str, str] | None:
        """The cluster of a path, and the path without its mark; ``None`` if there is no such cluster."""
        front = API if path.startswith(API + _MARK) else ""
        rest = path[len(front) :]
        if not rest.startswith(_MARK):
            return self.names[0], path
        name, slash, inner = rest[len(_MARK) :].partition("/")
        return (name, f"{front}{slash}{inner}" or "/") if name in self.names else None
