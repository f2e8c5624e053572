"""Which keys a killed broker has changed since its start, before it could ask its followers (no I/O).

The disk of a killed broker has its tables of some seconds before the kill; its followers have the changes
since. They are asked before the broker serves, unless the name servers are new too and show no follower.
"""

from __future__ import annotations

from orbitmq.replication.state.terms import NONE


class UnsyncedStart:
    """The keys changed since a start without asking the followers, until this broker has asked.

    Attributes:
        is_on: whether the broker serves without having asked its followers, or has not finished asking.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._changed: set[tuple[str, str]] = set()
        self._term = NONE
        self._is_over = False

    def note_synced(self) -> None:
        """Note that a peer has sent its whole tables: the broker no longer starts without having asked."""
        self._is_over = True

    def begins(self, term: int) -> None:
        """Note that this broker serves after a kill, in the same term, with the tables from its disk."""
        if not self._is_over and not self.is_on:
            self.is_on, self._term = True, term

    def ends(self) -> None:
        """Note that this broker began a new term, or took over another leader's tables."""
        self.is_on, self._is_over = False, True
        self._changed.clear()

    def changed(self, table: str, key: str) -> None:
        """Note that a key has another value, or is gone: the other brokers' value of it is older."""
        if self.is_on:
            self._changed.add((table, key))

    def has_changed(self, table: str, key: str) -> bool:
        """Whether a key was changed since the start."""
        return (table, key) in self._changed

    def lacks(self, term: int) -> bool:
        """Whether a follower with tables of this term may have changes that this broker's disk lacks."""
        return self.is_on and self._term <= term
