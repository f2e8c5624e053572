"""The callers of the fast path: users at an address, with the rights that the gate has granted so far."""

from __future__ import annotations

from typing import Final

from orbitmq.auth.users import User
from orbitmq.broker.fast_path.keys import SignedCaller

# The limit of all callers' rights together: six times those of 1,000 users with 10,000 topics each.
MAX_BYTES: Final = 64 << 20
# About the memory of a caller without rights.
_CALLER_BYTES: Final = 1_000


class SignedCallers:
    """Callers by user and address: a rule may count for some addresses only.

    A caller that is forgotten is closed: the next request of its user goes to the gate, and to a new caller.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, SignedCaller]] = {}
        self._bytes = 0

    def of(self, user: User, address: str) -> SignedCaller:
        """The caller of this user and address, with the rights that the gate has granted so far."""
        known = self._known.setdefault(user.name, {})
        caller = known.get(address)
        if caller is None:
            caller = known[address] = SignedCaller(user.name, user.key)
            self.grew(_CALLER_BYTES)
        return caller

    def grew(self, size: int) -> None:
        """Add to the bytes that all callers' rights take. Over the limit all callers are forgotten."""
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self.forget_all()

    def forget(self, user: str) -> None:
        """Forget the callers of a user: the user or its rules have changed."""
        for caller in self._known.pop(user, {}).values():
            caller.is_open = False

    def forget_all(self) -> None:
        """Forget all callers: the rows of topics and pulls that their rights refer to have changed."""
        for user in list(self._known):
            self.forget(user)
        self._bytes = 0
