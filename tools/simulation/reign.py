"""The commits that one process made while it led: none of them goes back."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.change_feed import OFFSETS
from orbitmq.broker.role import RoleState
from tools.simulation.history import History


class Reign:
    """Receives each change of a process's tables.

    Args:
        group: the consumer group, whose queue locks give each queue to one member at a time. In a group
            without locks two members may have a queue for a while after a fault, and the last commit wins.
        end_of: returns the end of a topic's queue. A member that has read messages which a fault then removed
            from the queue commits an offset beyond the end, and continues at the end.
    """

    def __init__(
        self,
        name: str,
        role: RoleState,
        group: str,
        history: History,
        end_of: Callable[[str, int], int],
    ) -> None:
        self._name = name
        self._role = role
        self._end = f"@{group}"
        self._history = history
        self._end_of = end_of
        self._committed: dict[str, int] = {}

    def changed(self, table: str, key: str, value: object) -> None:
        """Handle an entry of the change feed."""
        queue, _, queue_id = key.rpartition("@")
        if table != OFFSETS or not queue.endswith(self._end):
            return
        if not self._role.takes_messages and not self._role.leads:
            # The process copies another broker's offsets, which may be older.
            self._committed.clear()
            return
        before, now = self._committed.get(key, 0), value if isinstance(value, int) else 0
        if now < before:
            text = f"{queue} at queue {queue_id} of {self._name} goes from {before} to {now} while it leads"
            self._history.violate("offsets never go back", text, once=f"{self._name} {key}")
        self._committed[key] = min(now, self._end_of(queue.removesuffix(self._end), int(queue_id)))
