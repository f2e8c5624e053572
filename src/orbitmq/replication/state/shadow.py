"""The simulation's hook that compares the rules of :mod:`merge_rules` with stamps (decision 31, proposed)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orbitmq.broker.change_feed import FeedEntry
from orbitmq.broker.stamps import Stamp
from orbitmq.replication.state.frames import Changes


class Shadow(Protocol):
    """Receives each decision and changes none."""

    def accepting(
        self, address: str, frame: Changes, accepts: Callable[[FeedEntry], bool]
    ) -> Callable[[FeedEntry], bool]:
        """The rule ``accepts`` for the entries of a frame from a peer; each of its answers is compared."""

    def removing(self, address: str, table: str, key: str) -> Stamp | None:
        """Note that a key is removed because a peer's tables lack it; returns the stamp of its deletion
        there."""
