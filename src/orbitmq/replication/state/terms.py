"""Decides whose tables are newer: each broker that begins to lead raises the term.

The term is the state version in the tables' data versions, which RocketMQ compares first (PO-10). So a Java
master takes back changes made while another broker led, and an older leader's changes are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.change_feed import ChangeFeed, Versioned
from orbitmq.broker.role import Role, RoleChanged
from orbitmq.wire.bodies.topic import DataVersion

_LED_BEFORE = frozenset({Role.MASTER, Role.FENCED})


def begins_term(changed: RoleChanged) -> bool:
    """Whether a change of role makes this broker the leader."""
    if changed.after is Role.ACTING_MASTER:
        return True
    return changed.after in _LED_BEFORE and changed.before not in _LED_BEFORE


NONE = -1


class Terms:
    """The term of one broker's tables.

    Attributes:
        begun: the term that this process began itself, unless it has taken another leader's tables since;
            :data:`NONE`: there is no such term.
        lost: whether the tables were lost with the log, and this broker has not led since: a key missing in
            them proves nothing.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._highest = 0
        self.begun = NONE
        self.lost = False

    @property
    def term(self) -> int:
        """The highest term of any table so far."""
        return max(self._highest, self._of_tables)

    @property
    def _of_tables(self) -> int:
        return max((table.version.state_version for table in self._tables()), default=0)

    def has_older(self, term: int, acted_in: int = 0, *, untold: bool = False) -> bool:
        """Whether a peer whose tables have ``term`` has no later changes than this broker.

        In the term that this broker began the peer did not lead: it has at most the changes sent to it; in a
        lower term it lacks more. Changes that it made before that may still be new here.

        Args:
            acted_in: the last term in which the peer acted, 0: none. A peer that led after this broker began
                a higher term.
            untold: whether the peer was not sent all changes of this broker, perhaps in an earlier run, or
                was killed and may have lost some of them.
        """
        own = self._of_tables
        return term <= self.begun or term < own or 0 < acted_in <= own or (untold and 0 < term == own)

    def begin(self) -> int:
        """Give all tables the next term; returns it."""
        self.lost = False
        term = self._highest = self.begun = self.term + 1
        for table in self._tables():
            version = table.version
            table.version = DataVersion(term, version.timestamp, version.counter)
        if self._feed.stamps is not None:
            self._feed.stamps.begin(term)
        return term

    def outdate(self) -> None:
        """Make this broker's tables older than any other's; the next term is higher all the same."""
        self._highest, self.begun, self.lost = self.term, NONE, True
        for table in self._tables():
            table.version = DataVersion(state_version=0, timestamp=0, counter=0)
        if self._feed.stamps is not None:
            self._feed.stamps.forget()

    def note_term(self, term: int) -> None:
        """Note that another broker leads in this term."""
        self._highest = max(self._highest, term)

    def follows(self, term: int) -> None:
        """Note that the tables become a copy of those of a leader in this term."""
        self.note_term(term)
        self.begun = NONE

    def _tables(self) -> Iterable[Versioned]:
        return [table.versioned for table in self._feed.tables().values() if table.versioned is not None]
