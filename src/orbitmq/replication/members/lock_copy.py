"""Whether a broker's table of queue locks is complete: it has every lock that a client may trust.

The leader's table is complete when it has received all locks, or when no client trusts an older one. A
slave's copy is complete while its leader's promise holds (see ``heir``). Only roles, promises and times count
here, never the locks themselves; the last frame of whole tables holds when the sender's table is complete,
see ``StateExchange``.
"""

from __future__ import annotations

import logging

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import LEADING, Role, RoleChanged, RoleState
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.heir import TRUSTED_S, Heir, LockCompleteness, LockGrantor, hold_s
from orbitmq.replication.members.lease import Lease
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)


class LockCopy:
    """When one broker's table of locks is complete: as the leader's, and as a slave's copy."""

    def __init__(
        self, clock: Clock, config: BrokerConfig, role: RoleState, locks: QueueLocks, timing: Timing
    ) -> None:
        self._now = clock.monotonic
        self._is_master = config.broker_id == MASTER_ID
        self._role = role
        self._locks = locks
        self._grantor, self._lease = LockGrantor(timing), Lease(1, hold_s(timing))
        # When this broker's table is complete. Before that, clients may trust locks that others granted and
        # that are unknown here.
        self._completeness = LockCompleteness(timing.guard_s, of_two=config.total_replicas == 2)
        # From when on the tables taken from each member in pre-online have all locks; ``None``: unknown.
        self._taken: list[float | None] = []

    # -- as a leader -----------------------------------------------------------------------------------

    def begins(self, from_s: float | None) -> float:
        """Note that this broker leads and when it has all locks, ``None``: the time is unknown.

        Returns:
            The seconds until then.
        """
        self._completeness.begins(self._now(), from_s)
        left_s = self.lacks_for_s()
        if left_s > 0:
            text = "this broker has not received all queue locks of its name: it grants locks in %.1f s"
            log.info(text, left_s)
        return left_s

    def leads(self) -> None:
        """Note that this broker has the right to lead now."""
        self._completeness.leads(self._now())

    def lacks_for_s(self) -> float:
        """How many seconds clients may still trust locks that the leader's table lacks."""
        return max(0.0, self._completeness.from_s - self._now())

    def promises(self, broker_id: int, address: str, hold_s: float) -> bool:
        """Whether a follower that asks for the promise gets it.

        With the promise, only locks that the follower has are granted for a time.
        """
        if not self._role.leads or self.lacks_for_s() > 0:
            return False
        self.leads()
        return self._grantor.request_promise(broker_id, address, hold_s, self._now())

    def heir(self) -> Heir | None:
        """The slave that must have each lock before it is granted."""
        return self._grantor.heir(self._now())

    def is_gone(self, heir: Heir) -> None:
        """Note that no process is at the heir's address any more."""
        self._grantor.is_gone(heir)

    # -- as a slave ------------------------------------------------------------------------------------

    def question(self) -> tuple[int, float]:
        """The number of a question for the leader's promise, and for how many seconds it is to hold."""
        return self._lease.new_request(self._now()), self._lease.lasts_s

    def confirmed(self, number: int) -> None:
        """Note that the leader has promised, and has sent its whole tables."""
        if self._role.role is Role.SLAVE:
            self._lease.given(MASTER_ID, number)

    def follows(self) -> None:
        """Note that a leader's tables begin to arrive, of which this broker's become a copy."""
        self._completeness.void()

    def master_serves(self, *, all_locks: bool) -> None:
        """Note that the master serves again; without the right to lead it may have fewer locks than this
        broker had."""
        if self._role.role is Role.SLAVE:
            self._completeness.void()
            if not all_locks:
                self._lease.withdraw()

    def master_returns(self) -> None:
        """Note that the master is in pre-online: an earlier leader's promise counts only for that leader."""
        if self._lease.holds(self._now()):
            self._completeness.has_all(self._now())
        self._lease.withdraw()

    # -- as either -------------------------------------------------------------------------------------

    def complete_in_s(self, *, leads: bool) -> float | None:
        """In how many seconds no client trusts a lock that this table lacks; ``None``: unknown.

        Args:
            leads: whether the broker that gets the answer begins to lead: the locks that it grants then are
                unknown here.
        """
        now = self._now()
        if self._role.leads:
            return self.lacks_for_s()
        if self._role.role is not Role.SLAVE:
            return None
        from_s = 0.0 if self._lease.holds(now) else self._completeness.after(now)
        if leads:
            self._lease.withdraw()
            self._completeness.void()
        return None if from_s is None else max(0.0, from_s - now)

    def taken(self, in_s: float | None) -> None:
        """Note that a member's tables were taken; after ``in_s`` no client trusts a lock that they lack."""
        self._taken.append(None if in_s is None else self._now() + in_s)

    def role_changed(self, change: RoleChanged, *, has_groups: bool, took_all: bool) -> None:
        """Note that the broker begins or stops leading.

        Args:
            has_groups: whether any group has ever consumed here, as far as this broker knows.
            took_all: whether the tables of all others were taken in pre-online.
        """
        if change.after is Role.PRE_ONLINE:
            self._taken.clear()
        if change.after not in LEADING:
            if change.before in LEADING:
                self._completeness.ends(self._grantor)
            self._lease.withdraw()
        elif change.before not in LEADING:
            if change.before is Role.PRE_ONLINE:
                self.begins(self._taken_from_s(took_all) if has_groups else 0.0)
            else:
                self.begins(self._known_from_s(change.before))
            self._lease.withdraw()

    def _taken_from_s(self, took_all: bool) -> float | None:
        """When the tables taken in pre-online have all locks; ``None``: unknown."""
        if not took_all or not self._taken:
            return 0.0 if took_all else None
        return min((each for each in self._taken if each is not None), default=None)

    def _known_from_s(self, before: Role) -> float | None:
        now = self._now()
        if before is Role.SLAVE and self._lease.holds(now):
            # Their holders may have renewed the locks at the leader meanwhile, so all are prolonged here.
            self._locks.prolong(TRUSTED_S, self._lease.lasts_s)
            return 0.0
        # A master may have restarted: its own table is then older than those of the others.
        return None if self._is_master else self._completeness.after(now)
