"""Half messages that a broker has brought to another master while it acted for its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import ESCAPED_HALVES, ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import file_text


class EscapedHalves:
    """Their offsets in the half queue, until they are marked as ended there; ``config/escapedHalves.json``.

    Who acts for a master writes nothing into its log, so no mark can be made. The table travels with the
    others: the master that returns marks them, and asks nobody about them.

    It has no limit of its own. Half messages get into the log at the master alone, which refuses more than
    ``MAX_UNFINISHED`` open ones; who acts adds what is in its log without a mark, each offset once however
    often it takes over; and one is removed when its mark is on the master's device. An offset for which no
    mark would come, because the log was cut in front of it, goes with the cut.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._offsets: dict[int, None] = {}
        # That a half message is another broker's stays true, so each one told is taken: one that was marked
        # here already gets one more mark, which changes nothing, and is removed with it.
        feed.register(
            ESCAPED_HALVES,
            FedTable(int, self._apply, items=self._items, is_news=lambda _, value: value is not None),
        )

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._offsets))

    def add(self, offset: int) -> None:
        """The half message at this offset is another broker's now."""
        self._offsets[offset] = None
        self._feed.changed(ESCAPED_HALVES, str(offset), 1)

    def remove(self, offset: int) -> None:
        """It and all copies of it are marked as ended, on the device."""
        if offset in self._offsets:
            del self._offsets[offset]
            self._feed.changed(ESCAPED_HALVES, str(offset), None)

    def cut(self, end: int) -> None:
        """The half queue ends at ``end`` now: what comes there is another message, which nobody has."""
        for offset in [offset for offset in self._offsets if offset >= end]:
            self.remove(offset)

    def _items(self) -> list[tuple[str, int]]:
        return [(str(offset), 1) for offset in self._offsets]

    def _apply(self, key: str, value: int | None) -> None:
        if value is None:
            self.remove(int(key))
        else:
            self.add(int(key))

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``escapedHalves.json``, piece by piece."""
        return file_text([("offsets", str(list(self)))])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``escapedHalves.json``."""
        self._offsets.update(dict.fromkeys(int(offset) for offset in content.get("offsets") or ()))
