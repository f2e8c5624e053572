"""Messages that stay with their client while it works on them (``auto_renew``).

The table of messages in flight names the client as the owner of a message as soon as the client has it. A
message that is on its way to the client in a crash is redelivered when its invisible time is over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from orbitmq.broker.pop.acknowledging import Acknowledging, Taken
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.wire.errors import RemotingError

log = logging.getLogger("orbitmq.gateway")

# How long a message is invisible from its pop on, and again from each renewal on.
INVISIBLE_MS: Final = 60_000
RENEW_BELOW_MS: Final = 40_000
# A message that a client holds for longer than this goes to another client.
MOST_MS: Final = 3 * 3600 * 1000
# The invisible time that the messages of a client that is gone are set to.
AT_ONCE_MS: Final = 1


class HeldMessages:
    """The deliveries that push consumers hold, by client; each is the messages of one pop from one queue.

    The table of messages in flight has the unacknowledged messages of each pop; a pop without any is
    forgotten here.
    """

    def __init__(self, clock: Clock, acknowledging: Acknowledging) -> None:
        self._clock = clock
        self._acknowledging = acknowledging
        # By client id and delivery: when its invisible time ends (clock's ms).
        self._held: dict[str, dict[Taken, int]] = {}
        self._log = LogLimiter(log)

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def keep(self, client_id: str, taken: Taken) -> None:
        """Add a delivery to a client; it is invisible for :data:`INVISIBLE_MS` from its pop on."""
        self._held.setdefault(client_id, {})[taken] = taken.pop_time_ms + INVISIBLE_MS

    def deliveries_ended(self, client_id: str, several: Sequence[Taken], arrived: bool) -> None:
        """Handle the arrival or the loss of deliveries on their way; lost ones are redelivered at once."""
        held = self._held.get(client_id, {})
        for taken in several:
            if taken not in held:
                continue
            if arrived:
                self._acknowledging.own(taken, client_id)
            else:
                del held[taken]
                self._extend(taken, AT_ONCE_MS)
        if not held:
            self._held.pop(client_id, None)

    def take_up(self) -> list[str]:
        """Keep also what clients had before a restart, or at the master that this broker followed.

        Returns:
            The ids of these clients, none of which may have called this broker yet.
        """
        found: dict[str, None] = {}
        for client_id, taken, due_ms in self._acknowledging.owned():
            held = self._held.setdefault(client_id, {})
            if taken not in held:
                held[taken] = due_ms
                found[client_id] = None
        self.renew()
        return list(found)

    def clear(self) -> None:
        """Forget all deliveries: another broker keeps them from then on."""
        self._held.clear()

    def renew(self) -> None:
        """Extend the invisible time of deliveries whose clients live, up to the limit."""
        now = self._clock.now_ms()
        for client_id, held in list(self._held.items()):
            for taken, ends_ms in list(held.items()):
                if now - taken.pop_time_ms >= MOST_MS:
                    del held[taken]  # its unacknowledged messages are redelivered when their time is over
                elif ends_ms - now < RENEW_BELOW_MS:
                    until = min(now + INVISIBLE_MS, taken.pop_time_ms + MOST_MS)
                    if self._extend(taken, until - now):
                        held[taken] = until
                    else:
                        del held[taken]
            if not held:
                del self._held[client_id]

    def give_back(self, client_id: str, group: str = "") -> None:
        """Make the deliveries of a client that is gone visible at once.

        Args:
            group: the group that the client has left; empty for its deliveries of all groups.
        """
        held = self._held.pop(client_id, {})
        kept = {taken: ends_ms for taken, ends_ms in held.items() if group and taken.group != group}
        if kept:
            self._held[client_id] = kept
        for taken in held:
            if taken not in kept:
                self._extend(taken, AT_ONCE_MS)

    def _extend(self, taken: Taken, invisible_ms: int) -> bool:
        try:
            return self._acknowledging.extend(taken, invisible_ms)
        except RemotingError as error:
            self._log.write(logging.WARNING, "extend", "messages in flight get no more time: %s", error)
            return False
