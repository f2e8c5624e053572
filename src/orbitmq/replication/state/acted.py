"""Whether this broker acted for its master and did what no master was told yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import ACTED, ChangeFeed, FedTable

_KEY = "term"


class ActingTerm:
    """The term in which a slave acted. It is on the disk: the slave may end before its master is back.

    Attributes:
        term: the last term in which it acted since it followed its master; 0: there is none. That of its
            tables may be higher: it is counted up so that a master hears it.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self.term = 0
        feed.register(ACTED, FedTable(lambda term: term, self._apply))

    def begins(self, term: int) -> None:
        """This broker begins to act for its master."""
        self._set(term)

    def told(self) -> None:
        """Its tables are its master's again, which was told all before."""
        if self.term:
            self._set(0)

    def _set(self, term: int) -> None:
        self.term = term
        self._feed.changed(ACTED, _KEY, term)

    def _apply(self, _key: str, value: Any) -> None:
        self.term = int(value or 0)

    def file_text(self) -> Iterator[str]:
        """``actingTerm.json``."""
        yield json.dumps({_KEY: self.term})

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``actingTerm.json``."""
        self.term = int(content.get(_KEY) or 0)
