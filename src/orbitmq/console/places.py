"""Where the clusters of a console are in its addresses: the first has no mark, another one is under /@NAME.

The cluster is in the address, not in the session: a form of one cluster that is open in a tab stays one of
that cluster, whatever another tab shows. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

API: Final = "/api/v1"
_MARK: Final = "/@"


class Places:
    """The names of the clusters, and where their pages are.

    Args:
        names: of the clusters; the first is the one of addresses without a mark.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def base(self, name: str) -> str:
        """What the addresses of a cluster's pages begin with."""
        return "" if name == self.names[0] else f"{_MARK}{name}"

    def find(self, path: str) -> tuple[str, str] | None:
        """The cluster of a path, and the path without its mark; ``None``: there is no such cluster."""
        front = API if path.startswith(API + _MARK) else ""
        rest = path[len(front) :]
        if not rest.startswith(_MARK):
            return self.names[0], path
        name, slash, inner = rest[len(_MARK) :].partition("/")
        return (name, f"{front}{slash}{inner}" or "/") if name in self.names else None
