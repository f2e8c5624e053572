"""Addresses with wrong signatures are slowed: guessing a key takes for ever, and costs the server little."""

from __future__ import annotations

from typing import Final

# Wrong signatures in a row without a consequence: a key that was changed, a clock of another kind of client.
FREE: Final = 5
FIRST_S: Final = 0.1
MOST_S: Final = 2.0
# An address is forgiven when it has signed nothing wrongly for this long.
FORGET_S: Final = 60.0
# Addresses that are remembered; those longest ago are forgotten first.
MAX_ADDRESSES: Final = 10_000


class Slowing:
    """Remembers addresses from which wrong signatures came."""

    def __init__(self) -> None:
        # How many in a row, and when the last one came and its pause ends.
        self._found: dict[str, tuple[int, float, float]] = {}

    def wrong(self, address: str, now: float) -> float:
        """A wrong signature came; returns for how many seconds its connection is not read.

        Args:
            now: seconds, of any clock that only goes forward.
        """
        count, last, _ = self._found.pop(address, (0, now, now))
        count = 1 if now - last > FORGET_S else count + 1
        pause = 0.0 if count <= FREE else min(MOST_S, FIRST_S * 2.0 ** min(count - FREE - 1, 16))
        self._found[address] = count, now, now + pause
        if len(self._found) > MAX_ADDRESSES:
            del self._found[next(iter(self._found))]
        return pause

    def left(self, address: str, now: float) -> float:
        """The rest of an address's last pause, in seconds: new connections of the address wait for it."""
        found = self._found.get(address)
        return 0.0 if found is None else max(0.0, found[2] - now)
