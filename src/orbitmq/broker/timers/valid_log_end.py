"""Up to where the commit log is still the one from which the timer log was made."""

from __future__ import annotations

from orbitmq.store import MessageStore


class ValidLogEnd:
    """The end of the messages in the commit log that units may name, after cuts of the log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._end: int | None = None  # ``None``: the end that the store's recovery found
        self._cuts_seen = 0

    @property
    def is_cut(self) -> bool:
        """Whether the commit log was cut since the last call of :meth:`end`."""
        return len(self._store.cuts) > self._cuts_seen

    def ends_at(self, place: int) -> None:
        """Set the end: from now on other brokers may write behind this place."""
        self._end = place

    def end(self) -> int:
        """The offset up to which units belong to the commit log's messages."""
        if self._end is None:
            recovered = self._store.recovered
            self._end = 0 if recovered is None else recovered.end_offset
        cuts = self._store.cuts
        self._end = min([self._end, *cuts[self._cuts_seen :]])
        self._cuts_seen = len(cuts)
        return min(self._end, self._store.max_commit_log_offset)
