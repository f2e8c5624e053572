"""What is gone where a slave acted, and must not come back with its returning master (no I/O)."""

from __future__ import annotations

from orbitmq.broker.change_feed import POP_ORDERS, RESETS

# A reset is told until a pull follows it, a batch is out until its queue is freed: then their keys are gone.
_TABLES = frozenset({RESETS, POP_ORDERS})


class HandedOut:
    """Which resets and batches of ours a follower knew.

    One that acted since and has them no more has told or freed them. What it never knew is not done: it was
    made here after the last that the follower has heard of us.
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

        Of an earlier run nothing is noted: its resets were told within 0.2 s, of batches that is not known.
        """
        made_at = self._made_at.get((table, key))
        if made_at is None:
            return table == RESETS
        return made_at <= self._heard.get(broker_id, 0)
