"""The callers that the gate has let pass: what the fast path remembers of users and their rights."""

from __future__ import annotations

from typing import Final

from orbitmq.auth.users import User
from orbitmq.broker.fast_path.keys import SignedCaller

# Of all callers' rights together. A thousand users, each with ten thousand topics, take a sixth of it.
MAX_BYTES: Final = 64 << 20
# About what a caller takes before it has rights.
_CALLER_BYTES: Final = 1_000


class SignedCallers:
    """Callers by user and address: a rule may count for some addresses only.

    A caller that is forgotten is closed: the next request of its user goes to the gate, and makes a new one.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, SignedCaller]] = {}
        self._bytes = 0

    def of(self, user: User, address: str) -> SignedCaller:
        """The caller, with what it has been let do so far."""
        known = self._known.setdefault(user.name, {})
        caller = known.get(address)
        if caller is None:
            caller = known[address] = SignedCaller(user.name, user.key)
            self.grew(_CALLER_BYTES)
        return caller

    def grew(self, size: int) -> None:
        """Rights take more memory; all callers are forgotten when it is too much."""
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self.forget_all()

    def forget(self, user: str) -> None:
        """The user, or what it may do, has changed."""
        for caller in self._known.pop(user, {}).values():
            caller.is_open = False

    def forget_all(self) -> None:
        """What rights are about has changed."""
        for user in list(self._known):
            self.forget(user)
        self._bytes = 0
