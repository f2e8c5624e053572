"""Keys that an acting slave removed, which a returning master must not bring back (no I/O)."""

from __future__ import annotations

from orbitmq.broker.change_feed import POP_ORDERS, RESETS

# A reset has a key until a pull follows it, a batch until its queue is free again.
_TABLES = frozenset({RESETS, POP_ORDERS})


class SeenByFollower:
    """Notes which of our resets and batches each follower knew.

    If a follower that acted since no longer has a key that it knew, it has dealt with it. A key that it never
    knew was made here after our last change that it has.
    """

    def __init__(self) -> None:
        self._made_at: dict[tuple[str, str], int] = {}
        self._heard: dict[int, int] = {}

    def changed(self, sequence: int, table: str, key: str, value: object, *, own: bool) -> None:
        """A key of the tables has another value (``None``: it is gone).

        Args:
            own: whether this broker made the change as master; what others told it, others know.
        """
        if table not in _TABLES:
            return
        if value is None:
            self._made_at.pop((table, key), None)
        else:
            self._made_at[table, key] = sequence if own else 0

    def heard(self, broker_id: int, sequence: int) -> None:
        """A follower has made all changes up to ``sequence``."""
        self._heard[broker_id] = sequence

    def knew(self, broker_id: int, table: str, key: str) -> bool:
        """Whether a follower has known this reset or batch.

        Nothing is noted of an earlier run. Its resets count as known, for they were sent within 0.2 s; its
        batches do not.
        """
        made_at = self._made_at.get((table, key))
        if made_at is None:
            return table == RESETS
        return made_at <= self._heard.get(broker_id, 0)
