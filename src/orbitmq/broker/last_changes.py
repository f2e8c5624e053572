"""When each key of a table was changed or deleted last: of two brokers' changes the later one counts.

The record is one number: the milliseconds since the epoch at the broker that made the change, or one more
than the highest number that this broker had, if that is higher. So a change made by a broker that had
received another change is later than that one, whatever the clocks say. Clocks decide only between two
changes of one key of which neither broker had received the other's. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from orbitmq.broker.stamps import Age

# How many deletions are kept at most: as many as there may be users.
MAX_DELETED: Final = 10_000
# Up to here JSON keeps whole numbers exactly; in milliseconds more than 200,000 years.
MAX_NUMBER: Final = 2**53
# Stands for no number, and is older than any number. Users from the settings have it, and users and rules
# from a version of OrbitMQ without numbers.
NONE: Final = 0


class LastChanges:
    """The numbers of changes at one broker, for the tables that are sent together.

    A deleted key keeps the number of its deletion. Beyond :data:`MAX_DELETED` the oldest one is forgotten,
    and then a key that is unknown here counts as deleted at that time.

    Args:
        counts: whether a change of this broker gets a number, given whether the key was deleted here before.

    Attributes:
        forgotten: the highest number of a deletion that was forgotten, here or at a broker whose whole tables
            were taken.
    """

    def __init__(self, now_ms: Callable[[], int], counts: Callable[[bool], bool]) -> None:
        self._now_ms = now_ms
        self._counts = counts
        self._live: dict[tuple[str, str], int] = {}
        self._deleted: dict[tuple[str, str], int] = {}
        self._highest = NONE
        self._received: int | None = None
        self.forgotten = NONE

    def of(self, table: str, key: str, *, deleted: bool) -> int:
        """The number of a key's value, or of its deletion; :data:`NONE`: there is none."""
        return (self._deleted if deleted else self._live).get((table, key), NONE)

    def deleted(self, table: str) -> list[str]:
        """The keys whose deletion is remembered."""
        return [key for name, key in self._deleted if name == table]

    def age(self, table: str, key: str, number: int) -> Age:
        """How a received change with this number compares with this broker's last change of the key."""
        place = table, key
        here = self._live.get(place, self._deleted.get(place))
        if here is None:
            here = self.forgotten if number else NONE
        if number == here:
            return Age.SAME
        return Age.NEWER if number > here else Age.OLDER

    # -- changes -----------------------------------------------------------------------------------------

    @contextmanager
    def receiving(self, number: int) -> Iterator[None]:
        """Give this number to changes inside the context: they were made elsewhere, or in an earlier run."""
        before, self._received = self._received, number
        try:
            yield
        finally:
            self._received = before

    def is_news(self, table: str, key: str, *, deleted: bool) -> bool:
        """Whether the change being received has another number than this broker's last change of the key."""
        return self._received is not None and self._received != self.of(table, key, deleted=deleted)

    def changed(self, table: str, key: str, *, deleted: bool) -> None:
        """Note that a key has another value, or is gone."""
        place = table, key
        number = self._received
        if number is None:
            number = self._next() if self._counts(place in self._deleted) else NONE
        self._keep(place, number, deleted)

    def _next(self) -> int:
        return min(MAX_NUMBER, max(self._now_ms(), self._highest + 1))

    def _keep(self, place: tuple[str, str], number: int, deleted: bool) -> None:
        self._highest = max(self._highest, number)
        self._live.pop(place, None)
        self._deleted.pop(place, None)
        if not deleted:
            self._live[place] = number
        elif number:
            self._deleted[place] = number
            while len(self._deleted) > MAX_DELETED:
                oldest = min(self._deleted, key=self._deleted.__getitem__)
                self.forget(self._deleted.pop(oldest))

    def forget(self, number: int) -> None:
        """Note that deletions up to this number were forgotten, here or at a broker whose whole tables were
        taken."""
        self.forgotten = max(self.forgotten, number)
        self._highest = max(self._highest, number)

    # -- the table's file --------------------------------------------------------------------------------

    def plain(self, table: str) -> dict[str, Any]:
        """The numbers of changes and deletions, for the file of the table."""

        def of_table(numbers: Mapping[tuple[str, str], int]) -> dict[str, int]:
            return {key: number for (name, key), number in numbers.items() if name == table and number}

        deleted = of_table(self._deleted)
        return {"changed": of_table(self._live), "deleted": deleted, "forgotten": self.forgotten}

    def restore(self, table: str, keys: Iterable[str], plain: Mapping[str, Any]) -> None:
        """Take over what the file of a table holds.

        Args:
            keys: the keys of the table's values.
        """
        changed = plain.get("changed") or {}
        for key in keys:
            self._keep((table, key), int(changed.get(key) or NONE), deleted=False)
        for key, number in (plain.get("deleted") or {}).items():
            if (table, key) not in self._live:
                self._keep((table, key), int(number), deleted=True)
        self.forget(int(plain.get("forgotten") or NONE))
