"""Keeps prepared labels from one scrape to the next."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.monitoring.exposition import LabelRows


class LabelBatches:
    """The labels of series that are written in batches, mostly the same ones at each scrape.

    Args:
        names: the names of the labels.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._batches: list[LabelRows] = []
        self._number = 0

    def begin(self) -> None:
        """Begin a scrape with the first batch."""
        self._number = 0

    def of(self, rows: Sequence[tuple[str, ...]]) -> LabelRows:
        """The labels of the next batch: those of the last scrape, if its rows were the same."""
        number, self._number = self._number, self._number + 1
        if number < len(self._batches) and self._batches[number].rows == rows:
            return self._batches[number]
        found = LabelRows(self._names, rows)
        self._batches[number : number + 1] = [found]
        return found

    def end(self) -> None:
        """End a scrape: forget the batches that it did not use."""
        del self._batches[self._number :]
