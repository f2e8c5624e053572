"""Half messages that a broker has stored at another group's master while it acted for its own master."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import ESCAPED_HALVES, ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import file_text


class EscapedHalves:
    """The escaped messages' offsets in the half queue, until these are marked there; ``escapedHalves.json``.

    An acting master writes nothing into its log, so it cannot make a mark. The table is sent with the other
    tables: the returning master marks these half messages, and does not check them.

    The table needs no limit of its own. Half messages get into the log only at the master, which refuses
    more than ``MAX_UNFINISHED`` open ones. An acting master adds unmarked ones from its log, each offset
    once however often it acts; and each is removed when its mark is on the master's device. An offset that
    would never get a mark, because the log was cut before it, is removed with the cut.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._offsets: dict[int, None] = {}
        # An escaped half message stays with the other broker, so every received offset is kept: if the
        # message is already marked here it gets a second mark, which changes nothing, and the offset is then
        # removed.
        feed.register(
            ESCAPED_HALVES,
            FedTable(int, self._apply, items=self._items, is_news=lambda _, value: value is not None),
        )

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._offsets))

    def add(self, offset: int) -> None:
        """Note that the half message at this offset belongs to another broker."""
        self._offsets[offset] = None
        self._feed.changed(ESCAPED_HALVES, str(offset), 1)

    def remove(self, offset: int) -> None:
        """Remove an offset: the marks of its half message and of all copies are on the device."""
        if offset in self._offsets:
            del self._offsets[offset]
            self._feed.changed(ESCAPED_HALVES, str(offset), None)

    def cut(self, end: int) -> None:
        """Remove the offsets from ``end`` on, where the half queue was cut: other messages will get them."""
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
