"""Which (group, topic) may pull on the fast path, and when they lose that permission."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.broker.fast_path import layout

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.names import NameTable

# Rows are never freed one by one: beyond this many, all are dropped, and pulls are permitted again.
MAX_ROWS = 500_000
MAX_NUMBERS = 4_000_000


class Permits:
    """Rows of permitted pulls. A forgotten row points to a topic without queues.

    Args:
        cleared: called when all rows were dropped because they were too many.

    Attributes:
        keys: group and topic of each row.
    """

    def __init__(self, table: NameTable, cleared: Callable[[], None]) -> None:
        self._table = table
        self._cleared = cleared
        self.keys: list[tuple[str, str]] = []
        self._active: dict[tuple[str, str], tuple[int, bool]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._groups_of: dict[str, set[str]] = {}

    def put(self, pull: layout.PermittedPull) -> None:
        """Permit a pull; a permitted one stays as it is, unless only the new one is ``registered``."""
        key = pull.group.decode(), pull.topic.decode()
        known = self._active.get(key)
        if known is not None and (known[1] or not pull.registered):
            return
        table = self._table
        if len(self.keys) >= MAX_ROWS or table.numbers_end >= MAX_NUMBERS:
            self._clear()
        filtered = pull.registered and not pull.filter.passes_all
        codes_at = table.keep_numbers(pull.filter.codes) if filtered else 0
        row = table.put(pull.name, pull.columns(codes_at))
        if row == len(self.keys):
            self.keys.append(key)
        self._active[key] = (row, pull.registered)
        self._topics_of.setdefault(key[0], set()).add(key[1])
        self._groups_of.setdefault(key[1], set()).add(key[0])

    def forget_group(self, group: str) -> None:
        """Send the group's next pulls to the ordinary handler."""
        for topic in self._topics_of.pop(group, ()):
            self._forget(group, topic)
            self._unlink(self._groups_of, topic, group)

    def forget_topic(self, topic: str) -> None:
        """Send the next pulls of the topic to the ordinary handler."""
        for group in self._groups_of.pop(topic, ()):
            self._forget(group, topic)
            self._unlink(self._topics_of, group, topic)

    def forget_all(self) -> None:
        """Send the next pulls of all groups to the ordinary handler."""
        for group in list(self._topics_of):
            self.forget_group(group)

    def _forget(self, group: str, topic: str) -> None:
        row, _ = self._active.pop((group, topic))
        self._table.set(row, layout.G_TOPIC, layout.NO_TOPIC)

    @staticmethod
    def _unlink(table: dict[str, set[str]], key: str, value: str) -> None:
        values = table[key]
        values.remove(value)
        if not values:
            del table[key]

    def _clear(self) -> None:
        self._table.clear()
        self.keys.clear()
        self._active.clear()
        self._topics_of.clear()
        self._groups_of.clear()
        self._cleared()
