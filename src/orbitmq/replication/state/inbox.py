"""The receiving side: changes wait until the log has the messages they refer to (no I/O)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from orbitmq.broker.change_feed import FedTable, FeedEntry
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.state.frames import Changes

# The most changes that wait for the log: beyond that the oldest are made before the log has reached their
# places.
MAX_WAITING = 200_000


@dataclass(frozen=True, slots=True)
class Complete:
    """The end of the sender's whole tables.

    Attributes:
        keys: the sender's keys, by table; the sender has no other keys in these tables.
        asked: whether this broker had asked for the tables.
        locks_in_s: after this many seconds no client relies on a queue lock missing here; ``None``: that
            is unknown.
        forgotten: see :class:`Changes`.
    """

    keys: dict[str, set[str]]
    asked: bool
    locks_in_s: float | None = None
    forgotten: int = 0

    def knows_whole(self, table: FedTable, key: str) -> bool:
        """Whether the sender has the key that ``key`` belongs to, see ``FedTable.whole``."""
        if table.whole is None:
            return False
        whole, whole_key = table.whole(key)
        return whole_key in self.keys.get(whole, ())


Action: TypeAlias = FeedEntry | Complete


class Inbox:
    """The frames of one link, in order.

    Changes found by :meth:`ready` stay here until :meth:`take_next` takes them, so that :meth:`rest`, called
    in between, gives the older changes before the newer ones.

    Attributes:
        received: number of the last frame.
        applied: the sequence up to which changes were made.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, Action | None]] = deque()
        self._ready: deque[Action] = deque()
        self._changed_here: set[tuple[str, str]] = set()
        self._keys: dict[str, set[str]] | None = None
        self._given = 0
        self.received = 0
        self.applied = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, frame: Changes, accept: Callable[[FeedEntry], bool]) -> None:
        """Take a frame that has arrived.

        Args:
            accept: whether a change is to be made here; a change that is not is acknowledged all the same.

        Raises:
            LinkError: an earlier frame is missing.
        """
        if frame.number != self.received + 1:
            raise LinkError(f"frame {frame.number} of tables came behind frame {self.received}")
        self.received = frame.number
        if frame.begins:
            self._keys = {}
        behind = 0
        for entry in frame.entries:
            # Tables that were asked for are applied at once: a broker copies the log before it asks.
            behind = 0 if frame.asked else entry.log_offset
            if self._keys is not None:
                self._keys.setdefault(entry.table, set()).add(entry.key)
            if accept(entry):
                self._waiting.append((behind, 0, entry))
        if frame.ends and self._keys is not None:
            complete = Complete(self._keys, frame.asked, frame.locks_in_s, frame.forgotten)
            self._waiting.append((behind, 0, complete))
            self._keys = None
        self._waiting.append((behind, frame.sequence, None))

    def ready(self, log_end: int) -> list[Action]:
        """The actions that are possible now that the log goes up to ``log_end``; in order, each only once.

        Of several changes of a key only the last is made: when the log has come to a topic's first messages,
        the deletion of an earlier topic of that name must not be made any more, because it would delete these
        messages, too.
        """
        found: list[Action] = []
        waiting = self._waiting
        while waiting and (waiting[0][0] <= log_end or len(waiting) > MAX_WAITING):
            _, sequence, action = waiting.popleft()
            if action is None:
                self._given = max(self._given, sequence)
            else:
                found.append(action)
        last = {(each.table, each.key): each for each in found if isinstance(each, FeedEntry)}
        found = [
            each for each in found if not isinstance(each, FeedEntry) or last[each.table, each.key] is each
        ]
        self._ready.extend(found)
        return found

    def take_next(self) -> Action | None:
        """The oldest ready change, to be made in this turn of the event loop; ``None``: all are made."""
        return self._ready.popleft() if self._ready else None

    def changed_here(self, table: str, key: str) -> None:
        """Note that this broker, which serves, has changed a key: waiting changes of that key are older."""
        if self._ready or self._waiting:
            self._changed_here.add((table, key))
        elif self._changed_here:
            self._changed_here.clear()

    def is_outdated(self, entry: FeedEntry) -> bool:
        """Whether this broker has changed the same key since the change arrived."""
        return (entry.table, entry.key) in self._changed_here

    def made(self) -> None:
        """Note that all actions that :meth:`ready` returned have been applied."""
        self.applied = self._given

    def rest(self) -> list[Action]:
        """All changes not made yet: their sender is gone, so the log will not reach their places."""
        found = [*self._ready, *(action for _, _, action in self._waiting if action is not None)]
        self._ready.clear()
        self._waiting.clear()
        self._keys = None
        return found
