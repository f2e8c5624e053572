"""The role of a broker among the brokers of its name: a state with a fixed set of allowed changes.

Pure: nothing here reads a clock or a setting. The meaning of a role for sends and for services that work by
themselves is defined here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.errors import OrbitError


class Role(Enum):
    """The roles of a broker.

    Attributes:
        MASTER: takes messages.
        FENCED: a master that no name server has answered in time: it takes messages, but a slave may be doing
            its background work (enableSlaveActingMaster).
        ACTING_MASTER: a slave that does its missing master's background work: it delivers delayed messages
            and checks transactions, but takes no messages of producers (enableSlaveActingMaster).
        SLAVE: has a copy of its master's messages and serves reads.
        PRE_ONLINE: isolated: it catches up with other brokers of its name, and is not registered yet.
    """

    MASTER = "master"
    FENCED = "fenced master"
    ACTING_MASTER = "acting master"
    SLAVE = "slave"
    PRE_ONLINE = "pre-online"


EVERY_ROLE = frozenset(Role)
# The roles in which a broker does work that only one broker of a name may do at a time.
LEADING = frozenset({Role.MASTER, Role.ACTING_MASTER})
TAKES_MESSAGES = frozenset({Role.MASTER, Role.FENCED})

# A master cannot become an acting master; slaves and acting masters cannot become fenced.
ALLOWED: Mapping[Role, frozenset[Role]] = {
    Role.PRE_ONLINE: frozenset({Role.MASTER, Role.FENCED, Role.ACTING_MASTER, Role.SLAVE}),
    Role.SLAVE: frozenset({Role.MASTER, Role.ACTING_MASTER, Role.PRE_ONLINE}),
    Role.ACTING_MASTER: frozenset({Role.MASTER, Role.SLAVE, Role.PRE_ONLINE}),
    Role.MASTER: frozenset({Role.FENCED, Role.SLAVE, Role.PRE_ONLINE}),
    Role.FENCED: frozenset({Role.MASTER, Role.SLAVE, Role.PRE_ONLINE}),
}


class RoleError(OrbitError, ValueError):
    """The role cannot change in this way."""


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The event of a change of role; ``at_ms`` is milliseconds since the epoch."""

    before: Role
    after: Role
    at_ms: int


@dataclass(frozen=True, slots=True)
class RoleTaken:
    """The event after :class:`RoleChanged`: the old role's work has ended, the new one's has begun."""


class RoleState:
    """The present role of one broker.

    Args:
        now_ms: when the role began, milliseconds since the epoch.

    Attributes:
        may_lead: returns whether this broker still has the right to lead; replication sets it.
        lacks_tables: returns whether this master may have lost its tables and has not fetched them from the
            other brokers of its name yet; replication sets it.
    """

    def __init__(self, role: Role, now_ms: int) -> None:
        self._role = role
        self._since_ms = now_ms
        # Called at each use: right after the process was frozen, no timer has ended the broker's work yet.
        self.may_lead: Callable[[], bool] = lambda: True
        self.lacks_tables: Callable[[], bool] = lambda: False

    @property
    def role(self) -> Role:
        return self._role

    @property
    def since_ms(self) -> int:
        """When this role began, milliseconds since the epoch."""
        return self._since_ms

    @property
    def takes_messages(self) -> bool:
        """Whether messages of producers are stored here."""
        return self._role in TAKES_MESSAGES

    @property
    def leads(self) -> bool:
        """Whether this broker delivers delayed messages and ends transactions."""
        return self._role in LEADING and self.may_lead()

    def move(self, role: Role, now_ms: int) -> RoleChanged | None:
        """Take another role; ``None`` when it is the present role already.

        Raises:
            RoleError: the present role does not allow it.
        """
        if role is self._role:
            return None
        if role not in ALLOWED[self._role]:
            raise RoleError(f"a {self._role.value} cannot become {role.value}")
        changed = RoleChanged(self._role, role, now_ms)
        self._role, self._since_ms = role, now_ms
        return changed


def role_of_setting(broker_role: str) -> Role:
    """The role of a broker that serves alone (``brokerRole``)."""
    return Role.SLAVE if broker_role == "SLAVE" else Role.MASTER
