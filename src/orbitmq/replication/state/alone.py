"""What a killed broker has changed since it serves, before it heard who copied its tables (no I/O).

Its disk has its tables of some seconds before the kill, and its followers know what it changed in these. They
are asked before it serves; but name servers that begin anew show none of them, and it serves all the same.
"""

from __future__ import annotations

from orbitmq.replication.state.terms import NONE


class UnsyncedStart:
    """From the beginning of its term until it leads, when nobody is asked any more.

    Attributes:
        is_on: whether it serves so, or has and is not done with asking.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._changed: set[tuple[str, str]] = set()
        self._term = NONE
        self._is_over = False

    def heard(self) -> None:
        """A peer has told all that its tables hold: what begins from now on is not without asking."""
        self._is_over = True

    def begins(self, term: int) -> None:
        """This broker serves after a kill, in the same term, with the tables of its disk."""
        if not self._is_over and not self.is_on:
            self.is_on, self._term = True, term

    def ends(self) -> None:
        """This broker took a new term, or took over another leader's tables."""
        self.is_on, self._is_over = False, True
        self._changed.clear()

    def changed(self, table: str, key: str) -> None:
        """A key has another value, or is gone: what others have of it is older."""
        if self.is_on:
            self._changed.add((table, key))

    def has_changed(self, table: str, key: str) -> bool:
        """Whether a key was changed meanwhile."""
        return (table, key) in self._changed

    def lacks(self, term: int) -> bool:
        """Whether a follower whose tables are of a term may know what this disk does not."""
        return self.is_on and self._term <= term
