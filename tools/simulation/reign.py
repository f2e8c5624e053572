"""What one process has committed while it leads: none of it goes back."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.change_feed import OFFSETS
from orbitmq.broker.role import RoleState
from tools.simulation.history import History


class Reign:
    """Hears each change of a process's tables.

    Args:
        group: one of which one member at a time has a queue, by its lock. In a group without locks two may
            have it for a while after a fault, and the last commit wins.
        end_of: tells where a queue of a topic ends. A member that has read messages which a fault then took
            from the queue commits an offset behind the end, and goes on at the end.
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
        """Listens to the change feed."""
        queue, _, queue_id = key.rpartition("@")
        if table != OFFSETS or not queue.endswith(self._end):
            return
        if not self._role.takes_messages and not self._role.leads:
            # It takes what another broker tells, which may know less.
            self._committed.clear()
            return
        before, now = self._committed.get(key, 0), value if isinstance(value, int) else 0
        if now < before:
            text = f"{queue} at queue {queue_id} of {self._name} goes from {before} to {now} while it leads"
            self._history.violate("offsets never go back", text, once=f"{self._name} {key}")
        self._committed[key] = min(now, self._end_of(queue.removesuffix(self._end), int(queue_id)))
