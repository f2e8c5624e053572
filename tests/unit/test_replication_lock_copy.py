"""When a broker that begins to lead may grant queue locks, by what it took in pre-online."""

from __future__ import annotations

import pytest
from tests.unit.test_broker_change_feed import Tables

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role, RoleState
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.heir import TRUSTED_S
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.testing.machine.simulated import VirtualClock


class Side:
    """A master's copy of the queue locks, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.role = RoleState(Role.PRE_ONLINE, 0)
        locks = Tables(self.clock).locks
        self.copy = LockCopy(self.clock, BrokerConfig(), self.role, locks, Timing(4.0, 1.0))

    def become(self, role: Role, *, has_groups: bool = True, took_all: bool = True) -> float:
        """Change the role; returns the seconds for which no lock is granted."""
        changed = self.role.move(role, 0)
        assert changed is not None
        self.copy.role_changed(changed, has_groups=has_groups, took_all=took_all)
        return self.copy.lacks_for_s()


@pytest.mark.behaviour("LK-11")
@pytest.mark.parametrize(
    ("taken", "waits_s"),
    [((), 0.0), ((0.0,), 0.0), ((12.0, None), 12.0), ((12.0, 5.0), 5.0), ((None,), TRUSTED_S)],
)
def test_one_member_that_knows_all_locks_is_enough(taken: tuple[float | None, ...], waits_s: float) -> None:
    side = Side()
    for in_s in taken:
        side.copy.taken(in_s)
    assert side.become(Role.MASTER) == waits_s


@pytest.mark.behaviour("LK-11")
def test_a_member_whose_tables_are_missing_may_have_granted_locks() -> None:
    side = Side()
    side.copy.taken(0.0)
    assert side.become(Role.MASTER, took_all=False) == TRUSTED_S
    assert Side().become(Role.MASTER, has_groups=False, took_all=False) == 0.0


@pytest.mark.behaviour("LK-14")
def test_what_was_taken_counts_for_one_way_into_service() -> None:
    side = Side()
    side.copy.taken(0.0)
    assert side.become(Role.MASTER) == 0.0
    side.become(Role.PRE_ONLINE)
    side.copy.taken(None)
    assert side.become(Role.MASTER) == TRUSTED_S
    side.clock.advance(TRUSTED_S)
    assert side.copy.lacks_for_s() == 0.0
