"""Which slave may grant queue locks at once when the broker that grants them is lost, and for how long.

A slave that takes over grants what is free in its copy of the locks, so the copy has to hold every lock that
a client may still count on. The leader promises that to one slave, its heir: for a time from its answer on it
grants nothing that the heir does not have. The heir asks again and again, and grants at once when it takes
over while that promise holds (see ``lease``); any other broker waits until no client counts on an older lock.

Pure: times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.clients.queue_locks import TRUSTED_MS
from orbitmq.replication.members.fence import Timing

# The heir asks once in each period of looks. It leads at most this many periods, and a margin, after its
# master's right has run out.
LOOKS = 4
TRUSTED_S = TRUSTED_MS / 1000
# The longest promise, even if a slave asks for more.
LONGEST_HOLD_S = 60.0


def hold_s(timing: Timing) -> float:
    """How long a leader's answer counts: until a slave surely leads, if that answer was the leader's last."""
    return timing.patience_s + LOOKS * timing.look_s


@dataclass(slots=True)
class Heir:
    """One slave with a promise.

    Attributes:
        until_s: when the promise ends.
    """

    broker_id: int
    address: str
    until_s: float


class LockGrantor:
    """The leader's side: it gives the promise to the slave with the lowest id of those that ask."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._heir: Heir | None = None
        self._requested_s: dict[int, float] = {}

    def request_promise(self, broker_id: int, address: str, hold_s: float, now_s: float) -> bool:
        """Whether a slave that asks for the promise, for ``hold_s`` from now on, gets it."""
        self._requested_s = {
            number: at for number, at in self._requested_s.items() if now_s - at <= self._timing.request_age_s
        } | {broker_id: now_s}
        heir = self.heir(now_s)
        if not 0 < hold_s <= LONGEST_HOLD_S:
            return False
        if broker_id != min(self._requested_s) or (heir is not None and heir.broker_id != broker_id):
            # The previous heir may rely on its promise until that has run out.
            return False
        # Margin for two clocks that run at different speeds.
        until_s = now_s + hold_s + self._timing.guard_s
        self._heir = Heir(broker_id, address, max(until_s, heir.until_s if heir is not None else 0.0))
        return True

    def heir(self, now_s: float) -> Heir | None:
        """The slave that must have each lock before it is granted."""
        if self._heir is not None and now_s >= self._heir.until_s:
            self._heir = None
        return self._heir

    def is_gone(self, heir: Heir) -> None:
        """Note that no process is at the heir's address any more, so the promise has ended."""
        if self._heir is heir:
            self._heir = None


class LockCompleteness:
    """From when on this broker's table has every lock that a client may rely on, while it leads and later.

    A broker that begins to lead with an unknown table grants no lock for :data:`TRUSTED_S`. So for that time
    after a leader stops its table is complete, unless it handed the locks over: to an heir, which may grant
    at once, or to a master that asked for them.

    Args:
        guard_s: the margin for two clocks that run at different speeds.
        of_two: the name has two brokers. With more, another broker may grant from its own table while a third
            one still waits; so having waited proves nothing to the third.

    Attributes:
        from_s: from this time on the table has every lock.
    """

    def __init__(self, guard_s: float, *, of_two: bool) -> None:
        self._lasts_s = TRUSTED_S - guard_s
        self._of_two = of_two
        self._led_s: float | None = None
        self.from_s = 0.0

    def leads(self, now_s: float) -> None:
        """Note that the broker has the right to lead now."""
        self._led_s = now_s

    def begins(self, now_s: float, from_s: float | None) -> None:
        """Note that the broker begins to lead, and has all locks from ``from_s`` on; ``None``: unknown."""
        self.from_s = now_s + TRUSTED_S if from_s is None else from_s
        self._led_s = now_s

    def ends(self, grantor: LockGrantor) -> None:
        """Note that the broker leads no more. An heir may have had a promise when it was last seen to
        lead."""
        led_s = self._led_s
        if led_s is None or grantor.heir(led_s) is not None or (led_s < self.from_s and not self._of_two):
            self._led_s = None

    def has_all(self, now_s: float) -> None:
        """Note that the broker does not lead, and has all locks that any broker has granted until now."""
        self.from_s, self._led_s = 0.0, now_s

    def void(self) -> None:
        """Note that another broker may have begun to lead with a copy of this table, or has replaced it by
        its own."""
        self._led_s = None

    def after(self, now_s: float) -> float | None:
        """From when on the table has all locks, after this broker stopped leading; ``None``: unknown."""
        return self.from_s if self._led_s is not None and now_s < self._led_s + self._lasts_s else None
