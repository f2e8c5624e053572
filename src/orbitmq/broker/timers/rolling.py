"""Which messages may wait for less than their whole time, to be stored again (TW-17). No I/O."""

from __future__ import annotations

from array import array

# With as many messages as places, every second search says "may" of one that is not there.
PLACES = 1 << 18


class Rolling:
    """Counts messages by the hash of their key, so that a search can say that one is not among them.

    A million of them cost no more than one: 1 MiB, and nothing as long as there was none.
    """

    def __init__(self) -> None:
        self._counts: array[int] | None = None
        # Those of a RocketMQ broker's units, whose keys are not known.
        self._nameless = 0

    def add(self, key_hash: int | None) -> None:
        """One more; ``None``: its key is not known."""
        if key_hash is None:
            self._nameless += 1
            return
        if self._counts is None:
            self._counts = array("I", bytes(PLACES * array("I").itemsize))
        self._counts[key_hash % PLACES] += 1

    def drop(self, key_hash: int | None) -> None:
        """One less."""
        if key_hash is not None and self._has_named(key_hash):
            assert self._counts is not None
            self._counts[key_hash % PLACES] -= 1
        elif self._nameless:
            self._nameless -= 1

    def _has_named(self, key_hash: int) -> bool:
        """Whether one with this hash was added by its key."""
        return self._counts is not None and self._counts[key_hash % PLACES] > 0

    def may_have(self, key_hash: int) -> bool:
        """Whether a message with this key may be among them."""
        return bool(self._nameless) or self._has_named(key_hash)
