"""Which messages wait for only a part of their time and are then stored again (TW-17). No I/O."""

from __future__ import annotations

from array import array

# Counters in the filter; with as many messages as counters, half of the searches for absent messages answer
# "may be here".
PLACES = 1 << 18


class Rolling:
    """Counts messages by the hash of their key, so that a search can rule out that a message was added.

    The counters take 1 MiB for any number of messages, and nothing before the first one.
    """

    def __init__(self) -> None:
        self._counts: array[int] | None = None
        # How many were added without a key: units of a RocketMQ broker have none.
        self._nameless = 0

    def add(self, key_hash: int | None) -> None:
        """Add a message; ``None``: its key is unknown."""
        if key_hash is None:
            self._nameless += 1
            return
        if self._counts is None:
            self._counts = array("I", bytes(PLACES * array("I").itemsize))
        self._counts[key_hash % PLACES] += 1

    def drop(self, key_hash: int | None) -> None:
        """Remove a message."""
        if key_hash is not None and self._has_named(key_hash):
            assert self._counts is not None
            self._counts[key_hash % PLACES] -= 1
        elif self._nameless:
            self._nameless -= 1

    def _has_named(self, key_hash: int) -> bool:
        """Whether a message with this hash was added with its key."""
        return self._counts is not None and self._counts[key_hash % PLACES] > 0

    def may_have(self, key_hash: int) -> bool:
        """Whether a message with this key may have been added."""
        return bool(self._nameless) or self._has_named(key_hash)
