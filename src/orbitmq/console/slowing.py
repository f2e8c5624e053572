"""Failed logins slow their address and their user down. Pure."""

from __future__ import annotations

from typing import Final

# Failures in a row that cost no wait; each further one doubles the wait, up to the longest.
FREE: Final = 3
LONGEST_S: Final = 60.0
# After this time without a failure the count begins anew.
FORGOTTEN_S: Final = 900.0
MOST_KEPT: Final = 10_000


class Slowing:
    """Counts failures by a key, such as an address or a user."""

    def __init__(self) -> None:
        # Key to the number of failures in a row, and when the last one was.
        self._failures: dict[str, tuple[int, float]] = {}

    def wait_s(self, key: str, now: float) -> float:
        """Seconds until the key may try again; 0: now."""
        count, last = self._failures.get(key, (0, 0.0))
        if count < FREE or now - last > FORGOTTEN_S:
            return 0.0
        return max(0.0, last + min(LONGEST_S, 2.0 ** (count - FREE)) - now)

    def failed(self, key: str, now: float) -> None:
        """A try has failed."""
        count, last = self._failures.pop(key, (0, 0.0))
        self._failures[key] = (1 if now - last > FORGOTTEN_S else min(count + 1, 64), now)
        while len(self._failures) > MOST_KEPT:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        """A try was right: the count begins anew."""
        self._failures.pop(key, None)
