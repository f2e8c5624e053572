"""Slows down the logins of addresses and users after failures. Pure."""

from __future__ import annotations

from typing import Final

# The first failures in a row cause no wait; each further one doubles the wait, up to the longest.
FREE: Final = 3
LONGEST_S: Final = 60.0
# After this time without a failure the count starts at 0 again.
FORGOTTEN_S: Final = 900.0
MOST_KEPT: Final = 10_000


class Slowing:
    """Counts failures by a key, such as an address or a user."""

    def __init__(self) -> None:
        # By key: the number of failures in a row, and the time of the last one.
        self._failures: dict[str, tuple[int, float]] = {}

    def wait_s(self, key: str, now: float) -> float:
        """The seconds until a login with the key may be tried again; 0 if at once."""
        count, last = self._failures.get(key, (0, 0.0))
        if count < FREE or now - last > FORGOTTEN_S:
            return 0.0
        return max(0.0, last + min(LONGEST_S, 2.0 ** (count - FREE)) - now)

    def failed(self, key: str, now: float) -> None:
        """Count a failed login."""
        count, last = self._failures.pop(key, (0, 0.0))
        self._failures[key] = (1 if now - last > FORGOTTEN_S else min(count + 1, 64), now)
        while len(self._failures) > MOST_KEPT:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        """Set the count back to 0 after a successful login."""
        self._failures.pop(key, None)
