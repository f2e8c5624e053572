"""Whose tables are newer: each broker that begins to lead counts the term up.

The term is the state version of the tables' data versions, which RocketMQ compares first (PO-10): so a Java
master takes back what was changed while another broker led, and an older leader's changes are not taken.
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
        begun: the term that this process began itself and in which it has taken no other leader's tables
            since; :data:`NONE`: there is none.
        lost: our tables were lost with our log, and we have not led since: what is not among them proves
            nothing.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._highest = 0
        self.begun = NONE
        self.lost = False

    @property
    def term(self) -> int:
        """The highest term that any table has seen."""
        return max(self._highest, self._of_tables)

    @property
    def _of_tables(self) -> int:
        return max((table.version.state_version for table in self._tables()), default=0)

    def has_older(self, term: int, acted_in: int = 0, *, untold: bool = False) -> bool:
        """Whether a peer whose tables are of ``term`` did not change them later than ours were changed.

        In the term that we began it did not lead, so it has what we told it, not all of it perhaps; and in a
        lower one not even that. What it did before may be news all the same.

        Args:
            acted_in: the last term in which it acted, 0: it did not. One who led later than we did began a
                higher one than ours.
            untold: it was not told all that we changed, in an earlier run perhaps, or was killed and may
                have lost some of it.
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
        """Let the tables of any other broker be newer than ours; the next term is higher all the same."""
        self._highest, self.begun, self.lost = self.term, NONE, True
        for table in self._tables():
            table.version = DataVersion(state_version=0, timestamp=0, counter=0)
        if self._feed.stamps is not None:
            self._feed.stamps.forget()

    def saw(self, term: int) -> None:
        """Another broker leads with this term."""
        self._highest = max(self._highest, term)

    def follows(self, term: int) -> None:
        """Our tables become those of a leader in this term."""
        self.saw(term)
        self.begun = NONE

    def _tables(self) -> Iterable[Versioned]:
        return [table.versioned for table in self._feed.tables().values() if table.versioned is not None]
