"""Slaves that connected by themselves, and the log or tables that they have and this master lacks.

Name servers may not show such a slave yet, or may be down. While this master is in pre-online, every such
slave counts. While the master serves, a slave counts if it led after the master, has a log where the master
has none, or has more of the same log: then this master lost something and came back without seeing a slave,
and is isolated until it has the rest.

Pure: times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

# How often a slave with a longer log may send a master back to pre-online without handing its log over.
COPY_AGAIN_S = 30.0


class Newcomers:
    """The slaves of one master.

    Attributes:
        members: their addresses by id.
    """

    def __init__(self) -> None:
        self.members: dict[int, str] = {}
        self._led_since = False  # whether one of the members led after this master
        self._part = -1  # a member has this master's log up to this end, and more
        self._part_again_s = 0.0

    def greeted(self, broker_id: int, address: str, *, counts: bool, led_since: bool) -> bool:
        """Note a slave that connected; returns whether this master must take its tables before it serves.

        Args:
            counts: whether this master is in pre-online, or has no log while the slave has one.
            led_since: whether the slave has a higher term: its link ended before this master took its tables,
                and it follows only after they are taken.
        """
        self._led_since |= led_since
        if counts or self._led_since:
            self.members[broker_id] = address
            return True
        return False

    def longer(self, broker_id: int, address: str, log_end: int, now_s: float) -> bool:
        """Note a slave with all of this log up to ``log_end``, and more; returns whether that counts now."""
        if now_s < self._part_again_s:
            return False
        self._part = log_end
        self.members[broker_id] = address
        return True

    def lacks(self, log_end: int, now_s: float) -> str | None:
        """What this serving master lacks and a member has, in words; ``None``: nothing."""
        if not self.members:
            return None
        if self._led_since:
            lacks = "the tables of a slave that led since"
        elif not log_end:
            lacks = "the log, a slave has one"
        elif log_end == self._part:
            lacks = "the end of the log, a slave has it"
            self._part_again_s = now_s + COPY_AGAIN_S
        else:
            self.members.clear()
            return None
        self._led_since, self._part = False, -1
        return lacks
