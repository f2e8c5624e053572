"""Whether this broker acted for its master and has changes from then that no master has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import ACTED, ChangeFeed, FedTable

_KEY = "term"


class ActingTerm:
    """The term in which a slave acted. Kept on the disk: the slave may be killed before its master is back.

    Attributes:
        term: the last term in which the slave acted without following a master since; 0: none. The
            term of its tables may be higher: a slave raises it so that a master takes them.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self.term = 0
        feed.register(ACTED, FedTable(lambda term: term, self._apply))

    def begins(self, term: int) -> None:
        """Note that this broker begins to act for its master."""
        self._set(term)

    def note_master_synced(self) -> None:
        """Note that the master has all changes of this slave, whose tables are a copy of the master's
        again."""
        if self.term:
            self._set(0)

    def _set(self, term: int) -> None:
        self.term = term
        self._feed.changed(ACTED, _KEY, term)

    def _apply(self, _key: str, value: Any) -> None:
        self.term = int(value or 0)

    def file_text(self) -> Iterator[str]:
        """The content of ``actingTerm.json``."""
        yield json.dumps({_KEY: self.term})

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``actingTerm.json``."""
        self.term = int(content.get(_KEY) or 0)
