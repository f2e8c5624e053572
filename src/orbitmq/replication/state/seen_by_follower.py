"""Keys that an acting slave removed and that a returning master must not bring back (no I/O)."""

from __future__ import annotations

from orbitmq.broker.change_feed import POP_ORDERS, RESETS

# A reset keeps its key until a pull obeys it, a batch until its queue is free again.
_TABLES = frozenset({RESETS, POP_ORDERS})


class SeenByFollower:
    """Notes which of this broker's resets and batches each follower has had.

    A follower that acted and lacks a key that it once had has dealt with that key. A key that the follower
    never had was made here after the last of this broker's changes that it has.
    """

    def __init__(self) -> None:
        self._made_at: dict[tuple[str, str], int] = {}
        self._applied: dict[int, int] = {}

    def changed(self, sequence: int, table: str, key: str, value: object, *, own: bool) -> None:
        """Note that a key of the tables has another value (``None``: it is gone).

        Args:
            own: whether this broker made the change as master; other brokers have the changes that they sent.
        """
        if table not in _TABLES:
            return
        if value is None:
            self._made_at.pop((table, key), None)
        else:
            self._made_at[table, key] = sequence if own else 0

    def note_applied(self, broker_id: int, sequence: int) -> None:
        """Note that a follower has applied all changes up to ``sequence``."""
        self._applied[broker_id] = sequence

    def knew(self, broker_id: int, table: str, key: str) -> bool:
        """Whether a follower has had this reset or batch.

        Notes do not outlive a run. Resets of an earlier run count as received, because they were sent within
        0.2 s; batches of an earlier run do not.
        """
        made_at = self._made_at.get((table, key))
        if made_at is None:
            return table == RESETS
        return made_at <= self._applied.get(broker_id, 0)
