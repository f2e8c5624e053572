"""Slows addresses that sign wrongly, so that guessing a key takes too long, and costs the server little."""

from __future__ import annotations

from typing import Final

# The first wrong signatures in a row cause no pause: a key may have been changed, or a client's clock be
# wrong.
FREE: Final = 5
FIRST_S: Final = 0.1
MOST_S: Final = 2.0
# An address is forgotten when no wrong signature came from it for this long.
FORGET_S: Final = 60.0
# The most addresses that are remembered; the one whose last wrong signature is oldest is forgotten first.
MAX_ADDRESSES: Final = 10_000


class Slowing:
    """Remembers addresses from which wrong signatures came."""

    def __init__(self) -> None:
        # By address: the wrong signatures in a row, the time of the last one, and the end of its pause.
        self._found: dict[str, tuple[int, float, float]] = {}

    def wrong(self, address: str, now: float) -> float:
        """Count a wrong signature; returns for how many seconds its connection is not read.

        Args:
            now: seconds of a monotonic clock.
        """
        count, last, _ = self._found.pop(address, (0, now, now))
        count = 1 if now - last > FORGET_S else count + 1
        pause = 0.0 if count <= FREE else min(MOST_S, FIRST_S * 2.0 ** min(count - FREE - 1, 16))
        self._found[address] = count, now, now + pause
        if len(self._found) > MAX_ADDRESSES:
            del self._found[next(iter(self._found))]
        return pause

    def left(self, address: str, now: float) -> float:
        """The rest of an address's pause in seconds, during which its new connections are not read."""
        found = self._found.get(address)
        return 0.0 if found is None else max(0.0, found[2] - now)
