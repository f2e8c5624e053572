"""Slaves that came over the link by themselves, and what they have that this master lacks.

Name servers may not show such a slave yet, or not run. It counts while this master prepares to serve; and
while it serves, if the slave led since, has a log where the master has none, or has more of the same log.
Then this master lost something, came back while no slave was there, and is isolated until it has that.

Pure: times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

# How often a slave with a longer log that it does not hand over may send a master back to pre-online.
COPY_AGAIN_S = 30.0


class Newcomers:
    """The slaves of one master.

    Attributes:
        members: their addresses by id.
    """

    def __init__(self) -> None:
        self.members: dict[int, str] = {}
        self._led_since = False  # one of them has
        self._part = -1  # one of them has our log up to here, and more
        self._part_again_s = 0.0

    def greeted(self, broker_id: int, address: str, *, counts: bool, led_since: bool) -> bool:
        """A slave came; whether it has a say in whether this master serves.

        Args:
            counts: this master prepares to serve, or has no log while the slave has one.
            led_since: the slave is of a higher term. It went before this master took its tables, and does not
                follow before that was done.
        """
        self._led_since |= led_since
        if counts or self._led_since:
            self.members[broker_id] = address
            return True
        return False

    def longer(self, broker_id: int, address: str, log_end: int, now_s: float) -> bool:
        """A slave has all of our log up to ``log_end``, and more; whether that counts now."""
        if now_s < self._part_again_s:
            return False
        self._part = log_end
        self.members[broker_id] = address
        return True

    def lacks(self, log_end: int, now_s: float) -> str | None:
        """What this serving master lacks and one of them has, in words; ``None``: nothing any more."""
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
