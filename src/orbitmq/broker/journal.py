"""The one place every change of a broker's tables passes: persistence listens now, a slave will."""

from __future__ import annotations

from collections.abc import Callable

TOPICS = "topics"
GROUPS = "subscriptionGroup"
OFFSETS = "consumerOffset"
DELAYS = "delayOffset"

Listener = Callable[[str, str, object], None]


class Journal:
    """Hands each change to everyone who asked for it, in order, within the call that made the change."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener(table, key, value)`` on every change; ``value`` is ``None`` once it is gone."""
        self._listeners.append(listener)

    def changed(self, table: str, key: str, value: object) -> None:
        """Tell that ``key`` of ``table`` now has ``value`` (``None``: removed).

        Args:
            table: the name of the table's file in ``config`` without ``.json``.
        """
        for listener in self._listeners:
            listener(table, key, value)
