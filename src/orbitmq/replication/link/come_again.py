"""Decides whether a new link replaces an older one: a network cut may leave one end of a link open (no I/O).

A process follows over one link at a time. Another process with the same id and address normally has replaced
the first one. If the first one connects again, both are alive and share an address by mistake, as two
containers may. The two must not end each other's links for ever.
"""

from __future__ import annotations

from collections import deque

from orbitmq.replication.link.hello import Hello

MAX_REPLACED = 64


class ComeAgain:
    """Remembers the processes whose link was ended for another process."""

    def __init__(self) -> None:
        self._replaced: deque[str] = deque(maxlen=MAX_REPLACED)

    def replaces(self, newer: Hello, older: Hello) -> bool:
        """Whether the process of the older link is gone."""
        if newer.broker_id != older.broker_id:
            return False
        if newer.run == older.run:
            return True
        if newer.address != older.address or newer.run in self._replaced:
            return False
        self._replaced.append(older.run)
        return True
