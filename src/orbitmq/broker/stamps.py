"""How new each key of each table is: the term of the leader that changed it last, and a number (no I/O).

A broker stamps its own changes, and keeps the stamp of a change received from another broker. The stamp
travels with the change: over the link and into the change journal. Numbers only grow, also across brokers: if
the broker that made one of two changes of a term had received the other, its change has the higher number.

Only one broker stamps in a term. A slave, which also takes offsets that a client commits there, gives its
own changes the term in which it led last. If it never led, they have no stamp: any change of its leader is
newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple


class Stamp(NamedTuple):
    """When a key was last changed.

    Attributes:
        term: the term of the leader that changed it; a broker that does not lead uses the last one it led in.
        number: one more than the highest number that this leader had seen.
    """

    term: int
    number: int


class Age(StrEnum):
    """How a received change compares with this broker's own value."""

    NEWER = "newer"
    SAME = "same"
    OLDER = "older"


def age(received: Stamp | None, here: Stamp | None) -> Age:
    """Whether a received change of a key is later than this broker's change.

    Args:
        received, here: ``None``: that side has no stamp for the key, so any stamp is newer.
    """
    if received == here:
        return Age.SAME
    if received is None:
        return Age.OLDER
    if here is None:
        return Age.NEWER
    return Age.NEWER if received > here else Age.OLDER


class Stamps:
    """The stamps of one broker's tables. A deleted key keeps the stamp of its deletion.

    Args:
        leads: whether this broker leads, acts or is fenced: then the highest term in its stamps is its own.
    """

    def __init__(self, leads: Callable[[], bool] = lambda: True) -> None:
        self._leads = leads
        self._of: dict[tuple[str, str], Stamp] = {}
        self._term = 0
        self._led: int | None = None
        self._highest = 0
        # The stamps of the received changes that are being applied, the innermost one last.
        self._received: list[Stamp | None] = []

    def begin(self, term: int) -> None:
        """Begin to lead in a new term: this broker's own changes are stamped with it."""
        self._led = self._term = max(self._term, term)

    def of(self, table: str, key: str) -> Stamp | None:
        """The stamp of a key, also of a deleted one; ``None``: the key has no stamp."""
        return self._of.get((table, key))

    def changed(self, table: str, key: str) -> None:
        """Stamp a key that changed or is gone, by a change of this broker or by the one being received."""
        stamp = self._received[-1] if self._received else self._next()
        if stamp is None:
            self._of.pop((table, key), None)
        else:
            self.keep(table, key, stamp)

    def _next(self) -> Stamp | None:
        if self._leads():
            self._led = self._term
        return None if self._led is None else Stamp(self._led, self._highest + 1)

    def keep(self, table: str, key: str, stamp: Stamp) -> None:
        """Set a key's stamp, which comes from an earlier run or another broker."""
        self._of[table, key] = stamp
        self._term = max(self._term, stamp.term)
        self._highest = max(self._highest, stamp.number)

    def forget(self) -> None:
        """Drop all stamps, because this broker's disk was lost: any value with a stamp is newer."""
        self._of.clear()

    @contextmanager
    def receiving(self, stamp: Stamp | None) -> Iterator[None]:
        """Give all changes made inside this context the stamp of a received change; ``None``: it has none."""
        self._received.append(stamp)
        try:
            yield
        finally:
            self._received.pop()
